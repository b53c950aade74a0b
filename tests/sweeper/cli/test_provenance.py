from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sweeper.cli.provenance import consumption, provenance
from sweeper.spec.node_price import NodePrice
from sweeper.storage.rows import PROVENANCE
from trainables.worker.messages import DeviceShare, Environment, Origin

ENVIRONMENT = Environment("3.11.9", "2.15.0+cu130", "13.0", "550.54.15")
QUARTER = DeviceShare(0.25, 8.0, "H100")
ORIGIN = Origin("NVIDIA H100", "node1", 1, datetime(2026, 1, 1, tzinfo=UTC), ENVIRONMENT, QUARTER)


def test_a_quarter_of_one_of_eight_gpus_costs_its_part_of_the_node() -> None:
    """An hour on a quarter of a GPU is 900 device seconds, 1/32 of a node that costs 96 an hour."""
    taken = consumption(3600.0, ORIGIN, NodePrice({"": 1.0, "H100": 96.0}))
    assert taken == {"device_seconds": 900.0, "cost": pytest.approx(3.0)}


def test_a_kind_without_a_price_of_its_own_has_that_of_the_others_or_none() -> None:
    assert consumption(32.0, ORIGIN, NodePrice({"": 3600.0, "T4": 1.0}))["cost"] == pytest.approx(1.0)
    assert consumption(32.0, ORIGIN, NodePrice({"T4": 1.0})) == {"device_seconds": 8.0, "cost": None}
    assert consumption(32.0, ORIGIN, None)["cost"] is None


def test_every_column_is_one_in_which_two_runs_may_differ() -> None:
    columns = {**provenance(ORIGIN), **consumption(1.0, ORIGIN, None)}
    assert columns["driver"] == "550.54.15" and columns["torch"] == "2.15.0+cu130"
    assert columns["compiled"] is False and provenance(replace(ORIGIN, compiled=True))["compiled"] is True
    assert set(columns) | {"seconds", "code_version", "started", "ended"} == set(PROVENANCE)


def test_a_cohort_without_a_process_has_nulls() -> None:
    assert provenance(None) == {} and consumption(1.0, None, NodePrice({"": 1.0})) == {}
