"""Predicted densities of pairs (x, y): the families of their metrics, by name."""

from trainables.evaluation.metric_families.family import MetricFamily

FAMILIES = {
    "nll_excess": MetricFamily(
        "Negative log density that the model gives held-out targets y given x, minus that of the true density.",
        "minimize",
        "a number in nats, 0 for the true density",
    ),
    "energy_distance": MetricFamily(
        "Energy distance of the model's density of y given x from the true one, the mean over a grid of x: twice "
        "the integral of the squared difference of their distribution functions.",
        "minimize",
        "a number of at least 0, in the unit of y",
        at_end=True,
    ),
    "energy_distance_point": MetricFamily(
        "The same energy distance of a model that predicts the mean of its density alone.",
        "minimize",
        "a number of at least 0, in the unit of y",
        at_end=True,
    ),
    "branches": MetricFamily(
        "Share of the true branches with a mean of a component, whose weight is at least 0.05, within 3 true "
        "standard deviations (0.15), the mean over a grid of x.",
        "maximize",
        at_end=True,
    ),
    "sigma_mean": MetricFamily(
        "Standard deviation of the components, their weighted mean over a grid of x. That of the noise is 0.05.",
        unit="a number above 0, in the unit of y",
        at_end=True,
    ),
    "pi_error": MetricFamily(
        "Absolute difference of a component's weight from 1/3, the mean over components and a grid of x. Null for "
        "a model without three components.",
        "minimize",
        "a number in [0, 2/3]",
        at_end=True,
        may_be_undefined=True,
    ),
    "variance_within": MetricFamily(
        "Variance of y within the components of its density, their weighted mean over a grid of x. That of the noise "
        "is 0.0025.",
        unit="a number above 0, in the square of the unit of y",
        at_end=True,
    ),
    "variance_between": MetricFamily(
        "Variance of the means of the components, weighted, the mean over a grid of x: how much they disagree. With "
        "`variance_within` it adds up to the variance of y.",
        unit="a number of at least 0, in the square of the unit of y",
        at_end=True,
    ),
}
