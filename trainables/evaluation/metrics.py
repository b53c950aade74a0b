"""The meaning of each metric: its direction, its range and when it is reported.

Evaluators, sweep files and `--describe` share this definition. It does not need PyTorch.

The name of a metric begins with its family: `knn_z` is the metric of the family `knn` on the vector z.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

SHARE = "a share in [0, 1]"
CORRECTED_SHARE = "a share of at most 1, corrected for chance: 0 for random clusters"
VALIDATION = "val_"
"""Prefix of the names of metrics on validation images."""


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

    @property
    def share(self) -> bool:
        """Whether it is a share, so that it can be shown in percent."""
        return self.unit in (SHARE, CORRECTED_SHARE)


FAMILIES: Mapping[str, MetricFamily] = MappingProxyType(
    {
        "loss": MetricFamily(
            "Training loss, the mean over the batches of an epoch. Losses of different methods do not compare.",
            "minimize",
            "a real number, in the unit of the method's loss",
        ),
        "loss_part": MetricFamily(
            "A named part of the training loss before its weight, the mean over the batches of an epoch.",
            unit="a real number, in the unit of the method's loss",
        ),
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
        ),
        "knn_k": MetricFamily(
            "For each number k, as in knn_1 or knn_15: accuracy on test images of a vote among the k training images "
            "nearest by Euclidean distance.",
            "maximize",
            at_end=True,
        ),
        "probe_linear": MetricFamily(
            "Accuracy on test images of a linear classifier trained by Adam on the frozen representation.",
            "maximize",
            at_end=True,
        ),
        "probe_linear_best": MetricFamily(
            "The accuracy of the classifier of probe_linear after its best epoch, which is chosen on the test images.",
            "maximize",
            at_end=True,
        ),
        "probe_mlp": MetricFamily(
            "Accuracy on test images of a classifier with one hidden layer, trained by Adam on the frozen "
            "representation.",
            "maximize",
            at_end=True,
        ),
        "probe_mlp_best": MetricFamily(
            "The accuracy of the classifier of probe_mlp after its best epoch, which is chosen on the test images.",
            "maximize",
            at_end=True,
        ),
        "style": MetricFamily(
            "Accuracy on test images of a classifier with one hidden layer, trained on the frozen representation to "
            "predict an attribute of style, which the class does not reveal.",
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
        "reconstruction_mse": MetricFamily(
            "Squared error of reconstructed test images, the mean over images and pixels.",
            "minimize",
            "a number of at least 0, for pixels in [0, 1]",
            at_end=True,
        ),
        "frechet_digits": MetricFamily(
            "Fréchet distance of generated images from test images of digits, in the last hidden layer of a small "
            "classifier of digits. It does not compare with FID.",
            "minimize",
            "a number of at least 0",
            at_end=True,
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
        "probe_few": MetricFamily(
            "For each number of labels, as in probe_5: accuracy on test images of linear classifiers of z trained on "
            "so many labelled images of each class, the mean over draws of these. Features are standardised over all "
            "training images. With `probe_curve` it is reported at every report.",
            "maximize",
            at_end=True,
        ),
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
            "squared weights; the mean over the batches of an epoch. Null for a queue, whose keys have no weights.",
            unit="a number of at least 1 and at most the particles of the bank plus the images of a batch",
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
        "seconds": MetricFamily(
            "The trial's share of the training seconds of its cohort: an objective of searches.",
            "minimize",
            "seconds",
            at_end=True,
        ),
    }
)
"""Name of a family -> the family."""


def family_of(metric: str) -> MetricFamily | None:
    """The family of a metric: that with the longest name that the metric begins with, `loss_part` for `loss_kl` and the
    like, `knn_k` for `knn_3_z` and the like, or `probe_few` for `probe_5` and the like. A metric of validation images
    (`val_knn_z`) has the family of its name without `val_`. None if there is no family, for example for a metric of a
    new method."""
    metric = metric.removeprefix(VALIDATION)
    if metric.startswith("loss_"):
        return FAMILIES["loss_part"]
    if re.match(r"knn_\d+(_|$)", metric):
        return FAMILIES["knn_k"]
    if re.match(r"probe_\d+$", metric):
        return FAMILIES["probe_few"]
    names = [name for name in FAMILIES if metric == name or metric.startswith(f"{name}_")]
    return FAMILIES[max(names, key=len)] if names else None
