"""The meaning of each metric: its direction, its range and when it is reported.

Evaluators, sweep files and `--describe` share these definitions. They need no PyTorch: the mathematics of each metric
is in another file of this folder.

The name of a metric begins with its family: `knn_z` is the metric of the family `knn` for the vector z.
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
    "dir": "the part of `joint` due to the direction of the embedding",
    "rad": "the part of `joint` due to the length of the embedding",
    "variance": "the posterior's variance, summed over its dimensions",
    "entropy": "the entropy of the posterior",
    "distance": "the squared distance of the representation from the centre",
    "patch_distance": "the largest distance of a patch's features from those of normal training patches, and "
    "higher where these are far from each other",
    "reconstruction": "the squared error of the reconstructed image, summed over its pixels; for a VAE, the negative "
    "log likelihood at the posterior's mean",
    "kl": "the KL divergence of the posterior from the prior of an image alone, without constants",
    "elbo": "the negative evidence lower bound of an image alone, without constants: `reconstruction` plus `kl`, which "
    "the beta-VAE weights",
    "density": "the negative log density of an image's embedding under the learned Gaussian or mixture",
    "probability": "minus the probability that the network assigns to the true transformation of a copy of the image, "
    "averaged over copies",
    "log_probability": "minus the log probability of the true transformation, averaged over copies",
    "dirichlet": "the negative log density, up to a constant, of the probabilities of all transformations under a "
    "Dirichlet density per true transformation; averaged over copies",
    "csi": "the sum of the scores contrastive and shift",
    "contrastive": "minus the largest cosine between the image's projection and a training image's, times the "
    "projection's length relative to its mean in training; averaged over rotations",
    "shift": "minus the logit of the true rotation divided by its mean in training, averaged over rotations",
}
"""Name of an anomaly score, which the names of its metrics contain -> its meaning. The higher, the less normal."""
SCORED = ("auroc", "aupr", "fpr95")
"""Families of metrics of anomaly scores."""
CHOICES = CHOSEN, BEST_ON_TEST = "auroc_chosen", "auroc_best_on_test"
"""AUROC of the score that is best on the validation images, and of the score that is best on the test images."""
MARGIN = "auroc_margin"
"""Half the 95 % interval of `CHOSEN` over test images."""
FITTED_SCORES: Mapping[str, str] = {
    "knn1": "the distance to the nearest training vector",
    "knn2": "the mean distance to the 2 nearest training vectors",
    "knn5": "the mean distance to the 5 nearest training vectors",
    "cosine1": "knn1 of vectors scaled to unit length, which gives the same ranking as the cosine",
    "cosine2": "knn2 of vectors scaled to unit length",
    "cosine5": "knn5 of vectors scaled to unit length",
    "cosine_norm": "minus the length of the vector times its largest cosine to a training vector",
    "kde": "the negative log density of a Gaussian kernel estimate on vectors scaled to unit length, -logsumexp(2 "
    "gamma <x, x_i>) / gamma with gamma = 10 / (Var D) for D dimensions of variance Var",
    "kde_raw": "the negative log density of a Gaussian kernel estimate on unscaled vectors; five-fold cross-validation "
    "on the training vectors chooses the likeliest bandwidth",
    "gaussian": "the Mahalanobis distance under the covariance of the training vectors with Ledoit-Wolf shrinkage",
    "ocsvm": "scikit-learn's OneClassSVM on vectors scaled to unit length, with the kernel of kde, nu = 0.5 and at "
    "most 3,000 training vectors",
    "ocsvm_raw": "scikit-learn's OneClassSVM on unscaled vectors, with gamma = 1 / (Var D), nu = 0.1 and at most 3,000 "
    "training vectors",
    "forest": "scikit-learn's IsolationForest with 100 trees",
}
"""Name of an anomaly score that is fitted to the vectors of the training images (`one_class_scores`) -> its meaning."""


_TRAINING = {
    "loss": MetricFamily(
        "Mean training loss over the batches of an epoch. Losses of different methods are not comparable.",
        "minimize",
        "a real number, in the unit of the method's loss",
        measured_on="training data",
    ),
    "loss_part": MetricFamily(
        "A named part of the training loss before its weight is applied, averaged over the batches of an epoch.",
        unit="a real number, in the unit of the method's loss",
        measured_on="training data",
        pattern=r"loss_.*",
    ),
    "seconds": MetricFamily(
        "The trial's share of its cohort's training seconds; an objective for searches.",
        "minimize",
        "seconds",
        at_end=True,
        measured_on="training data",
    ),
}
_CLASSIFIERS_AND_CLUSTERS = {
    "knn": MetricFamily(
        "Test accuracy of a majority vote among the `knn` training images nearest by cosine.", "maximize"
    ),
    "knn_weighted": MetricFamily(
        "Test accuracy of the same vote with each neighbour weighted by exp(cosine / knn_temperature).",
        "maximize",
    ),
    "error_auroc": MetricFamily(
        "Probability that the posterior's entropy is higher for a test image that `knn_z` misclassifies than for a "
        "correctly classified one. 0.5 is chance. Null if all are classified correctly.",
        "maximize",
        may_be_undefined=True,
    ),
    "probe": MetricFamily(
        "Test accuracy of a linear classifier trained on the frozen representation. With `probe_curve`, part of every "
        "report.",
        "maximize",
        at_end=True,
    ),
    "probe_top5": MetricFamily(
        "Share of test images whose true class is among the linear classifier's top five classes. Needs more than five "
        "classes.",
        "maximize",
        at_end=True,
    ),
    "knn_best": MetricFamily(
        "The largest of the accuracies knn_1, knn_2 and so on. Biased upwards, because k is chosen on the test images.",
        "maximize",
        at_end=True,
        chosen_on_test=True,
    ),
    "knn_k": MetricFamily(
        "Test accuracy of a vote among the k training images nearest by Euclidean distance, for each k: knn_1, knn_15.",
        "maximize",
        at_end=True,
        pattern=r"knn_\d+(_.*)?",
    ),
    "probe_linear": MetricFamily(
        "Mean test accuracy of three linear classifiers trained with Adam on the frozen representation from different "
        "initial weights.",
        "maximize",
        at_end=True,
    ),
    "probe_linear_best": MetricFamily(
        "Mean accuracy of the classifiers of probe_linear, each at its best epoch. Biased upwards, because the epoch "
        "is chosen on the test images.",
        "maximize",
        at_end=True,
        chosen_on_test=True,
    ),
    "probe_mlp": MetricFamily(
        "Mean test accuracy of three classifiers with one hidden layer, trained with Adam on the frozen representation "
        "from different initial weights.",
        "maximize",
        at_end=True,
    ),
    "probe_mlp_best": MetricFamily(
        "Mean accuracy of the classifiers of probe_mlp, each at its best epoch. Biased upwards, because the epoch is "
        "chosen on the test images.",
        "maximize",
        at_end=True,
        chosen_on_test=True,
    ),
    "probe_few": MetricFamily(
        "Mean test accuracy of linear classifiers trained on a few labelled images per class, averaged over draws of "
        "the images; the name has their number: probe_5. Features are standardised over all training images. With "
        "`probe_curve`, part of every report.",
        "maximize",
        at_end=True,
        pattern=r"probe_\d+(_projection)?",
    ),
    "style": MetricFamily(
        "Mean test accuracy of three classifiers with one hidden layer, trained on the frozen representation from "
        "different initial weights to predict a style attribute, which the class does not reveal.",
        "maximize",
        at_end=True,
    ),
    "style_mean": MetricFamily(
        "The mean of style_NAME over all attributes of the trial's `styles`.", "maximize", at_end=True
    ),
    "gmm_accuracy": MetricFamily(
        "Share of test images whose component in a Gaussian mixture is matched with their class. Null if the "
        "representation has collapsed.",
        "maximize",
        at_end=True,
        may_be_undefined=True,
    ),
    "nmi": MetricFamily(
        "Normalised mutual information between the components of a Gaussian mixture and the classes of test images. "
        "Null if the representation has collapsed.",
        "maximize",
        at_end=True,
        may_be_undefined=True,
    ),
    "ari": MetricFamily(
        "Adjusted Rand index between the components of a Gaussian mixture and the classes of test images. Null if the "
        "representation has collapsed.",
        "maximize",
        CORRECTED_SHARE,
        at_end=True,
        may_be_undefined=True,
    ),
    "gmm_accuracy_batch64": MetricFamily(
        "Mean of gmm_accuracy over batches of 64 test images. Random components score 0.29 with ten classes.",
        "maximize",
        at_end=True,
        may_be_undefined=True,
    ),
    "nmi_batch64": MetricFamily(
        "Mean of nmi over batches of 64 test images. Random components score 0.31 with ten classes.",
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
    "accuracy": MetricFamily("Share of test images that a classifying method assigns to their class.", "maximize"),
    "top5": MetricFamily(
        "Share of test images whose class has one of the five largest logits. Needs more than five classes.", "maximize"
    ),
    "nll": MetricFamily(
        "Mean negative log likelihood of the true class over test images.",
        "minimize",
        "a number of at least 0, in nats",
    ),
    "ece": MetricFamily(
        "Expected calibration error: test images are binned by their largest class probability in 15 bins of equal "
        "width; the absolute difference between a bin's accuracy and its mean probability, averaged over images. 0 is "
        "calibrated.",
        "minimize",
        "a number in [0, 1]",
    ),
}
_EMBEDDINGS_AND_POSTERIORS = {
    "effective_rank": MetricFamily(
        "Effective number of dimensions of the embeddings of test images: exp of the entropy of the eigenvalues of "
        "their covariance, normalised to sum 1. Like volume and trace it is computed from unit vectors without "
        "augmentation; the covariance is about their mean, with divisor N. The key `geometry` chooses representations "
        "or projections.",
        unit="a number of at least 1 and at most the dimensions D",
    ),
    "cosine": MetricFamily(
        "Cosine between the embeddings of two augmented views of a test image, averaged over images.",
        unit="a number in [-1, 1]",
    ),
    "volume": MetricFamily(
        "Log-determinant of the covariance of the unit embeddings of test images, after mixing in a share of 1e-6 of "
        "the isotropic covariance I/D.",
        unit="a real number of at most -D log D, the value for isotropic embeddings in D dimensions",
    ),
    "trace": MetricFamily(
        "Trace of the covariance of the unit embeddings of test images: 1 minus the squared length of their mean.",
        unit="a number in [0, 1]",
    ),
    "norm": MetricFamily(
        "Mean length of the embeddings of test images before they are scaled to unit length.",
        unit="a number of at least 0",
    ),
    "class_distance": MetricFamily(
        "Mean of 1 - cosine over pairs of different test images of the same class, divided by its mean over pairs of "
        "different classes: 1 if a class is as wide as the whole set. Null if all embeddings coincide.",
        "minimize",
        "a number of at least 0",
        may_be_undefined=True,
    ),
    "view_variance": MetricFamily(
        "Variance of the embeddings of two augmented views around their image's mean, divided by the variance of these "
        "means: 0 if the views of a test image coincide. `view_variance_z` is for representations and "
        "`view_variance_projection` for the vectors that the loss compares. Null if all embeddings coincide.",
        unit="a number of at least 0",
        may_be_undefined=True,
    ),
    "predicted_error": MetricFamily(
        "Squared error with which the joint Gaussian of training images predicts the projection of one view of a test "
        "image from another view, divided by the variance of the projections: 1 is no better than predicting their "
        "mean. Null if all projections coincide.",
        "minimize",
        "a number of at least 0",
        at_end=True,
        may_be_undefined=True,
    ),
    "predicted_log_density": MetricFamily(
        "Mean log density, over test images, of the projection of one view under the Gaussian predicted from the other "
        "view.",
        "maximize",
        "a real number, in nats",
        at_end=True,
        may_be_undefined=True,
    ),
    "predicted_coverage": MetricFamily(
        "Share of test images whose projection lies in the 90 % ellipsoid of the predicted Gaussian: 0.9 if its "
        "uncertainty is right.",
        at_end=True,
        may_be_undefined=True,
    ),
    "routing_entropy": MetricFamily(
        "Entropy of the mixture weights of GMJE-MDN, divided by the entropy of equal weights, averaged over images and "
        "the batches of an epoch: 1 if all components have equal weight.",
        unit="a number in [0, 1]",
        measured_on="training data",
    ),
    "ess": MetricFamily(
        "Effective sample size of the pool of particles from which the next bank is drawn: 1 / sum of squared weights, "
        "averaged over the batches of an epoch. Copies of a particle count separately (see `bank_distinct`). Null for "
        "a queue, whose keys have no weights.",
        unit="a number of at least 1 and at most the particles of the bank plus the images of a batch",
        measured_on="training data",
    ),
    "bank_distinct": MetricFamily(
        "Number of distinct particles in a bank divided by its size, averaged over the batches of an epoch. Null for a "
        "queue, whose keys are all distinct.",
        measured_on="training data",
    ),
    "bank_age": MetricFamily(
        "Mean age of the particles in a bank over particles and the batches of an epoch. Null for a queue.",
        unit="a number of at least 0, in steps since the particle's batch",
        measured_on="training data",
    ),
    "mu_cosine": MetricFamily(
        "Cosine between the embedding and the mean of its posterior, averaged over test images.",
        unit="a number in [-1, 1]",
    ),
    "mu_norm": MetricFamily(
        "Length of the posterior's mean, averaged over test images.", unit="a number of at least 0"
    ),
    "radius_difference": MetricFamily(
        "Absolute difference between the lengths of the embedding and of its posterior's mean, averaged over test "
        "images.",
        unit="a number of at least 0",
    ),
    "learned_scale": MetricFamily(
        "Scale of the length difference in VJE's radial likelihood if `radial_scale` makes it learnable, averaged over "
        "the batches of an epoch.",
        unit="a number above 0, in the unit of the lengths; 1 at the start",
        measured_on="training data",
    ),
    "z_variance": MetricFamily(
        "Variance of the representations in a batch divided by their mean squared length, averaged over the batches of "
        "an epoch: 0 if the encoder has become constant.",
        measured_on="training data",
    ),
    "radius": MetricFamily(
        "Radius of the sphere of soft-boundary Deep SVDD, averaged over the batches of an epoch.",
        unit="a number of at least 0; 0 until the sphere is fitted",
        measured_on="training data",
    ),
    "distance_mean": MetricFamily(
        "Squared distance of the representation from Deep SVDD's centre, averaged over test images including outliers: "
        "near 0 if the encoder has become constant.",
        unit="a number of at least 0",
    ),
    "posterior_entropy": MetricFamily("Mean entropy of the posterior over test images.", unit="a real number, in nats"),
    "posterior_variance": MetricFamily(
        "Variance of the posterior, summed over dimensions and averaged over test images.", unit="a number above 0"
    ),
    "var_mean": MetricFamily(
        "Mean variance of the posterior over dimensions and test images: near 0 the posterior has collapsed; the "
        "prior's variance is 1.",
        unit="a number above 0",
    ),
    "var_cv": MetricFamily(
        "Standard deviation of the posterior's variance over dimensions, divided by var_mean: 0 is isotropic. Null if "
        "var_mean is below 0.01.",
        unit="a number of at least 0",
        may_be_undefined=True,
    ),
}
_SCORES = {
    "auroc": MetricFamily(
        "Area under the ROC curve: the probability that an outlier has a higher anomaly score than an inlier. 0.5 is "
        "chance.",
        "maximize",
    ),
    "aupr": MetricFamily(
        "Area under the precision-recall curve (average precision) of outliers. Chance is the share of outliers.",
        "maximize",
    ),
    **{
        f"auroc_{name}": MetricFamily(
            f"Area under the ROC curve of a score fitted to the vectors of the training images: {meaning}.",
            "maximize",
            at_end=True,
        )
        for name, meaning in FITTED_SCORES.items()
    },
    CHOSEN: MetricFamily(
        "Area under the ROC curve of the trial's score (its own or fitted) with the largest AUROC on validation "
        "images. If all validation images are normal, so that they cannot rank scores, the trial's first score.",
        "maximize",
        at_end=True,
    ),
    MARGIN: MetricFamily(
        "Half the 95 % interval of `auroc_chosen` over test images, from DeLong's variance. Null with fewer than 30 "
        "normal or 30 anomalous test images.",
        None,
        "a number of at least 0",
        at_end=True,
        may_be_undefined=True,
    ),
    BEST_ON_TEST: MetricFamily(
        "Largest area under the ROC curve of any of the trial's scores on the test images. Biased upwards, because the "
        "score is chosen on the test images.",
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
        "Share of outliers accepted as inliers at the threshold that accepts 95 % of the inliers.", "minimize"
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
    """The family of a metric: the family whose pattern matches, or else the family with the longest name that the
    metric begins with. The prefix `val_` of validation metrics (`val_knn_z`) is ignored. None for unknown metrics, for
    example of a new method."""
    metric = metric.removeprefix(VALIDATION)
    names = [name for name, family in FAMILIES.items() if family.pattern and re.fullmatch(family.pattern, metric)]
    names = names or [name for name in FAMILIES if metric == name or metric.startswith(f"{name}_")]
    return FAMILIES[max(names, key=len)] if names else None
