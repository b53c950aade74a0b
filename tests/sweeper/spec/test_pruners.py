"""Rungs of successive halving, and the ranges of both schedulers."""

from collections.abc import Sequence
from typing import Any

import pytest
from optuna.distributions import FloatDistribution

from sweeper.errors import SpecError
from sweeper.spec import Halving, Metric, Population, Pruner, Search


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


class Median(Pruner):
    """The better half goes on at every report."""

    def keep(self, epoch: int, values: Sequence[float]) -> int:
        return (len(values) + 1) // 2


def test_a_pruner_of_ones_own_is_a_class_with_one_method() -> None:
    pruner = Median()
    assert pruner.ladders(epochs=10, report_every=3) == ((3, 6, 9),) and pruner == Median()
    assert pruner.brackets_of([4, 5], 3) == (0, 0) and pruner.reduction == 1
    with pytest.raises(SpecError, match="needs a report before the last epoch"):
        pruner.ladders(epochs=10, report_every=10)


def test_parameters_that_the_id_of_a_study_would_miss_are_refused() -> None:
    class Hidden(Median):
        def __init__(self, share: float) -> None:
            object.__setattr__(self, "share", share)

    with pytest.raises(SpecError, match="fields of a frozen dataclass, but Hidden sets share"):
        Search({"lr": FloatDistribution(0, 1)}, {}, 4, Metric("auroc", "maximize"), wave=2, pruner=Hidden(0.5))


def test_the_name_of_a_pruner_in_the_id_of_a_study_stays() -> None:
    assert repr(Halving(2)) == "Halving(first=2, factor=3, brackets=1)"
