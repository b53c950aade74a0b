"""What studies have left to train, and in which shapes."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.execution.stages import least_share, shapes, study_work
from sweeper.search.ask_tell import TrialResult
from sweeper.search.study_run import Recorded, StudyRun, WarmStart
from sweeper.spec import Halving, Metric, Population, Search
from sweeper.spec.space import Study
from trainables.config import resolve

RATES: Mapping[str, BaseDistribution] = {"lr": FloatDistribution(1e-3, 0.1), "beta": FloatDistribution(0.1, 2.0)}
WIDTHS = CategoricalDistribution((32, 64, 128))
FIXED: Mapping[str, Any] = {"method": "vje", "dataset": "digits", "epochs": 8, "report_every": 1}


def study_of(space: Mapping[str, BaseDistribution] = RATES, **options: Any) -> Study:
    search = Search(space, FIXED, 20, Metric("loss", "minimize"), wave=8, sampler="random", **options)
    return next(search.studies())


def run_of(study: Study, statuses: Sequence[Any] = ()) -> StudyRun:
    """The study, of whose first trials these are the results."""
    first = StudyRun(study, "s0", WarmStart(None), {}, lambda params: resolve(params).flat(), steps=50)
    results = [TrialResult(number, status, (0.5,)) for number, status in enumerate(statuses)]
    recorded = {
        result.number: Recorded({key: trial.config[key] for key in study.search.space}, {(): result})
        for result, trial in zip(results, first.trials, strict=False)
    }
    return StudyRun(study, "s0", WarmStart(None), recorded, lambda params: resolve(params).flat(), steps=50)


def test_trials_that_have_no_result_or_failed_are_left() -> None:
    new, continued = study_work(run_of(study_of())), study_work(run_of(study_of(), ["finished", "failed"]))
    assert (new.steps, new.begun, continued.steps, continued.begun) == (20 * 50, False, 19 * 50, True)
    assert new.waves == {8, 4} and (new.factor, new.together) == (1, False)
    assert study_work(run_of(study_of(population=Population(2)))).together


def test_a_pruner_lowers_the_steps() -> None:
    """Rungs at epochs 2 and 4 of 8: a half of the trials goes on at each."""
    work = study_work(run_of(study_of(pruner=Halving(first=2, factor=2))))
    assert work.factor == 2 and work.steps == pytest.approx(20 * 50 * (2 + 2 / 2 + 4 / 4) / 8)
    assert least_share(Halving(first=2, factor=2, brackets=2), 8, 1) == pytest.approx(0.5)


def test_rates_change_no_shape() -> None:
    (config,) = shapes(study_of())
    assert config["method"] == "vje" and config["epochs"] == 8


@pytest.mark.parametrize(
    ("space", "count"),
    [
        ({"width": WIDTHS}, 3),
        ({"features": IntDistribution(8, 32, step=8)}, 4),
        ({"features": IntDistribution(8, 64)}, 0),
        ({"width": WIDTHS, "features": IntDistribution(8, 16, step=8)}, 0),
        ({"features": IntDistribution(8, 8)}, 1),
        ({"momentum": FloatDistribution(0.8, 0.99)}, 0),
    ],
)
def test_few_shapes_are_counted_and_many_are_not(space: Mapping[str, BaseDistribution], count: int) -> None:
    configs = shapes(study_of({**RATES, **space}))
    assert len({tuple(config[key] for key in space) for config in configs}) == len(configs) == count
