"""The type of a family of metrics, and the families for generated images and for densities of pairs (x, y).

The families for representations and scores, and the lookup of all families, are in `meanings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SHARE = "a share in [0, 1]"
CORRECTED_SHARE = "a share of at most 1, corrected for chance: 0 for random clusters"


@dataclass(frozen=True)
class MetricFamily:
    """The properties that all metrics of a family share."""

    meaning: str
    """One or two sentences."""
    direction: Literal["maximize", "minimize"] | None = None
    """The better direction; None if neither is better, or if it depends on the question."""
    unit: str = SHARE
    """Unit and range."""
    at_end: bool = False
    """Whether the metric is reported only at the end of training instead of at every report."""
    may_be_undefined: bool = False
    """Whether the metric may be NaN. A NaN in any other metric means that the trial has diverged."""
    chosen_on_test: bool = False
    """Whether the metric is the best of several values, chosen on the images on which it is measured."""
    measured_on: Literal["test images", "generated images", "test pairs", "training data"] = "test images"
    """The data on which the metric is measured, except for validation metrics."""
    pattern: str = ""
    """Pattern of the family's metric names, if they do not begin with the family's name: `loss_kl`, `knn_3_z`,
    `probe_5`."""

    @property
    def share(self) -> bool:
        """Whether the metric is a share, so that it can be shown in percent."""
        return self.unit in (SHARE, CORRECTED_SHARE)


GENERATION: Mapping[str, MetricFamily] = {
    "reconstruction_mse": MetricFamily(
        "Mean squared error of reconstructed test images over images and pixels.",
        "minimize",
        "a number of at least 0, for pixels in [0, 1]",
        at_end=True,
    ),
    "frechet_digits": MetricFamily(
        "Fréchet distance between 500 generated images and the test images of digits, in the last hidden layer of a "
        "small digit classifier. It depends on the number of images, so it always uses 500 and is null for fewer. It "
        "is not comparable with FID.",
        "minimize",
        "a number of at least 0",
        at_end=True,
        may_be_undefined=True,
    ),
    "fid": MetricFamily(
        "Fréchet Inception distance of generated images from test images.",
        "minimize",
        "a number of at least 0",
        at_end=True,
    ),
    "sample_accuracy": MetricFamily(
        "Share of generated images that a classifier assigns to the class they were generated for.",
        "maximize",
        at_end=True,
        measured_on="generated images",
    ),
    "diversity": MetricFamily(
        "Pixel variance over generated images divided by pixel variance over test images: below 1 the samples are too "
        "similar.",
        unit="a number of at least 0",
        at_end=True,
    ),
    "density_volume": MetricFamily(
        "Mean log-determinant of the component covariances of a density of unit representations. A large volume does "
        "not imply good samples.",
        unit="a real number, for D dimensions at most -D log D for covariances whose trace is at most 1",
        at_end=True,
        measured_on="training data",
    ),
    "density_trace": MetricFamily(
        "Mean trace of the component covariances of a density of unit representations.",
        unit="a number of at least 0, at most 1 for covariances of unit vectors",
        at_end=True,
        measured_on="training data",
    ),
    "spread": MetricFamily(
        "Mean distance between the means of two components of a density of unit representations, over all pairs. Null "
        "for one component.",
        unit="a number of at least 0, for K means on the unit sphere at most sqrt(2 K / (K - 1))",
        at_end=True,
        may_be_undefined=True,
        measured_on="training data",
    ),
    "sample_precision": MetricFamily(
        "Share of samples of a density that are at least as close to some real latent as that latent's third nearest "
        "real neighbour. The real latents come from at most 2,000 test images.",
        "maximize",
        at_end=True,
        may_be_undefined=True,
    ),
    "sample_confident": MetricFamily(
        "Share of images decoded from samples of a density to which a classifier of real images assigns a class with a "
        "probability of at least density_confidence.",
        "maximize",
        at_end=True,
        measured_on="generated images",
    ),
    "sample_coverage": MetricFamily(
        "Entropy of the classes of the images that sample_confident counts, divided by the logarithm of the number of "
        "classes: 1 if all classes are equally frequent, 0 for a single class or no confident image.",
        "maximize",
        "a number in [0, 1]",
        at_end=True,
        measured_on="generated images",
    ),
}
PAIRS: Mapping[str, MetricFamily] = {
    "nll_excess": MetricFamily(
        "Negative log density of held-out targets y given x under the model, minus that under the true density.",
        "minimize",
        "a number in nats, 0 for the true density",
        measured_on="test pairs",
    ),
    "energy_distance": MetricFamily(
        "Energy distance between the model's density of y given x and the true density, averaged over a grid of x: "
        "twice the integral of the squared difference of their distribution functions.",
        "minimize",
        "a number of at least 0, in the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "energy_distance_point": MetricFamily(
        "The energy distance of a point prediction: the mean of the model's density, without its spread.",
        "minimize",
        "a number of at least 0, in the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "branches": MetricFamily(
        "Share of the true branches within 3 true standard deviations (0.15) of the mean of a component with a weight "
        "of at least 0.05, averaged over a grid of x.",
        "maximize",
        at_end=True,
        measured_on="test pairs",
    ),
    "sigma_mean": MetricFamily(
        "Weighted mean of the components' standard deviations over a grid of x. For the true noise it is 0.05.",
        unit="a number above 0, in the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "pi_error": MetricFamily(
        "Absolute difference between a component's weight and 1/3, averaged over components and a grid of x. Null "
        "unless the model has three components.",
        "minimize",
        "a number in [0, 2/3]",
        at_end=True,
        may_be_undefined=True,
        measured_on="test pairs",
    ),
    "variance_within": MetricFamily(
        "Weighted mean of the components' variances over a grid of x. For the true noise it is 0.0025.",
        unit="a number above 0, in the square of the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "variance_between": MetricFamily(
        "Weighted variance of the component means, averaged over a grid of x: how much the components disagree. It and "
        "`variance_within` sum to the variance of y.",
        unit="a number of at least 0, in the square of the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "mean_distance": MetricFamily(
        "Absolute difference between the predicted and the true mean of y, averaged over a grid of x.",
        "minimize",
        "a number of at least 0, in the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "sigma_deviation": MetricFamily(
        "Standard deviation, over a grid of x, of the predicted standard deviation of y: 0 if it is the same for every "
        "x.",
        unit="a number of at least 0, in the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "components_used": MetricFamily(
        "Number of components with a weight of at least 0.05 somewhere on a grid of x.",
        unit="a number of at least 1",
        at_end=True,
        measured_on="test pairs",
    ),
    "coverage": MetricFamily(
        "Share of held-out targets y in the central 90 % interval of their predicted density: 0.9 if calibrated.",
        at_end=True,
        measured_on="test pairs",
    ),
    "calibration_error": MetricFamily(
        "Largest difference, over all quantile levels, between the share of held-out targets below the predicted "
        "quantile and the level (Kolmogorov-Smirnov).",
        "minimize",
        "a number in [0, 1]",
        at_end=True,
        measured_on="test pairs",
    ),
}
