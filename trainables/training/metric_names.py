"""The names of the metrics that trials report, including losses."""

import functools
from collections.abc import Mapping, Sequence

from trainables.catalog import known_methods, method_of, task_of
from trainables.config import resolve
from trainables.metrics.meanings import family_of
from trainables.reports import EpochRanking
from trainables.sections import TrialConfig


def may_be_undefined(metric: str) -> bool:
    """Whether a metric may be NaN. A member has diverged if any other metric is not finite."""
    family = family_of(metric)
    return family is not None and family.may_be_undefined


def ranking_of(metric: str) -> EpochRanking:
    """How a metric ranks epochs. Raises ValueError for a metric without a better direction."""
    family = family_of(metric)
    if family is None or family.direction is None:
        raise ValueError(f"epochs are ranked by a metric with a direction (maximize or minimize), but got {metric}")
    return EpochRanking(metric, family.direction == "maximize")


MANY_CLASSES = 10
"""A number of classes with which trials report every metric."""


def metric_names(config: TrialConfig, classes: int, last: bool = True) -> tuple[str, ...]:
    """Names of all metrics in the reports of a trial on data with `classes` classes; `last=False` leaves out metrics
    that only the last report contains. Raises ValueError, with a one-line message, if two metrics have the same
    name."""
    method = method_of(config.method)
    losses = ("loss", *map(method.metric_of_part, method.parts_of(config.options)))
    names = (*losses, *task_of(config.method).metric_names(config, method, classes, last))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"each metric of a trial must have a unique name, but two of {config.method} are named {twice!r}; rename "
            "the loss part or the data set's attribute with this name"
        )
    return names


def methods_by_metric() -> Mapping[str, tuple[str, ...]]:
    """Map the name of each metric to the known methods that can report it, on any data set and with any evaluation."""
    return _methods_by_metric(tuple(known_methods()))


@functools.cache
def _methods_by_metric(known: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    methods: dict[str, list[str]] = {}
    for name in known:
        method = method_of(name)
        untrained = {} if method.trains() else {"epochs": 0}
        asked = [resolve({"method": name, **keys, **untrained}) for keys in task_of(name).full_evaluations(method)]
        found = [metric for config in asked for metric in metric_names(config, MANY_CLASSES)]
        for metric in dict.fromkeys((*found, *map(method.metric_of_part, method.loss_parts))):
            methods.setdefault(metric, []).append(name)
    return {metric: tuple(names) for metric, names in methods.items()}
