"""The loss and the time of training: the families of their metrics, by name."""

from trainables.evaluation.metric_families.family import MetricFamily

FAMILIES = {
    "loss": MetricFamily(
        "Training loss, the mean over the batches of an epoch. Losses of different methods do not compare.",
        "minimize",
        "a real number, in the unit of the method's loss",
    ),
    "loss_part": MetricFamily(
        "A named part of the training loss before its weight, the mean over the batches of an epoch.",
        unit="a real number, in the unit of the method's loss",
    ),
    "seconds": MetricFamily(
        "The trial's share of the training seconds of its cohort: an objective of searches.",
        "minimize",
        "seconds",
        at_end=True,
    ),
}
