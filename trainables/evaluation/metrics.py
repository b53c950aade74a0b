"""The meaning of each metric: its direction, its range and when it is reported.

Evaluators, sweep files and `--describe` share this definition. It does not need PyTorch.

The name of a metric begins with its family: `knn_z` is the metric of the family `knn` on the vector z.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from trainables.evaluation.metric_families import classifiers, embeddings, generation, pairs, scores, training
from trainables.evaluation.metric_families.family import MetricFamily

VALIDATION = "val_"
"""Prefix of the names of metrics on validation images."""
FAMILIES: Mapping[str, MetricFamily] = MappingProxyType(
    training.FAMILIES
    | classifiers.FAMILIES
    | embeddings.FAMILIES
    | generation.FAMILIES
    | scores.FAMILIES
    | pairs.FAMILIES
)
"""Name of a family -> the family."""


def family_of(metric: str) -> MetricFamily | None:
    """The family of a metric: that with the longest name that the metric begins with, `loss_part` for `loss_kl` and the
    like, `knn_k` for `knn_3_z` and the like, or `probe_few` for `probe_5` and the like. A metric of validation images
    (`val_knn_z`) has the family of its name without `val_`. None if there is no family, for example for a metric of a
    new method."""
    metric = metric.removeprefix(VALIDATION)
    if metric.startswith("loss_"):
        return FAMILIES["loss_part"]
    if re.match(r"knn_\d+(_|$)", metric):
        return FAMILIES["knn_k"]
    if re.match(r"probe_\d+$", metric):
        return FAMILIES["probe_few"]
    names = [name for name in FAMILIES if metric == name or metric.startswith(f"{name}_")]
    return FAMILIES[max(names, key=len)] if names else None
