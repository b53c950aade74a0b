"""All metrics that trials can report."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from trainables.catalog import METHODS
from trainables.config.trial import TrialConfig, resolve
from trainables.contract import Method
from trainables.data.outliers import OUTLIERS
from trainables.training.evaluators import TOP, metric_names


@functools.cache
def reported_by() -> Mapping[str, tuple[str, ...]]:
    """Map the name of each metric to the methods that can report it, on any data set and with any evaluation."""
    methods: dict[str, list[str]] = {}
    for method in METHODS:
        names = [name for config in _fully_evaluated(method) for name in metric_names(config, classes=TOP + 1)]
        for name in dict.fromkeys(names):
            methods.setdefault(name, []).append(method)
    return {metric: tuple(names) for metric, names in methods.items()}


def _fully_evaluated(method: str) -> tuple[TrialConfig, TrialConfig]:
    """A trial on all classes with every evaluation, and one on a single class; both hold out validation images."""
    cls = METHODS[method]
    epochs = {"epochs": 0} if cls.losses is Method.losses else {}
    outliers = {"outliers": "+".join(OUTLIERS), "held_out": "0"} if cls.scores else {}
    all_classes = resolve({"method": method, "validation": 0.1, "knn": 1, "probe_epochs": 1, **epochs, **outliers})
    return all_classes, resolve({"method": method, "validation": 0.1, "normal_class": 0, **epochs})
