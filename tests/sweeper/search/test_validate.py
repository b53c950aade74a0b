"""A study is checked before anything starts: its trials are legal and report what it is judged by."""

from typing import Any

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.definition import Constraint, Halving, Population
from sweeper.definition.metric import Metric
from sweeper.definition.space import SECONDS, Search, Study
from sweeper.errors import SpecError
from sweeper.search.studies import check, corners
from trainables.training.checks import PreflightResult

KNN = Metric("knn_z", "maximize")
SPACE: dict[str, BaseDistribution] = {
    "beta": FloatDistribution(0.5, 2.0),
    "width": CategoricalDistribution([16, 32, 8]),
}
FIXED: dict[str, Any] = {"method": "vje", "dataset": "digits", "epochs": 8, "report_every": 2}
REPORTED = PreflightResult(4, ("loss", "knn_z"), ("loss", "knn_z"))
AT_THE_END = PreflightResult(4, ("loss", "knn_z"), ("loss",))


def study(space: dict[str, BaseDistribution] | None = None, **options: Any) -> Study:
    defaults: dict[str, Any] = {"metric": KNN, "trials": 4, "wave": 2, "sampler": "random"}
    space = space or SPACE
    fixed = {key: value for key, value in FIXED.items() if key not in space}
    (only,) = Search(space, fixed, **(defaults | options)).studies()
    return only


def checked(definition: Study, *preflight_results: PreflightResult) -> None:
    """Check a study, each of whose corners has one of the preflight_results, in turn."""
    configs = corners(definition)
    check([definition], [configs], [preflight_results[index % len(preflight_results)] for index in range(len(configs))])


def test_corners_are_the_lowest_values_and_each_other_end_alone() -> None:
    ends = [(config.flat()["beta"], config.flat()["width"]) for config in corners(study())]
    assert ends == [(0.5, 16), (2.0, 16), (0.5, 32), (0.5, 8)]


def test_an_illegal_corner_is_refused() -> None:
    with pytest.raises(SpecError, match="beta"):
        corners(study({"beta": FloatDistribution(-1.0, 1.0)}))
    with pytest.raises(SpecError, match="no key 'betta'"):
        corners(study({"betta": FloatDistribution(0.0, 1.0)}))


@pytest.mark.parametrize("options", [{}, {"pruner": Halving(2)}, {"metric": (KNN, Metric(SECONDS, "minimize"))}])
def test_a_study_whose_objectives_are_reported_passes(options: dict[str, Any]) -> None:
    checked(study(**options), REPORTED)


def test_every_corner_reports_the_objective() -> None:
    with pytest.raises(SpecError, match=r"^these trials do not report knn_z; they report: loss$"):
        checked(study(), REPORTED, PreflightResult(4, ("loss",), ("loss",)))


def test_every_corner_of_a_study_that_prunes_reports_the_objective_during_training() -> None:
    checked(study(), REPORTED, AT_THE_END)
    for options in ({"pruner": Halving(2)}, {"population": Population(2), "space": {"beta": SPACE["beta"]}}):
        with pytest.raises(SpecError, match=r"knn_z is reported only at the end; metrics .* training: loss$"):
            checked(study(**options), REPORTED, AT_THE_END)


def test_every_corner_reports_what_is_constrained() -> None:
    bounded: dict[str, Any] = {"sampler": "tpe", "metric": Metric("loss", "minimize")}
    checked(study(**bounded, constraints=(Constraint("seconds", "<=", 9), Constraint("knn_z", ">=", 0.5))), AT_THE_END)
    with pytest.raises(SpecError, match=r"^these trials do not report probe_z; they report: loss, knn_z$"):
        checked(study(**bounded, constraints=(Constraint("probe_z", ">=", 0.5),)), REPORTED)
    with pytest.raises(SpecError, match=r"knn_z is reported only at the end; metrics .* training: loss$"):
        checked(study(**bounded, constraints=(Constraint("knn_z", ">=", 0.5),), pruner=Halving(2)), AT_THE_END)


def test_what_makes_trials_incomparable_is_not_searched() -> None:
    with pytest.raises(SpecError, match=r"^normal_class must be fixed or an axis in a search, but it is searched$"):
        checked(study({"normal_class": IntDistribution(0, 3)}), REPORTED)
    epochs: dict[str, BaseDistribution] = {"epochs": IntDistribution(4, 8)}
    checked(study(epochs), REPORTED)
    with pytest.raises(SpecError, match=r"^epochs must be fixed in a search with a pruner or a population"):
        checked(study(epochs, pruner=Halving(2)), REPORTED)


def test_a_pruner_has_a_rung_before_the_last_epoch() -> None:
    with pytest.raises(SpecError, match="a pruner needs a report before the last epoch"):
        checked(study(pruner=Halving(8)), REPORTED)


@pytest.mark.parametrize(
    ("space", "every", "message"),
    [
        (SPACE, 2, "keep tensor shapes, but width is searched; fix it with --set width=VALUE"),
        ({"beta": CategoricalDistribution([0.5, 1.0])}, 2, "keep tensor shapes, but beta is searched"),
        ({"beta": SPACE["beta"]}, 3, "must be a multiple of report_every and less than epochs, but got every=3"),
        ({"beta": SPACE["beta"]}, 8, "must be a multiple of report_every and less than epochs, but got every=8"),
    ],
)
def test_a_population_adapts_numbers_between_reports(
    space: dict[str, BaseDistribution], every: int, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        checked(study(space, population=Population(every)), REPORTED)
    checked(study({"beta": SPACE["beta"]}, population=Population(4)), REPORTED)
