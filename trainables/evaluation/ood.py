"""Out-of-distribution detection: AUROC, AUPR and FPR95 of anomaly scores of two sets of images.

Shapes: K members, N images of the distribution trained on (inliers), M of another (outliers).
Scores are higher for more anomalous; the outlier is the positive class, except in FPR95.
"""

from collections.abc import Callable, Mapping

import numpy as np

from trainables.contract import ImageMethod
from trainables.evaluation.anomaly import Floats, mann_whitney, where_defined


def metric_names(method: type[ImageMethod]) -> tuple[str, ...]:
    """Names of the metrics that `evaluate` returns for the scores of a method."""
    return tuple(f"{metric}_{score}" for score in method.scores for metric in METRICS)


def evaluate(inlier_scores: Mapping[str, Floats], outlier_scores: Mapping[str, Floats]) -> dict[str, Floats]:
    """Compute `auroc_S`, `aupr_S` and `fpr95_S`, shares `[K]` in [0, 1], for each score S of inliers, `[K, N]`, and
    outliers, `[K, M]`. NaN for a member with a score that is not finite, or if there are no inliers or no outliers.
    Raises ValueError unless both have the same scores and the same number of members."""
    if set(inlier_scores) != set(outlier_scores):
        raise ValueError(
            f"inliers and outliers must have the same scores, but got {sorted(inlier_scores)} and "
            f"{sorted(outlier_scores)}"
        )
    return {
        f"{metric}_{score}": np.array(
            [
                where_defined(measure, inlier_N, outlier_M)
                for inlier_N, outlier_M in zip(inlier_KN, outlier_scores[score], strict=True)
            ]
        )
        for score, inlier_KN in inlier_scores.items()
        for metric, measure in METRICS.items()
    }


def average_precision(inlier_N: Floats, outlier_M: Floats) -> float:
    """Area under the precision-recall curve, with outliers as positives and without interpolation. This is the mean
    over the outliers of the precision at their thresholds; equal scores share one threshold."""
    flagged_outliers_M = len(outlier_M) - np.searchsorted(np.sort(outlier_M), outlier_M, side="left")
    flagged_inliers_M = len(inlier_N) - np.searchsorted(np.sort(inlier_N), outlier_M, side="left")
    return float((flagged_outliers_M / (flagged_outliers_M + flagged_inliers_M)).mean())


def fpr95(inlier_N: Floats, outlier_M: Floats) -> float:
    """Share of outliers that are accepted as inliers when at least 95 % of the inliers are accepted; lower is better.

    As is usual in this literature, the *inlier* is the positive class here: true positives are accepted inliers. The
    threshold is the lowest score that accepts enough inliers. All images at the threshold are accepted, including
    outliers: if all scores are equal, the result is 1.
    """
    accepted = -(-95 * len(inlier_N) // 100)
    threshold = np.partition(inlier_N, accepted - 1)[accepted - 1]
    return float((outlier_M <= threshold).mean())


METRICS: Mapping[str, Callable[[Floats, Floats], float]] = {
    "auroc": mann_whitney,
    "aupr": average_precision,
    "fpr95": fpr95,
}
