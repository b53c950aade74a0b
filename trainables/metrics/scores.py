"""How well anomaly scores separate one class from the others (AUROC), and test images from outlier sets (AUROC, AUPR
and FPR95).

Scores are higher for more anomalous images; the outlier is the positive class, except in FPR95.
Shapes: K members, N evaluated images (inliers), M outliers.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from trainables.contract import Capability, ImageMethod
from trainables.image_trial import ImageTrial
from trainables.learners.members import StackedMembers
from trainables.metrics.detection import detection, detection_names
from trainables.metrics.evaluator import EvaluationSet, Floats, KeptResults, ScoreEvaluator
from trainables.metrics.meanings import BEST_ON_TEST, CHOSEN, VALIDATION
from trainables.metrics.roc import auroc_margin, mann_whitney


def one_class_metrics(
    scores: Mapping[str, Floats], outlier_KN: NDArray[np.bool_], means: Mapping[str, str]
) -> dict[str, Floats]:
    """Compute metrics `[K]` by name from scores `[K, N]`. `means` maps the name of a metric to the score that it
    averages. A metric is NaN for a member with a score that is not finite. Without outliers the AUROC is left out."""
    known = scores if outlier_KN.any() else {}
    metrics = {f"auroc_{name}": auroc(values_KN, outlier_KN) for name, values_KN in known.items()}
    return metrics | {metric: scores[name].mean(axis=1) for metric, name in means.items()}


def auroc(score_KN: Floats, outlier_KN: NDArray[np.bool_]) -> Floats:
    """Area under the ROC curve `[K]`, with outliers as positives: the probability that an outlier scores higher than an
    inlier. Ties count one half (the Mann-Whitney statistic). NaN if a score is not finite, or without outliers or
    inliers."""
    order_KN = np.argsort(score_KN, axis=1)
    sorted_KN = np.take_along_axis(score_KN, order_KN, axis=1)
    outlier_KN = np.take_along_axis(outlier_KN, order_KN, axis=1)
    up_to_KN = np.cumsum(~outlier_KN, axis=1)
    starts_KN, ends_KN = np.ones_like(outlier_KN), np.ones_like(outlier_KN)  # for runs of equal scores
    starts_KN[:, 1:] = ends_KN[:, :-1] = sorted_KN[:, 1:] != sorted_KN[:, :-1]
    inliers_K = up_to_KN[:, -1]
    outliers_K = outlier_KN.shape[1] - inliers_K
    below_KN = np.maximum.accumulate(np.where(starts_KN, up_to_KN - ~outlier_KN, 0), axis=1)
    not_above_KN = np.where(ends_KN, up_to_KN, inliers_K[:, None])[:, ::-1]
    not_above_KN = np.minimum.accumulate(not_above_KN, axis=1)[:, ::-1]
    wins_K = np.where(outlier_KN, below_KN + not_above_KN, 0).sum(axis=1) / 2
    defined_K = np.isfinite(score_KN).all(axis=1) & (inliers_K > 0) & (outliers_K > 0)
    return np.where(defined_K, wins_K / np.maximum(outliers_K, 1) / np.maximum(inliers_K, 1), math.nan)


def where_defined(measure: Callable[[Floats, Floats], float], inlier_N: Floats, outlier_M: Floats) -> float:
    """The measure; NaN if a score is not finite, or without inliers or outliers."""
    defined = all(len(scores) and np.isfinite(scores).all() for scores in (inlier_N, outlier_M))
    return measure(inlier_N, outlier_M) if defined else math.nan


def outlier_metrics(inlier_scores: Mapping[str, Floats], outlier_scores: Mapping[str, Floats]) -> dict[str, Floats]:
    """Compute `auroc_S`, `aupr_S` and `fpr95_S`, shares `[K]` in [0, 1], for each score S of inliers, `[K, N]`, and
    outliers, `[K, M]`. NaN for a member with a score that is not finite, or without inliers or outliers. Raises
    ValueError unless both have the same scores and the same number of members."""
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
        for metric, measure in OUTLIER_METRICS.items()
    }


def average_precision(inlier_N: Floats, outlier_M: Floats) -> float:
    """Area under the precision-recall curve, with outliers as positives and without interpolation. This is the mean
    over the outliers of the precision at their thresholds; equal scores share one threshold."""
    flagged_outliers_M = len(outlier_M) - np.searchsorted(np.sort(outlier_M), outlier_M, side="left")
    flagged_inliers_M = len(inlier_N) - np.searchsorted(np.sort(inlier_N), outlier_M, side="left")
    return float((flagged_outliers_M / (flagged_outliers_M + flagged_inliers_M)).mean())


def fpr95(inlier_N: Floats, outlier_M: Floats) -> float:
    """Share of outliers that are accepted as inliers when at least 95 % of the inliers are accepted; lower is better.

    As usual in this literature, the *inlier* is the positive class here: true positives are accepted inliers. The
    threshold is the lowest score that accepts enough inliers. All images at the threshold are accepted, including
    outliers, so the result is 1 if all scores are equal.
    """
    accepted = -(-95 * len(inlier_N) // 100)
    threshold = np.partition(inlier_N, accepted - 1)[accepted - 1]
    return float((outlier_M <= threshold).mean())


OUTLIER_METRICS: Mapping[str, Callable[[Floats, Floats], float]] = {
    "auroc": mann_whitney,
    "aupr": average_precision,
    "fpr95": fpr95,
}


HELD_OUT = "held_out/"
"""Prefix of the names of kept arrays `[N]`: the scores of held-out normal images, by name."""


def kept_results(
    names: Sequence[str], scores: Mapping[str, Floats], outlier_KN: NDArray[np.bool_], metrics: Mapping[str, Floats]
) -> list[KeptResults]:
    """What is kept of the anomaly scores of members trained on one class: the names of the scores (the first is the
    default), the name and metric of the best score on validation images, and the scores of held-out normal images.

    `scores` `[K, N]` are the scores of validation images by name, if there are any; `metrics` `[K]` are the metrics of
    the members. No score is chosen unless the validation images contain outliers."""
    criteria = {name: metric for name in names if (metric := f"{VALIDATION}auroc_{name}") in metrics}
    results = []
    for member, outlier_N in enumerate(outlier_KN):
        chosen = max(criteria, key=lambda name: metrics[criteria[name]][member], default=None)
        arrays = {
            f"{HELD_OUT}{name}": torch.from_numpy(values_KN[member, ~outlier_N]).float()
            for name, values_KN in scores.items()
        }
        inputs = {"scores": [*names], "score": chosen, "score_chosen_by": criteria[chosen] if chosen else None}
        results.append(KeptResults(inputs, arrays))
    return results


def margins(scores: Mapping[str, Floats], outlier_KN: NDArray[np.bool_], kept: Sequence[KeptResults]) -> Floats:
    """Half the 95 % interval `[K]` of the AUROC over these images, for each member's chosen score or else its first
    score."""
    chosen = [result.inputs["score"] or result.inputs["scores"][0] for result in kept]
    values = [scores[name][member] for member, name in enumerate(chosen)]
    pairs = zip(values, outlier_KN, strict=True)
    return np.array([auroc_margin(own_N[~outlier_N], own_N[outlier_N]) for own_N, outlier_N in pairs])


def detection_metrics(
    rates: Sequence[float],
    scores: Mapping[str, Floats],
    labels_N: NDArray[np.int64],
    outlier_KN: NDArray[np.bool_],
    classes: int,
    kept: Sequence[KeptResults],
) -> dict[str, Floats]:
    """What each member flags of the test images at these false-alarm rates, by its chosen score or its first, `[K]` by
    the names of `detection_names`. `scores` `[K, N]` are those of the test images, by name."""
    members = []
    for member, result in enumerate(kept):
        name = result.inputs["score"] or result.inputs["scores"][0]
        held_out = result.arrays.get(f"{HELD_OUT}{name}", torch.empty(0)).double().numpy()
        members.append(detection(rates, scores[name][member], held_out, labels_N, outlier_KN[member], classes))
    return {metric: np.array([own[metric] for own in members]) for metric in detection_names(rates, classes)}


def choice_metrics(metrics: Mapping[str, Floats], scores: Sequence[str], validation: bool) -> dict[str, Floats]:
    """AUROC `[K]` of the best of these scores, judged by the AUROC values in `metrics`: `BEST_ON_TEST` and, with
    `validation` images, `CHOSEN`. `CHOSEN` takes the first score if the validation images contain no outliers."""
    known = {
        prefix: np.array([metrics[name] for score in scores if (name := f"{prefix}auroc_{score}") in metrics])
        for prefix in ("", VALIDATION)
    }
    criteria = {CHOSEN: known[VALIDATION], BEST_ON_TEST: known[""]}
    if not validation:
        del criteria[CHOSEN]
    found = {}
    for prefix, auroc_SK in known.items():
        for name, criterion_SK in criteria.items():
            if len(auroc_SK):
                members = np.arange(auroc_SK.shape[1])
                best_K = np.nan_to_num(criterion_SK, nan=-1).argmax(0) if len(criterion_SK) else np.zeros_like(members)
                found[f"{prefix}{name}"] = auroc_SK[best_K, members]
    return found


class AnomalyDetection(ScoreEvaluator):
    """How well members trained on one class separate it from the others."""

    one_class = True

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return (*(f"auroc_{name}" for name in method.scores), *method.score_means)

    def metrics(
        self, stacks: Sequence[StackedMembers], members: Sequence[int], tested: EvaluationSet
    ) -> dict[str, Floats]:
        method = stacks[0].method
        assert isinstance(method, ImageMethod)
        scores = self.images.scores(stacks, tested.images)
        self.keep_scores(tested, scores)
        return one_class_metrics(scores, tested.outlier_KN[list(members)], method.score_means)


class OutlierDetection(ScoreEvaluator):
    """How well members trained on all classes separate each outlier set from the evaluated images."""

    @classmethod
    def needs(cls, config: ImageTrial) -> Mapping[Capability, str]:
        return {"score": "outliers"} if config.evaluation.outliers else {}

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return [
            f"{metric}_{score}_{outliers}"
            for outliers in config.evaluation.outlier_sets
            for score in method.scores
            for metric in OUTLIER_METRICS
        ]

    def metrics(
        self, stacks: Sequence[StackedMembers], members: Sequence[int], tested: EvaluationSet
    ) -> dict[str, Floats]:
        inlier_scores = self.images.scores(stacks, tested.images)
        metrics: dict[str, Floats] = {}
        for outlier_set, images in tested.outliers.items():
            values = outlier_metrics(inlier_scores, self.images.scores(stacks, images))
            metrics |= {f"{name}_{outlier_set}": value for name, value in values.items()}
        return metrics
