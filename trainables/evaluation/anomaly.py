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
    order_KN = np.argsort(score_KN, axis=1)
    sorted_KN = np.take_along_axis(score_KN, order_KN, axis=1)
    outlier_KN = np.take_along_axis(outlier_KN, order_KN, axis=1)
    up_to_KN = np.cumsum(~outlier_KN, axis=1)
    starts_KN, ends_KN = np.ones_like(outlier_KN), np.ones_like(outlier_KN)  # of runs of equal scores
    starts_KN[:, 1:] = ends_KN[:, :-1] = sorted_KN[:, 1:] != sorted_KN[:, :-1]
    inliers_K = up_to_KN[:, -1]
    outliers_K = outlier_KN.shape[1] - inliers_K
    below_KN = np.maximum.accumulate(np.where(starts_KN, up_to_KN - ~outlier_KN, 0), axis=1)
    not_above_KN = np.where(ends_KN, up_to_KN, inliers_K[:, None])[:, ::-1]
    not_above_KN = np.minimum.accumulate(not_above_KN, axis=1)[:, ::-1]
    wins_K = np.where(outlier_KN, below_KN + not_above_KN, 0).sum(axis=1) / 2
    defined_K = np.isfinite(score_KN).all(axis=1) & (inliers_K > 0) & (outliers_K > 0)
    return np.where(defined_K, wins_K / np.maximum(outliers_K, 1) / np.maximum(inliers_K, 1), math.nan)


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
