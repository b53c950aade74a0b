"""Anomaly scores: the families of their metrics, by name."""

from trainables.evaluation.metric_families.family import MetricFamily

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
