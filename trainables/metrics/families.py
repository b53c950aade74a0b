"""What a family of metrics is, and those of densities and of what is generated: images, and pairs (x, y).

The families of representations and scores, and the lookup of all, are in `meanings`.
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
    """Which direction is better; None if neither is, or if it depends on the question."""
    unit: str = SHARE
    """Unit and range."""
    at_end: bool = False
    """Whether it is reported at the end of training only, not at every report."""
    may_be_undefined: bool = False
    """Whether it may be NaN. A trial with a NaN in any other metric has diverged."""
    chosen_on_test: bool = False
    """Whether it is the best of several values, chosen on the very images that it is measured on."""
    measured_on: Literal["test images", "generated images", "test pairs", "training data"] = "test images"
    """What it is a number of, unless it is one of validation images."""
    pattern: str = ""
    """Pattern of the names of its metrics, where they are named otherwise than it: `loss_kl`, `knn_3_z`, `probe_5`."""

    @property
    def share(self) -> bool:
        """Whether it is a share, so that it can be shown in percent."""
        return self.unit in (SHARE, CORRECTED_SHARE)


GENERATION: Mapping[str, MetricFamily] = {
    "reconstruction_mse": MetricFamily(
        "Squared error of reconstructed test images, the mean over images and pixels.",
        "minimize",
        "a number of at least 0, for pixels in [0, 1]",
        at_end=True,
    ),
    "frechet_digits": MetricFamily(
        "Fréchet distance of 500 generated images from the test images of digits, in the last hidden layer of a small "
        "classifier of digits. It depends on the number of images, so it is always of 500, and null for fewer. It does "
        "not compare with FID.",
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
        "Variance of the pixels over generated images, divided by that over test images: below 1 the samples are "
        "too much alike.",
        unit="a number of at least 0",
        at_end=True,
    ),
    "density_volume": MetricFamily(
        "Log-determinant of the covariance of a component of a density of unit representations, the mean over "
        "components. A large volume is no sign of good samples.",
        unit="a real number, for D dimensions at most -D log D for covariances whose trace is at most 1",
        at_end=True,
        measured_on="training data",
    ),
    "density_trace": MetricFamily(
        "Trace of the covariance of a component of a density of unit representations, the mean over components.",
        unit="a number of at least 0, at most 1 for covariances of unit vectors",
        at_end=True,
        measured_on="training data",
    ),
    "spread": MetricFamily(
        "Distance between the means of two components of a density of unit representations, the mean over pairs. "
        "Null for one component.",
        unit="a number of at least 0, for K means on the unit sphere at most sqrt(2 K / (K - 1))",
        at_end=True,
        may_be_undefined=True,
        measured_on="training data",
    ),
    "sample_precision": MetricFamily(
        "Share of samples of a density that are not further from some real latent than its third nearest other real "
        "latent is; real latents are those of at most 2,000 test images.",
        "maximize",
        at_end=True,
        may_be_undefined=True,
    ),
    "sample_confident": MetricFamily(
        "Share of images decoded from samples of a density for which a classifier of real images gives a class at "
        "least the probability density_confidence.",
        "maximize",
        at_end=True,
        measured_on="generated images",
    ),
    "sample_coverage": MetricFamily(
        "Entropy of the classes of the images that sample_confident counts, over the logarithm of the number of "
        "classes: 1 if all classes are equally frequent, 0 for a single one or no such image.",
        "maximize",
        "a number in [0, 1]",
        at_end=True,
        measured_on="generated images",
    ),
}
PAIRS: Mapping[str, MetricFamily] = {
    "nll_excess": MetricFamily(
        "Negative log density that the model gives held-out targets y given x, minus that of the true density.",
        "minimize",
        "a number in nats, 0 for the true density",
        measured_on="test pairs",
    ),
    "energy_distance": MetricFamily(
        "Energy distance of the model's density of y given x from the true one, the mean over a grid of x: twice "
        "the integral of the squared difference of their distribution functions.",
        "minimize",
        "a number of at least 0, in the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "energy_distance_point": MetricFamily(
        "The same energy distance of a model that predicts the mean of its density alone.",
        "minimize",
        "a number of at least 0, in the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "branches": MetricFamily(
        "Share of the true branches with a mean of a component, whose weight is at least 0.05, within 3 true "
        "standard deviations (0.15), the mean over a grid of x.",
        "maximize",
        at_end=True,
        measured_on="test pairs",
    ),
    "sigma_mean": MetricFamily(
        "Standard deviation of the components, their weighted mean over a grid of x. That of the noise is 0.05.",
        unit="a number above 0, in the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "pi_error": MetricFamily(
        "Absolute difference of a component's weight from 1/3, the mean over components and a grid of x. Null for "
        "a model without three components.",
        "minimize",
        "a number in [0, 2/3]",
        at_end=True,
        may_be_undefined=True,
        measured_on="test pairs",
    ),
    "variance_within": MetricFamily(
        "Variance of y within the components of its density, their weighted mean over a grid of x. That of the noise "
        "is 0.0025.",
        unit="a number above 0, in the square of the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "variance_between": MetricFamily(
        "Variance of the means of the components, weighted, the mean over a grid of x: how much they disagree. With "
        "`variance_within` it adds up to the variance of y.",
        unit="a number of at least 0, in the square of the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "mean_distance": MetricFamily(
        "Absolute difference of the predicted mean of y from the true one, the mean over a grid of x.",
        "minimize",
        "a number of at least 0, in the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "sigma_deviation": MetricFamily(
        "Standard deviation over a grid of x of the predicted standard deviation of y: 0 where that is the same for "
        "every x.",
        unit="a number of at least 0, in the unit of y",
        at_end=True,
        measured_on="test pairs",
    ),
    "components_used": MetricFamily(
        "Number of components whose weight is at least 0.05 somewhere on a grid of x.",
        unit="a number of at least 1",
        at_end=True,
        measured_on="test pairs",
    ),
    "coverage": MetricFamily(
        "Share of held-out targets y in the central 90 % interval of their predicted density: 0.9 if it is calibrated.",
        at_end=True,
        measured_on="test pairs",
    ),
    "calibration_error": MetricFamily(
        "Largest difference, over all levels, of the share of held-out targets below a predicted quantile from the "
        "level of the quantile (Kolmogorov and Smirnov).",
        "minimize",
        "a number in [0, 1]",
        at_end=True,
        measured_on="test pairs",
    ),
}
