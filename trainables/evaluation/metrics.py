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


PATTERNS = ((r"loss_.*", "loss_part"), (r"knn_\d+(_.*)?", "knn_k"), (r"probe_\d+", "probe_few"))
"""Pattern of whole names -> the family of metrics that are named otherwise than it: `loss_kl`, `knn_3_z`, `probe_5`."""


def family_of(metric: str) -> MetricFamily | None:
    """The family of a metric: by PATTERNS, or else that with the longest name that the metric begins with. A metric of
    validation images (`val_knn_z`) has the family of its name without `val_`. None if there is no family, for example
    for a metric of a new method."""
    metric = metric.removeprefix(VALIDATION)
    names = [family for pattern, family in PATTERNS if re.fullmatch(pattern, metric)]
    names = names or [name for name in FAMILIES if metric == name or metric.startswith(f"{name}_")]
    return FAMILIES[max(names, key=len)] if names else None
