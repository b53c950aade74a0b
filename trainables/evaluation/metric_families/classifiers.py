"""Classifiers and clusters of frozen representations: the families of their metrics, by name."""

from trainables.evaluation.metric_families.family import CORRECTED_SHARE, MetricFamily

FAMILIES = {
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
