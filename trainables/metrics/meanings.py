"""The meaning of each metric: its direction, its range and when it is reported.

Evaluators, sweep files and `--describe` share this definition. It does not need PyTorch: the mathematics of a metric is
in another file of this folder.

The name of a metric begins with its family: `knn_z` is the metric of the family `knn` on the vector z.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

VALIDATION = "val_"
"""Prefix of the names of metrics on validation images."""
SHARE = "a share in [0, 1]"
CORRECTED_SHARE = "a share of at most 1, corrected for chance: 0 for random clusters"

SCORES: Mapping[str, str] = {
    "joint": "the negative log likelihood of an image's embedding under its own posterior: the sum of `dir` and `rad`",
    "dir": "the part of `joint` that is the direction of the embedding",
    "rad": "the part of `joint` that is the length of the embedding",
    "variance": "the posterior's variance, summed over its dimensions",
    "entropy": "the entropy of the posterior",
}
"""Name of an anomaly score, which the names of its metrics contain -> its meaning. The higher, the less normal."""
SCORED = ("auroc", "aupr", "fpr95")
"""Families of metrics of anomaly scores."""


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
    measured_on: Literal["test images", "test pairs", "training data"] = "test images"
    """What it is a number of, unless it is one of validation images."""
    pattern: str = ""
    """Pattern of the names of its metrics, where they are named otherwise than it: `loss_kl`, `knn_3_z`, `probe_5`."""

    @property
    def share(self) -> bool:
        """Whether it is a share, so that it can be shown in percent."""
        return self.unit in (SHARE, CORRECTED_SHARE)


_TRAINING = {
    "loss": MetricFamily(
        "Training loss, the mean over the batches of an epoch. Losses of different methods do not compare.",
        "minimize",
        "a real number, in the unit of the method's loss",
        measured_on="training data",
    ),
    "loss_part": MetricFamily(
        "A named part of the training loss before its weight, the mean over the batches of an epoch.",
        unit="a real number, in the unit of the method's loss",
        measured_on="training data",
        pattern=r"loss_.*",
    ),
    "seconds": MetricFamily(
        "The trial's share of the training seconds of its cohort: an objective of searches.",
        "minimize",
        "seconds",
        at_end=True,
        measured_on="training data",
    ),
}
_CLASSIFIERS_AND_CLUSTERS = {
    "knn": MetricFamily(
        "Accuracy on test images of a vote among the `knn` training images nearest by cosine.", "maximize"
    ),
    "knn_weighted": MetricFamily(
        "Accuracy on test images of the same neighbours, each with the weight exp(cosine / knn_temperature).",
        "maximize",
    ),
    "probe": MetricFamily(
        "Accuracy on test images of a linear classifier trained on the frozen representation. With `probe_curve` "
        "it is reported at every report.",
        "maximize",
        at_end=True,
    ),
    "probe_top5": MetricFamily(
        "How often the true class is among the linear classifier's five first guesses, of more than five classes.",
        "maximize",
        at_end=True,
    ),
    "knn_best": MetricFamily(
        "The largest of the accuracies knn_1, knn_2 and so on. It is chosen on the test images, so it is too high.",
        "maximize",
        at_end=True,
        chosen_on_test=True,
    ),
    "knn_k": MetricFamily(
        "For each number k, as in knn_1 or knn_15: accuracy on test images of a vote among the k training images "
        "nearest by Euclidean distance.",
        "maximize",
        at_end=True,
        pattern=r"knn_\d+(_.*)?",
    ),
    "probe_linear": MetricFamily(
        "Accuracy on test images of linear classifiers trained by Adam on the frozen representation, the mean over "
        "three that start from different weights.",
        "maximize",
        at_end=True,
    ),
    "probe_linear_best": MetricFamily(
        "The accuracy of the classifiers of probe_linear, each after its best epoch, which is chosen on the test "
        "images.",
        "maximize",
        at_end=True,
        chosen_on_test=True,
    ),
    "probe_mlp": MetricFamily(
        "Accuracy on test images of classifiers with one hidden layer, trained by Adam on the frozen representation, "
        "the mean over three that start from different weights.",
        "maximize",
        at_end=True,
    ),
    "probe_mlp_best": MetricFamily(
        "The accuracy of the classifiers of probe_mlp, each after its best epoch, which is chosen on the test images.",
        "maximize",
        at_end=True,
        chosen_on_test=True,
    ),
    "probe_few": MetricFamily(
        "For each number of labels, as in probe_5: accuracy on test images of linear classifiers of z trained on "
        "so many labelled images of each class, the mean over draws of these. Features are standardised over all "
        "training images. With `probe_curve` it is reported at every report.",
        "maximize",
        at_end=True,
        pattern=r"probe_\d+",
    ),
    "style": MetricFamily(
        "Accuracy on test images of classifiers with one hidden layer, trained on the frozen representation to "
        "predict an attribute of style, which the class does not reveal; the mean over three that start from different "
        "weights.",
        "maximize",
        at_end=True,
    ),
    "gmm_accuracy": MetricFamily(
        "Share of test images whose component in a Gaussian mixture is matched with their class. Null where the "
        "representation has collapsed.",
        "maximize",
        at_end=True,
        may_be_undefined=True,
    ),
    "nmi": MetricFamily(
        "Normalised mutual information of the components of a Gaussian mixture and the classes of test images. "
        "Null where the representation has collapsed.",
        "maximize",
        at_end=True,
        may_be_undefined=True,
    ),
    "ari": MetricFamily(
        "Adjusted Rand index of the components of a Gaussian mixture and the classes of test images. Null where "
        "the representation has collapsed.",
        "maximize",
        CORRECTED_SHARE,
        at_end=True,
        may_be_undefined=True,
    ),
    "gmm_accuracy_batch64": MetricFamily(
        "Mean of gmm_accuracy over batches of 64 test images, where random components reach 0.29 for ten classes.",
        "maximize",
        at_end=True,
        may_be_undefined=True,
    ),
    "nmi_batch64": MetricFamily(
        "Mean of nmi over batches of 64 test images, where random components reach 0.31 for ten classes.",
        "maximize",
        at_end=True,
        may_be_undefined=True,
    ),
    "ari_batch64": MetricFamily(
        "Mean of ari over batches of 64 test images.",
        "maximize",
        CORRECTED_SHARE,
        at_end=True,
        may_be_undefined=True,
    ),
}
_EMBEDDINGS_AND_POSTERIORS = {
    "effective_rank": MetricFamily(
        "Effective number of dimensions of the embeddings of test images: exp of the entropy of the eigenvalues of "
        "their covariance, over the sum of these. Like volume and trace it is of unit vectors, without "
        "augmentation, about their mean and with divisor N. The key `geometry` says whether these are "
        "representations or projections.",
        unit="a number of at least 1 and at most the dimensions D",
    ),
    "cosine": MetricFamily(
        "Cosine of the embeddings of two augmented views of a test image, the mean over images.",
        unit="a number in [-1, 1]",
    ),
    "volume": MetricFamily(
        "Log-determinant of the covariance of the unit embeddings of test images, after a share of 1e-6 of the "
        "isotropic covariance I/D is mixed in.",
        unit="a real number of at most -D log D, which isotropic embeddings of D dimensions have",
    ),
    "trace": MetricFamily(
        "Trace of the covariance of the unit embeddings of test images: 1 minus the squared length of their mean.",
        unit="a number in [0, 1]",
    ),
    "norm": MetricFamily(
        "Length of the embeddings of test images before they are scaled to unit length, the mean over images.",
        unit="a number of at least 0",
    ),
    "ess": MetricFamily(
        "Effective sample size of the pool of particles from which the next bank is drawn, 1 over the sum of the "
        "squared weights; the mean over the batches of an epoch. Copies of a particle count as different, see "
        "`bank_distinct`. Null for a queue, whose keys have no weights.",
        unit="a number of at least 1 and at most the particles of the bank plus the images of a batch",
    ),
    "bank_distinct": MetricFamily(
        "Share of different particles in a bank: how many it has without copies, over its size; the mean over the "
        "batches of an epoch. Null for a queue, whose keys are all different.",
    ),
    "bank_age": MetricFamily(
        "Age of the particles in a bank, the mean over particles and the batches of an epoch. Null for a queue.",
        unit="a number of at least 0, in steps since the batch that a particle comes from",
    ),
    "radial_scale": MetricFamily(
        "Learned scale of the difference of lengths in VJE's radial likelihood, the mean over the batches of an epoch.",
        unit="a number above 0, in the unit of the lengths; 1 at the start",
        measured_on="training data",
    ),
    "posterior_entropy": MetricFamily(
        "Entropy of the posterior, the mean over test images.", unit="a real number, in nats"
    ),
    "posterior_variance": MetricFamily(
        "Variance of the posterior summed over dimensions, the mean over test images.", unit="a number above 0"
    ),
    "var_mean": MetricFamily(
        "Variance of the posterior, the mean over dimensions and test images: near 0 it has collapsed, 1 is the "
        "prior's.",
        unit="a number above 0",
    ),
    "var_cv": MetricFamily(
        "Standard deviation over dimensions of the posterior's variance, divided by var_mean: 0 is isotropic. Null "
        "where var_mean is below 0.01.",
        unit="a number of at least 0",
        may_be_undefined=True,
    ),
}
_GENERATION = {
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
    ),
    "density_trace": MetricFamily(
        "Trace of the covariance of a component of a density of unit representations, the mean over components.",
        unit="a number of at least 0, at most 1 for covariances of unit vectors",
        at_end=True,
    ),
    "spread": MetricFamily(
        "Distance between the means of two components of a density of unit representations, the mean over pairs. "
        "Null for one component.",
        unit="a number of at least 0, for K means on the unit sphere at most sqrt(2 K / (K - 1))",
        at_end=True,
        may_be_undefined=True,
    ),
    "sample_confident": MetricFamily(
        "Share of images decoded from samples of a density for which a classifier of real images gives a class at "
        "least the probability density_confidence.",
        "maximize",
        at_end=True,
    ),
    "sample_coverage": MetricFamily(
        "Entropy of the classes of the images that sample_confident counts, over the logarithm of the number of "
        "classes: 1 if all classes are equally frequent, 0 for a single one or no such image.",
        "maximize",
        "a number in [0, 1]",
        at_end=True,
    ),
}
_SCORES = {
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
_PAIRS = {
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
}
FAMILIES: Mapping[str, MetricFamily] = MappingProxyType(
    _TRAINING | _CLASSIFIERS_AND_CLUSTERS | _EMBEDDINGS_AND_POSTERIORS | _GENERATION | _SCORES | _PAIRS
)
"""Name of a family -> the family."""


def family_of(metric: str) -> MetricFamily | None:
    """The family of a metric: that whose pattern it matches, or else that with the longest name that the metric begins
    with. A metric of validation images (`val_knn_z`) has the family of its name without `val_`. None if there is no
    family, for example for a metric of a new method."""
    metric = metric.removeprefix(VALIDATION)
    names = [name for name, family in FAMILIES.items() if family.pattern and re.fullmatch(family.pattern, metric)]
    names = names or [name for name in FAMILIES if metric == name or metric.startswith(f"{name}_")]
    return FAMILIES[max(names, key=len)] if names else None
