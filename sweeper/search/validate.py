"""What can be known of a study before anything starts: its trials are legal, and report what it is judged by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sweeper.errors import SpecError
from sweeper.spec.grid import Value
from sweeper.spec.schedulers import Population
from sweeper.spec.search import SECONDS, Search, Study, bounds
from trainables.config import trial as config
from trainables.config.sections import Training
from trainables.config.trial import TrialConfig
from trainables.training.preflight import Prospect

ALIKE = frozenset({"workers", "method", "dataset", "normal_class", "held_out", "validation"})
"""Keys in which all trials of a study agree."""


def corners(study: Study) -> list[TrialConfig]:
    """Trials at the ends of the space: all at the lowest (first choices), and each key at its other end or choices.

    SpecError where one is illegal.
    """
    return [_resolved({**study.fixed, **params}) for params in _corners(study.search)]


def check(study: Study, corners: Sequence[TrialConfig], prospects: Sequence[Prospect]) -> None:
    """SpecError where the study cannot be judged as it asks, or its trials have too little in common."""
    search, one = study.search, corners[0]
    for metric in search.objectives:
        if metric.name == SECONDS:
            continue
        for prospect in prospects:
            if metric.name not in prospect.metrics:
                raise SpecError(f"these trials do not report {metric.name}; they report: {', '.join(prospect.metrics)}")
    for key in sorted(ALIKE & set(search.space)):
        raise SpecError(f"{key} must be fixed or an axis in a search, but it is searched")
    if not (search.pruner or search.population):
        return
    for key in sorted({"epochs", "report_every"} & set(search.space)):
        raise SpecError(f"{key} must be fixed where members are compared while they train, but it is searched")
    name, training = search.objectives[0].name, one.training
    if name not in prospects[0].during:
        raise SpecError(
            f"a pruner or a population needs a metric that is reported while trials train, but {name} is reported at "
            f"the end; reported before are: {', '.join(prospects[0].during)}"
        )
    if search.pruner:
        search.pruner.ladders(training.epochs, training.report_every)
    if search.population:
        _check_population(study, search.population, training)


def _check_population(study: Study, population: Population, training: Training) -> None:
    able = config.fusible(str(study.fixed["method"])) - {"seed", "normal_class"}
    for key, one in study.search.space.items():
        if key not in able or hasattr(one, "choices"):
            raise SpecError(
                f"a population adapts numbers that are no tensor's shape, but {key} is searched; those are: "
                f"{', '.join(sorted(able))}"
            )
    if population.every % training.report_every or population.every >= training.epochs:
        raise SpecError(
            "the `every` of a population must be a multiple of report_every, below epochs, but got "
            f"every={population.every}, report_every={training.report_every}, epochs={training.epochs}"
        )


def _corners(search: Search) -> Iterator[dict[str, Value]]:
    ends = {key: bounds(one) for key, one in search.space.items()}
    lowest = {key: values[0] for key, values in ends.items()}
    yield lowest
    for key, values in ends.items():
        for value in values[1:]:
            yield {**lowest, key: value}


def _resolved(given: Mapping[str, Value]) -> TrialConfig:
    try:
        return config.resolve(given)
    except ValueError as error:
        raise SpecError(str(error)) from error
