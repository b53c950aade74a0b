"""The names of the metrics that trials report."""

import functools
from collections.abc import Mapping

from trainables.catalog import METHODS
from trainables.config.trial import TrialConfig, resolve
from trainables.contract import Method
from trainables.data.outliers import OUTLIERS
from trainables.evaluation import anomaly, ood, posterior
from trainables.evaluation.metrics import FAMILIES, VALIDATION

MAY_BE_UNDEFINED = frozenset(
    prefix + name for name, family in FAMILIES.items() if family.may_be_undefined for prefix in ("", VALIDATION)
)
"""Metrics that may be undefined (NaN). A member has diverged if any other metric is not finite."""
TOP = 5
"""Probes also report their top-5 accuracy if there are more than 5 classes."""


def metric_names(config: TrialConfig, classes: int, last: bool = True) -> tuple[str, ...]:
    """Names of all metrics that the reports of a trial on data of `classes` classes can hold. With `last=False` those
    that reports before the last one can hold."""
    method, evaluation = METHODS[config.method], config.evaluation
    losses = ("loss", *(f"loss_{part}" for part in method.loss_parts))
    prefixes = ("", VALIDATION) if config.data.validation else ("",)
    if config.data.normal_class is not None:
        return (*losses, *(f"{prefix}{name}" for prefix in prefixes for name in anomaly.metric_names(method)))
    names: list[str] = []
    for vector in method.representations:
        names += [f"knn_{vector}", f"knn_weighted_{vector}"] if evaluation.knn else []
        if last and evaluation.probe_epochs:
            names += [f"probe{suffix}_{vector}" for _, suffix in probe_top_k(classes)]
    names += posterior.METRICS if method.variance else []
    ood_names = [f"{name}_{outliers}" for outliers in evaluation.outlier_sets for name in ood.metric_names(method)]
    return (*losses, *(f"{prefix}{name}" for group in (names, ood_names) for prefix in prefixes for name in group))


@functools.cache
def methods_by_metric() -> Mapping[str, tuple[str, ...]]:
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


def probe_top_k(classes: int) -> list[tuple[int, str]]:
    """Each k of which probes report the top-k accuracy, and the suffix of its metric's name."""
    return [(1, ""), (TOP, f"_top{TOP}")] if classes > TOP else [(1, "")]
