"""Checks of a study before anything starts: its trials must be legal and report the metrics it is judged by."""

from collections.abc import Sequence

from sweeper.errors import SpecError
from sweeper.spec.pruners import Population
from sweeper.spec.space import SECONDS, Search, Study, bounds
from trainables import config
from trainables.sections import Training, TrialConfig
from trainables.training.checks import PreflightResult

UNSEARCHABLE_KEYS = frozenset(
    {"workers", "method", "dataset", "image_digest", "image_size", "image_channels", "normal_class", "held_out"}
    | {"validation"}
)
"""Keys that must have the same value in all trials of a study."""


def corners(study: Study) -> list[TrialConfig]:
    """Configs of trials at the ends of the search space.

    The first has every key at its lowest value or first choice. The others differ from it in one key, which has its
    highest value or another choice. Raises SpecError if one of them is illegal.
    """
    extremes = {key: bounds(distribution) for key, distribution in study.search.space.items()}
    lowest = {**study.fixed, **{key: values[0] for key, values in extremes.items()}}
    others = [{**lowest, key: value} for key, values in extremes.items() for value in values[1:]]
    try:
        return [config.resolve(params) for params in (lowest, *others)]
    except ValueError as error:
        raise SpecError(str(error)) from None


def check(study: Study, corners: Sequence[TrialConfig], preflight_results: Sequence[PreflightResult]) -> None:
    """Raise SpecError if a corner does not report the study's objectives, or its trials cannot be compared."""
    search, training = study.search, corners[0].training
    for name in (metric.name for metric in search.objectives if metric.name != SECONDS):
        for result in preflight_results:
            if name not in result.metrics:
                raise SpecError(f"these trials do not report {name}; they report: {', '.join(result.metrics)}")
    for key in sorted(UNSEARCHABLE_KEYS & set(search.space)):
        raise SpecError(f"{key} must be fixed or an axis in a search, but it is searched")
    if search.pruner or search.population:
        _check_comparable_during_training(search, preflight_results)
    if search.pruner:
        search.pruner.ladders(training.epochs, training.report_every)
    if search.population:
        _check_population(study, search.population, training)


def _check_comparable_during_training(search: Search, preflight_results: Sequence[PreflightResult]) -> None:
    """Raise SpecError if trials report at different epochs, or any of them reports the objective only at the end."""
    for key in sorted({"epochs", "report_every"} & set(search.space)):
        raise SpecError(f"{key} must be fixed in a search with a pruner or a population, but it is searched")
    name = search.objectives[0].name
    for result in preflight_results:
        if name not in result.metrics_during_training:
            raise SpecError(
                f"a pruner or a population needs a metric that is reported during training, but {name} is reported "
                f"only at the end; metrics reported during training: {', '.join(result.metrics_during_training)}"
            )


def _check_population(study: Study, population: Population, training: Training) -> None:
    """Raise SpecError if the population cannot adapt a searched key, or its interval does not fit the reports."""
    adaptable = config.adaptable_keys(str(study.fixed["method"]))
    for key, distribution in study.search.space.items():
        if key not in adaptable or hasattr(distribution, "choices"):
            raise SpecError(
                f"a population can only adapt numeric hyperparameters that keep tensor shapes, but {key} is searched; "
                f"fix it with --set {key}=VALUE, or search only: {', '.join(sorted(adaptable))}"
            )
    if population.every % training.report_every or population.every >= training.epochs:
        raise SpecError(
            "the `every` of a population must be a multiple of report_every and less than epochs, but got "
            f"every={population.every}, report_every={training.report_every}, epochs={training.epochs}"
        )
