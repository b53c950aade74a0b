"""The meaning of each metric: its direction, its range and when it is reported.

Evaluators, sweep files and `--describe` share this definition. It does not need PyTorch.

The name of a metric begins with its family: `knn_z` is the metric of the family `knn` on the vector z.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

SHARE = "a share in [0, 1]"
VALIDATION = "val_"
"""Prefix of the names of metrics on validation images."""


@dataclass(frozen=True)
class MetricFamily:
    """The properties that all metrics of a family share."""

    meaning: str
    """One or two sentences."""
    direction: Literal["maximize", "minimize"] | None = None
    """Which direction is better; None if neither is, or if it depends on the question."""
    unit: str = SHARE
    """Unit and range."""
    at_end: bool = False
    """Whether it is reported at the end of training only, not at every report."""
    may_be_undefined: bool = False
    """Whether it may be NaN. A trial with a NaN in any other metric has diverged."""

    @property
    def share(self) -> bool:
        """Whether it lies in [0, 1], so that it can be shown in percent."""
        return self.unit == SHARE


FAMILIES: Mapping[str, MetricFamily] = MappingProxyType(
    {
        "loss": MetricFamily(
            "Training loss, the mean over the batches of an epoch. Losses of different methods do not compare.",
            "minimize",
            "a real number, in the unit of the method's loss",
        ),
        "loss_part": MetricFamily(
            "A named part of the training loss before its weight, the mean over the batches of an epoch.",
            unit="a real number, in the unit of the method's loss",
        ),
        "knn": MetricFamily(
            "Accuracy on test images of a vote among the `knn` training images nearest by cosine.", "maximize"
        ),
        "knn_weighted": MetricFamily(
            "Accuracy on test images of the same neighbours, each with the weight exp(cosine / knn_temperature).",
            "maximize",
        ),
        "probe": MetricFamily(
            "Accuracy on test images of a linear classifier trained on the frozen representation.",
            "maximize",
            at_end=True,
        ),
        "probe_top5": MetricFamily(
            "How often the true class is among the linear classifier's five first guesses, of more than five classes.",
            "maximize",
            at_end=True,
        ),
        "auroc": MetricFamily(
            "Area under the ROC curve: how often an outlier has a higher anomaly score than an inlier. 0.5 is chance.",
            "maximize",
        ),
        "aupr": MetricFamily(
            "Area under the precision-recall curve (average precision) of outliers; their share of images is chance.",
            "maximize",
        ),
        "fpr95": MetricFamily(
            "Share of outliers that are taken for inliers where 95 % of the inliers are accepted.", "minimize"
        ),
        "posterior_entropy": MetricFamily(
            "Entropy of the posterior, the mean over test images.", unit="a real number, in nats"
        ),
        "posterior_variance": MetricFamily(
            "Variance of the posterior summed over dimensions, the mean over test images.", unit="a number above 0"
        ),
        "var_mean": MetricFamily(
            "Variance of the posterior, the mean over dimensions and test images: near 0 it has collapsed, 1 is the "
            "prior's.",
            unit="a number above 0",
        ),
        "var_cv": MetricFamily(
            "Standard deviation over dimensions of the posterior's variance, divided by var_mean: 0 is isotropic. Null "
            "where var_mean is below 0.01.",
            unit="a number of at least 0",
            may_be_undefined=True,
        ),
        "seconds": MetricFamily(
            "The trial's share of the training seconds of its cohort: an objective of searches.",
            "minimize",
            "seconds",
            at_end=True,
        ),
    }
)
"""Name of a family -> the family."""


def family_of(metric: str) -> MetricFamily | None:
    """The family of a metric: that with the longest name that the metric begins with, or `loss_part` for `loss_kl` and
    the like. A metric of validation images (`val_knn_z`) has the family of its name without `val_`. None if there is no
    family, for example for a metric of a new method."""
    metric = metric.removeprefix(VALIDATION)
    if metric.startswith("loss_"):
        return FAMILIES["loss_part"]
    names = [name for name in FAMILIES if metric == name or metric.startswith(f"{name}_")]
    return FAMILIES[max(names, key=len)] if names else None
