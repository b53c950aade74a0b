"""The meaning of each metric: its direction, its range and when it is reported.

Evaluators, sweep files and `--describe` share this definition. It does not need PyTorch: the mathematics of a metric is
in another file of this folder.

The name of a metric begins with its family: `knn_z` is the metric of the family `knn` on the vector z.
"""

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType

from trainables.metrics.families import CORRECTED_SHARE, GENERATION, PAIRS, MetricFamily

VALIDATION = "val_"
"""Prefix of the names of metrics on validation images."""
SCORES: Mapping[str, str] = {
    "joint": "the negative log likelihood of an image's embedding under its own posterior: the sum of `dir` and `rad`",
    "dir": "the part of `joint` that is the direction of the embedding",
    "rad": "the part of `joint` that is the length of the embedding",
    "variance": "the posterior's variance, summed over its dimensions",
    "entropy": "the entropy of the posterior",
    "distance": "the squared distance of the representation from the centre",
    "reconstruction": "the error of the reconstructed image, summed over its pixels: squared, or for a VAE the "
    "negative log likelihood at the posterior's mean",
    "kl": "the KL divergence of the posterior from the prior of an image alone, without constants",
    "elbo": "the negative evidence lower bound of an image alone, without constants: the sum of `reconstruction` and "
    "of `kl`, which the beta-VAE weights",
    "density": "the negative log density of an image's embedding under the Gaussian or the mixture that the method has "
    "learned",
    "probability": "minus the probability that the network gives to the true transformation of a copy of the image, "
    "the mean over copies",
    "log_probability": "minus the logarithm of that probability, the mean over copies",
    "dirichlet": "the negative log density of all these probabilities, up to a constant, by a Dirichlet density of "
    "each transformation; the mean over copies",
    "csi": "the sum of the scores contrastive and shift",
    "contrastive": "minus the largest cosine of an image's projection with that of a training image, times its length, "
    "over its mean in training; the mean over rotations",
    "shift": "minus the logit of the true rotation over its mean in training, the mean over rotations",
}
"""Name of an anomaly score, which the names of its metrics contain -> its meaning. The higher, the less normal."""
SCORED = ("auroc", "aupr", "fpr95")
"""Families of metrics of anomaly scores."""
CHOICES = CHOSEN, BEST_ON_TEST = "auroc_chosen", "auroc_best_on_test"
"""AUROC of the score that is best on validation images, and of the one that is best on the test images."""
MARGIN = "auroc_margin"
"""Half the 95 % interval of `CHOSEN` over test images."""
FITTED_SCORES: Mapping[str, str] = {
    "knn1": "the distance to the nearest training vector",
    "knn2": "the mean distance to the 2 nearest training vectors",
    "knn5": "the mean distance to the 5 nearest training vectors",
    "cosine1": "knn1 of vectors scaled to unit length, by which the cosine ranks alike",
    "cosine2": "knn2 of vectors scaled to unit length",
    "cosine5": "knn5 of vectors scaled to unit length",
    "cosine_norm": "minus the length of the vector times its largest cosine with a training vector",
    "kde": "the negative log density of a Gaussian kernel of vectors scaled to unit length, "
    "-logsumexp(2 gamma <x, x_i>) / gamma with gamma = 10 / (Var D) for D numbers of variance Var",
    "kde_raw": "the negative log density of a Gaussian kernel of vectors as they are, whose bandwidth is the likeliest "
    "of the training vectors by cross-validation of five folds",
    "gaussian": "the Mahalanobis distance, by the covariance of the training vectors with the shrinkage of Ledoit and "
    "Wolf",
    "ocsvm": "scikit-learn's OneClassSVM of vectors scaled to unit length, with the kernel of kde and nu = 0.5, of at "
    "most 3,000 training vectors",
    "ocsvm_raw": "scikit-learn's OneClassSVM of vectors as they are, with gamma = 1 / (Var D) and nu = 0.1, of at most "
    "3,000 training vectors",
    "forest": "scikit-learn's IsolationForest of 100 trees",
}
"""Name of an anomaly score that is fitted to the vectors of the training images (`one_class_scores`) -> its meaning."""


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
    "error_auroc": MetricFamily(
        "How often the posterior's entropy is higher for a test image that the vote of `knn_z` gets wrong than for one "
        "that it gets right. 0.5 is chance. Null where all are right.",
        "maximize",
        may_be_undefined=True,
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
        pattern=r"probe_\d+(_projection)?",
    ),
    "style": MetricFamily(
        "Accuracy on test images of classifiers with one hidden layer, trained on the frozen representation to "
        "predict an attribute of style, which the class does not reveal; the mean over three that start from different "
        "weights.",
        "maximize",
        at_end=True,
    ),
    "style_mean": MetricFamily(
        "The mean of the accuracies style_NAME over all attributes that a trial asks for.", "maximize", at_end=True
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
_CLASSIFICATION = {
    "accuracy": MetricFamily(
        "Share of test images whose class has the largest logit of a method that classifies.", "maximize"
    ),
    "top5": MetricFamily(
        "Share of test images whose class has one of the five largest logits, of more than five classes.", "maximize"
    ),
    "nll": MetricFamily(
        "Negative log likelihood of the class of a test image, the mean over images.",
        "minimize",
        "a number of at least 0, in nats",
    ),
    "ece": MetricFamily(
        "Expected calibration error: test images are in 15 bins of equal width by their largest probability; the "
        "absolute difference of a bin's accuracy and its mean probability, the mean over images. 0 is calibrated.",
        "minimize",
        "a number in [0, 1]",
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
    "class_distance": MetricFamily(
        "Mean of 1 - cosine over pairs of different test images of one class, over that of images of different "
        "classes: 1 where a class is as wide as the whole. Null where all embeddings are one point.",
        "minimize",
        "a number of at least 0",
        may_be_undefined=True,
    ),
    "view_variance": MetricFamily(
        "Variance of the embeddings of two augmented views around their image's mean, over the variance of these "
        "means: 0 where views of a test image coincide. `view_variance_z` is of representations, and "
        "`view_variance_projection` of what the loss compares. Null where all embeddings are one point.",
        unit="a number of at least 0",
        may_be_undefined=True,
    ),
    "predicted_error": MetricFamily(
        "Squared error of the projections of a view of test images, as the joint Gaussian of training images predicts "
        "them from another view, over their variance: 1 says nothing more than their mean. Null where they are one "
        "point.",
        "minimize",
        "a number of at least 0",
        at_end=True,
        may_be_undefined=True,
    ),
    "predicted_log_density": MetricFamily(
        "Log density that this Gaussian, given a view, gives to the projection of the other, the mean over test "
        "images.",
        "maximize",
        "a real number, in nats",
        at_end=True,
        may_be_undefined=True,
    ),
    "predicted_coverage": MetricFamily(
        "Share of test images whose projection is in the ellipsoid that holds 90 % of the predicted Gaussian: 0.9 if "
        "its uncertainty is right.",
        at_end=True,
        may_be_undefined=True,
    ),
    "routing_entropy": MetricFamily(
        "Entropy of the weights that GMJE-MDN gives the components of its mixture, over that of equal weights, the "
        "mean over images and the batches of an epoch: 1 where it chooses none.",
        unit="a number in [0, 1]",
        measured_on="training data",
    ),
    "ess": MetricFamily(
        "Effective sample size of the pool of particles from which the next bank is drawn, 1 over the sum of the "
        "squared weights; the mean over the batches of an epoch. Copies of a particle count as different, see "
        "`bank_distinct`. Null for a queue, whose keys have no weights.",
        unit="a number of at least 1 and at most the particles of the bank plus the images of a batch",
        measured_on="training data",
    ),
    "bank_distinct": MetricFamily(
        "Share of different particles in a bank: how many it has without copies, over its size; the mean over the "
        "batches of an epoch. Null for a queue, whose keys are all different.",
        measured_on="training data",
    ),
    "bank_age": MetricFamily(
        "Age of the particles in a bank, the mean over particles and the batches of an epoch. Null for a queue.",
        unit="a number of at least 0, in steps since the batch that a particle comes from",
        measured_on="training data",
    ),
    "mu_cosine": MetricFamily(
        "Cosine of the embedding and the mean of its posterior, the mean over test images.", unit="a number in [-1, 1]"
    ),
    "mu_norm": MetricFamily(
        "Length of the posterior's mean, the mean over test images.", unit="a number of at least 0"
    ),
    "radius_difference": MetricFamily(
        "Absolute difference of the lengths of the embedding and of its posterior's mean, the mean over test images.",
        unit="a number of at least 0",
    ),
    "learned_scale": MetricFamily(
        "Scale of the difference of lengths in VJE's radial likelihood where `radial_scale` lets it be learned, the "
        "mean over the batches of an epoch.",
        unit="a number above 0, in the unit of the lengths; 1 at the start",
        measured_on="training data",
    ),
    "z_variance": MetricFamily(
        "Variance of the representations in a batch, over their mean squared length, the mean over the batches of an "
        "epoch: 0 where the encoder has become constant.",
        measured_on="training data",
    ),
    "radius": MetricFamily(
        "Radius of Deep SVDD's sphere with a soft boundary, the mean over the batches of an epoch.",
        unit="a number of at least 0; 0 until the sphere is fitted",
        measured_on="training data",
    ),
    "distance_mean": MetricFamily(
        "Squared distance of the representation from Deep SVDD's centre, the mean over test images, outliers "
        "included: near 0 where the encoder has become constant.",
        unit="a number of at least 0",
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
_SCORES = {
    "auroc": MetricFamily(
        "Area under the ROC curve: how often an outlier has a higher anomaly score than an inlier. 0.5 is chance.",
        "maximize",
    ),
    "aupr": MetricFamily(
        "Area under the precision-recall curve (average precision) of outliers; their share of images is chance.",
        "maximize",
    ),
    **{
        f"auroc_{name}": MetricFamily(
            f"Area under the ROC curve of a score that is fitted to the vectors of the training images: {meaning}.",
            "maximize",
            at_end=True,
        )
        for name, meaning in FITTED_SCORES.items()
    },
    CHOSEN: MetricFamily(
        "Area under the ROC curve of the trial's score, its own or fitted, that has the largest one on validation "
        "images. Where these are all normal, so that nothing can be chosen by them, of its first score.",
        "maximize",
        at_end=True,
    ),
    MARGIN: MetricFamily(
        "Half the 95 % interval of `auroc_chosen` over test images, by DeLong's variance. Null for fewer than "
        "30 normal or 30 other test images.",
        None,
        "a number of at least 0",
        at_end=True,
        may_be_undefined=True,
    ),
    BEST_ON_TEST: MetricFamily(
        "Area under the ROC curve of the trial's score that has the largest one on the test images. It is chosen on "
        "them, so it is too high.",
        "maximize",
        at_end=True,
        chosen_on_test=True,
    ),
    "detected": MetricFamily(
        "Share of anomalous test images that the chosen score flags at the threshold of a false-alarm rate: "
        "`detected_0.01` of all, `detected_0.01_3` of those of class 3. Null for a class without test images, and for "
        "a rate that the held-out normal images are too few for.",
        "maximize",
        at_end=True,
        may_be_undefined=True,
        pattern=r"detected_[0-9.e-]+(_\d+)?",
    ),
    "false_alarms": MetricFamily(
        "Share of normal test images that the chosen score flags at the threshold of a false-alarm rate.",
        "minimize",
        at_end=True,
        may_be_undefined=True,
        pattern=r"false_alarms_[0-9.e-]+",
    ),
    "detection_interval": MetricFamily(
        "End of the 95 % interval over test images of `detected` or `false_alarms`, by Clopper and Pearson.",
        at_end=True,
        may_be_undefined=True,
        pattern=r"(detected|false_alarms)_.*_(low|high)",
    ),
    "alarm_bound": MetricFamily(
        "Share of new normal images that is flagged at most at the threshold of a false-alarm rate, as the upper end "
        "of its 95 % interval over held-out images: 0.036 for a rate of 0.01 and 100 of them.",
        at_end=True,
        may_be_undefined=True,
        pattern=r"alarm_bound_[0-9.e-]+",
    ),
    "fpr95": MetricFamily(
        "Share of outliers that are taken for inliers where 95 % of the inliers are accepted.", "minimize"
    ),
}
FAMILIES: Mapping[str, MetricFamily] = MappingProxyType(
    {
        **_TRAINING,
        **_CLASSIFIERS_AND_CLUSTERS,
        **_CLASSIFICATION,
        **_EMBEDDINGS_AND_POSTERIORS,
        **GENERATION,
        **_SCORES,
        **PAIRS,
    }
)
"""Name of a family -> the family."""


@functools.cache  # sweeps ask for each claim again and again
def family_of(metric: str) -> MetricFamily | None:
    """The family of a metric: that whose pattern it matches, or else that with the longest name that the metric begins
    with. A metric of validation images (`val_knn_z`) has the family of its name without `val_`. None if there is no
    family, for example for a metric of a new method."""
    metric = metric.removeprefix(VALIDATION)
    names = [name for name, family in FAMILIES.items() if family.pattern and re.fullmatch(family.pattern, metric)]
    names = names or [name for name in FAMILIES if metric == name or metric.startswith(f"{name}_")]
    return FAMILIES[max(names, key=len)] if names else None
