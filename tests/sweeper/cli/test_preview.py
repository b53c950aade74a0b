"""What `--plan` expects of an allocation."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.cli.preview import expectation
from sweeper.spec.node_price import NodePrice
from tests.sweeper.packing.fake_cluster import FakeMeasure
from tests.sweeper.packing.test_allocate import CPU, allocated, grid


def test_hours_and_cost_are_those_of_the_remaining_trials(tmp_path: Path) -> None:
    """32 members in stacks of 8 on 4 cores: ten thousand steps of sqrt(8) hundredths of a second."""
    plan = grid()
    allocation = allocated(tmp_path, FakeMeasure(CPU), plan, "--plan", "--node-price", "3")
    seconds = 0.4 + 10_000 * 0.01 * 8**0.5
    plain = expectation(allocation, plan, NodePrice({"": 3.0}))
    assert plain["hours"] == pytest.approx(seconds / 3600) and plain["cost"] == pytest.approx(3 * seconds / 3600)
    assert (plain["at_a_time"], plain["stack_widths"]) == (4, [8]) and json.loads(json.dumps(plain)) == plain
    half = replace(plan, grid_statuses=dict.fromkeys(plan.ids[:16], "finished"))
    assert expectation(allocation, half, NodePrice({"": 3.0}))["hours"] == pytest.approx(seconds / 7200)
    assert expectation(allocated(tmp_path, FakeMeasure(CPU), plan), half, None)["cost"] is None


def test_a_price_for_all_nodes_is_a_number() -> None:
    by_kind = {"": 1.0, "H100": 9.0}
    plain = [expectation(None, grid(), NodePrice(prices))["node_price"] for prices in ({"": 3.0}, by_kind)]
    assert plain == [3.0, by_kind]
