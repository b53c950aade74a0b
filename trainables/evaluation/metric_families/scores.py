"""Anomaly scores: the families of their metrics, by name."""

from collections.abc import Mapping

from trainables.evaluation.metric_families.family import MetricFamily

SCORES: Mapping[str, str] = {
    "joint": "the negative log likelihood of an image's embedding under its own posterior: the sum of `dir` and `rad`",
    "dir": "the part of `joint` that is the direction of the embedding",
    "rad": "the part of `joint` that is the length of the embedding",
    "variance": "the posterior's variance, summed over its dimensions",
    "entropy": "the entropy of the posterior",
}
"""Name of an anomaly score, which the names of its metrics contain -> its meaning. The higher, the less normal."""

FAMILIES = {
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
}
