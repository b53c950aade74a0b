"""One-class anomaly detection: scores to AUROC.

Shapes: K members, N test images.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from trainables.contract import Method

Floats = NDArray[np.float64]


def metric_names(method: type[Method]) -> tuple[str, ...]:
    """What `evaluate` returns for a method: `auroc_SCORE` for each score, and its means."""
    return (*(f"auroc_{name}" for name in method.scores), *method.score_means)


def evaluate(
    scores: Mapping[str, Floats], outlier_KN: NDArray[np.bool_], means: Mapping[str, str]
) -> dict[str, Floats]:
    """Metrics `[K]` by name from scores `[K, N]`; `means` maps a metric to the score whose mean it is.

    NaN for a member with a score that is not finite.
    """
    metrics = {f"auroc_{name}": auroc(values_KN, outlier_KN) for name, values_KN in scores.items()}
    return metrics | {metric: scores[name].mean(axis=1) for metric, name in means.items()}


def auroc(score_KN: Floats, outlier_KN: NDArray[np.bool_]) -> Floats:
    """Area under the ROC curve `[K]`, the outlier being the positive label; ties count one half.

    It is the Mann-Whitney statistic, taken over all members at once. NaN where a score is not finite or where there
    are no outliers, or nothing else.
    """
    ranks_KN = rankdata(score_KN, axis=1)
    positives_K = outlier_KN.sum(axis=1)
    negatives_K = outlier_KN.shape[1] - positives_K
    above_K = (ranks_KN * outlier_KN).sum(axis=1) - positives_K * (positives_K + 1) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.isfinite(score_KN).all(axis=1), above_K / (positives_K * negatives_K), np.nan)
