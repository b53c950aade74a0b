"""Out-of-distribution detection: scores of two sets of images to AUROC, AUPR and FPR95.

Shapes: K members, N images of the distribution trained on (inliers), M of another (outliers).
Scores are higher for more anomalous; the outlier is the positive class, except in FPR95.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from trainables.contract import Method
from trainables.evaluation.anomaly import Floats, mann_whitney


def metric_names(method: type[Method]) -> tuple[str, ...]:
    """What `evaluate` returns for the scores of a method."""
    return tuple(f"{metric}_{score}" for score in method.scores for metric in METRICS)


def evaluate(inlier_scores: Mapping[str, Floats], outlier_scores: Mapping[str, Floats]) -> dict[str, Floats]:
    """`auroc_S`, `aupr_S` and `fpr95_S`, shares `[K]` in [0, 1], for each score S, `[K, N]` and `[K, M]`.

    NaN for a member with a score that is not finite, or with no inlier or no outlier. ValueError unless both have the
    same scores of the same members.
    """
    if set(inlier_scores) != set(outlier_scores):
        raise ValueError(
            f"inliers and outliers must have the same scores, but got {sorted(inlier_scores)} and "
            f"{sorted(outlier_scores)}"
        )
    return {
        f"{metric}_{score}": np.array(
            [
                measure(inlier_N, outlier_M) if _defined(inlier_N, outlier_M) else math.nan
                for inlier_N, outlier_M in zip(inlier_KN, outlier_scores[score], strict=True)
            ]
        )
        for score, inlier_KN in inlier_scores.items()
        for metric, measure in METRICS.items()
    }


def average_precision(inlier_N: Floats, outlier_M: Floats) -> float:
    """Area under the precision-recall curve as a step function, outliers being positive, without interpolation.

    That is the precision at the threshold of each outlier, averaged; equal scores share one threshold.
    """
    flagged_outliers_M = len(outlier_M) - np.searchsorted(np.sort(outlier_M), outlier_M, side="left")
    flagged_inliers_M = len(inlier_N) - np.searchsorted(np.sort(inlier_N), outlier_M, side="left")
    return float((flagged_outliers_M / (flagged_outliers_M + flagged_inliers_M)).mean())


def fpr95(inlier_N: Floats, outlier_M: Floats) -> float:
    """Share of outliers taken for inliers when at least 95 % of the inliers are accepted, lower being better.

    As is usual in this literature the *inlier* is the positive class here: the true positives are accepted inliers. The
    threshold is the lowest score that accepts enough of them, and every image at the threshold is accepted, outliers
    too: where all scores are equal, this is 1.
    """
    accepted = -(-95 * len(inlier_N) // 100)
    threshold = np.partition(inlier_N, accepted - 1)[accepted - 1]
    return float((outlier_M <= threshold).mean())


METRICS: Mapping[str, Callable[[Floats, Floats], float]] = {
    "auroc": mann_whitney,
    "aupr": average_precision,
    "fpr95": fpr95,
}


def _defined(*scores: Floats) -> bool:
    return all(len(score) > 0 and bool(np.isfinite(score).all()) for score in scores)
