"""One-class anomaly detection: AUROC of anomaly scores.

Shapes: K members, N test images.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from trainables.contract import ImageMethod

Floats = NDArray[np.float64]
"""An array of float64."""


def metric_names(method: type[ImageMethod]) -> tuple[str, ...]:
    """Names of the metrics that `evaluate` returns for a method: `auroc_SCORE` for each score, and its score means."""
    return (*(f"auroc_{name}" for name in method.scores), *method.score_means)


def evaluate(
    scores: Mapping[str, Floats], outlier_KN: NDArray[np.bool_], means: Mapping[str, str]
) -> dict[str, Floats]:
    """Compute metrics `[K]` by name from scores `[K, N]`. `means` maps the name of a metric to the score whose mean it
    is. A metric is NaN for a member with a score that is not finite."""
    metrics = {f"auroc_{name}": auroc(values_KN, outlier_KN) for name, values_KN in scores.items()}
    return metrics | {metric: scores[name].mean(axis=1) for metric, name in means.items()}


def auroc(score_KN: Floats, outlier_KN: NDArray[np.bool_]) -> Floats:
    """Area under the ROC curve `[K]`, with outliers as positives: how often an outlier scores higher than an inlier.
    Ties count one half (the Mann-Whitney statistic). NaN if a score is not finite, or if there are no outliers or no
    inliers."""
    pairs = zip(score_KN, outlier_KN, strict=True)
    return np.array(
        [where_defined(mann_whitney, score_N[~outlier_N], score_N[outlier_N]) for score_N, outlier_N in pairs]
    )


def mann_whitney(inlier_N: Floats, outlier_M: Floats) -> float:
    """How often an outlier scores higher than an inlier; ties count one half. Scores must be finite, and neither array
    empty."""
    inlier_N = np.sort(inlier_N)
    below_M = np.searchsorted(inlier_N, outlier_M, side="left") + np.searchsorted(inlier_N, outlier_M, side="right")
    return float(below_M.mean() / (2 * len(inlier_N)))


def where_defined(measure: Callable[[Floats, Floats], float], inlier_N: Floats, outlier_M: Floats) -> float:
    """The measure; NaN if a score is not finite, or if there are no inliers or no outliers."""
    defined = all(len(scores) and np.isfinite(scores).all() for scores in (inlier_N, outlier_M))
    return measure(inlier_N, outlier_M) if defined else math.nan
