"""Rungs of successive halving, and the ranges of both schedulers."""

from typing import Any

import pytest

from sweeper.errors import SpecError
from sweeper.spec import Halving, Population


def test_rungs_are_reports_before_the_last_epoch() -> None:
    assert Halving(first=5, factor=3).ladders(epochs=50, report_every=5) == ((5, 15, 45),)
    assert Halving(first=4, factor=3).ladders(epochs=45, report_every=10) == ((10, 20, 40),)
    assert Halving(first=5, factor=3, brackets=2).ladders(epochs=50, report_every=5) == ((5, 15, 45), (15, 45))
    with pytest.raises(SpecError, match=r"needs a report before the last epoch .* there are 0"):
        Halving(first=5).ladders(epochs=50, report_every=50)
    with pytest.raises(SpecError, match="its 4 brackets"):
        Halving(first=5, brackets=4).ladders(epochs=50, report_every=5)


@pytest.mark.parametrize("rule", [{"first": 0}, {"first": 1, "factor": 1}, {"first": 1, "brackets": 0}])
def test_a_pruner_out_of_range_is_refused(rule: dict[str, int]) -> None:
    with pytest.raises(SpecError, match="must hold for a pruner"):
        Halving(**rule)


@pytest.mark.parametrize("rule", [{"every": 0}, {"every": 1, "share": 0.6}, {"every": 1, "factor": 1.0}])
def test_a_population_out_of_range_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="must hold for a population"):
        Population(**rule)
