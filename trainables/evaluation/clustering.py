"""Clusters of frozen features, compared with the classes: accuracy, NMI and ARI of a Gaussian mixture (SimVAE, section
8).

Shapes: N bank images, M test images, D features.
"""

import math
import warnings
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.mixture import GaussianMixture
from torch import Tensor

from trainables.evaluation.probes import all_finite
from trainables.validation import whole

Labels = NDArray[np.int64]
BATCH = 64
"""Images of a batch in the scores named `*_batch64`."""


def evaluate(
    bank_ND: Tensor, test_MD: Tensor, test_labels_M: Tensor, classes: int, *, n_init: int, random_state: int
) -> dict[str, float]:
    """Cluster the test images with `mixture_clusters` and return the scores of `METRICS` by name: `NAME` of all images,
    and `NAME_batch64`, the `batch_mean`.

    Test images with a negative label (UNLABELLED) are left out. All NaN if there are no clusters, or if no test image
    has a label.
    """
    clusters_M = mixture_clusters(bank_ND, test_MD, classes, n_init=n_init, random_state=random_state)
    labels_M = test_labels_M.cpu().numpy()
    labelled_M = labels_M >= 0
    if clusters_M is None or not labelled_M.any():
        return {f"{name}{suffix}": math.nan for name in METRICS for suffix in ("", f"_batch{BATCH}")}
    labels_M, clusters_M = labels_M[labelled_M], clusters_M[labelled_M]
    scores: dict[str, float] = {}
    for name, score in METRICS.items():
        scores[name] = float(score(labels_M, clusters_M))
        scores[f"{name}_batch{BATCH}"] = batch_mean(score, labels_M, clusters_M)
    return scores


def mixture_clusters(
    bank_ND: Tensor, test_MD: Tensor, classes: int, *, n_init: int, random_state: int
) -> Labels | None:
    """Fit scikit-learn's mixture of as many full Gaussians as there are classes to the bank in float64, and return the
    most probable component `[M]` of each test image.

    The best of `n_init` fits counts, even if it has not converged. None if a feature is not finite, if the bank has
    fewer different images than classes (a collapsed encoder), or if a covariance cannot be inverted. Raises ValueError
    unless `n_init` and `classes` are at least 1.
    """
    whole("n_init", n_init, 1)
    whole("classes", classes, 1)
    if not (all_finite(bank_ND) and all_finite(test_MD)):
        return None
    bank, test = bank_ND.cpu().double().numpy(), test_MD.cpu().double().numpy()
    if len(np.unique(bank, axis=0)) < classes:
        return None
    mixture = GaussianMixture(classes, covariance_type="full", n_init=n_init, random_state=random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            mixture.fit(bank)
        except ValueError:  # "some components have ill-defined empirical covariance"
            return None
    clusters_M: Labels = mixture.predict(test)
    return clusters_M


def matched_share(labels_M: Labels, clusters_M: Labels) -> float:
    """Clustering accuracy: the share of images whose cluster is matched with their class, for the best one-to-one
    matching of clusters with classes (the Hungarian method)."""
    table = contingency_matrix(labels_M, clusters_M)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / len(labels_M))


def batch_mean(score: Callable[[Labels, Labels], float], labels_M: Labels, clusters_M: Labels) -> float:
    """Mean of a score over batches of 64 images (one batch of M, if that is smaller).

    The images are shuffled by a fixed seed, because files may list them by class. The last images that do not fill a
    batch are left out: these scores depend on the size of a batch. Random clusters reach a high accuracy and NMI on
    small batches.
    """
    order_M = np.random.default_rng(0).permutation(len(labels_M))
    size = min(BATCH, len(labels_M))
    batches = order_M[: len(labels_M) // size * size].reshape(-1, size)
    return float(np.mean([score(labels_M[batch], clusters_M[batch]) for batch in batches]))


METRICS: Mapping[str, Callable[[Labels, Labels], float]] = {
    "gmm_accuracy": matched_share,
    "nmi": normalized_mutual_info_score,
    "ari": adjusted_rand_score,
}
