"""Clusters of frozen features, compared with the classes: accuracy, NMI and ARI of a Gaussian mixture (SimVAE, section
8), at the end of training. scikit-learn is imported by functions: importing it here would delay every worker.

Shapes: K members, N images of the bank, M evaluated images, D features.
"""

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import numpy_seed
from trainables.metrics.evaluator import EvaluationSet, Floats, RepresentationEvaluator, Representations, all_finite
from trainables.validation import whole

Labels = NDArray[np.int64]
BATCH = 64
"""Images of a batch in the scores named `*_batch64`."""
SCORES = ("gmm_accuracy", "nmi", "ari")
METRICS = tuple(f"{name}{suffix}" for suffix in ("", f"_batch{BATCH}") for name in SCORES)


def cluster_scores(
    bank_ND: Tensor, test_MD: Tensor, test_labels_M: Tensor, classes: int, *, n_init: int, random_state: int
) -> dict[str, float]:
    """Cluster the test images with `mixture_clusters` and return the `METRICS` by name: the `SCORES` over all images,
    and their `batch_mean` as `NAME_batch64`.

    Test images with a negative label (UNLABELLED) are left out. All NaN without clusters, or if no test image has a
    label.
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score  # here, as in all functions below

    clusters_M = mixture_clusters(bank_ND, test_MD, classes, n_init=n_init, random_state=random_state)
    labels_M = test_labels_M.cpu().numpy()
    labelled_M = labels_M >= 0
    if clusters_M is None or not labelled_M.any():
        return dict.fromkeys(METRICS, math.nan)
    labels_M, clusters_M = labels_M[labelled_M], clusters_M[labelled_M]
    scores: dict[str, float] = {}
    for name, score in zip(SCORES, (matched_share, normalized_mutual_info_score, adjusted_rand_score), strict=True):
        scores[name] = float(score(labels_M, clusters_M))
        scores[f"{name}_batch{BATCH}"] = batch_mean(score, labels_M, clusters_M)
    return scores


def mixture_clusters(
    bank_ND: Tensor, test_MD: Tensor, classes: int, *, n_init: int, random_state: int
) -> Labels | None:
    """Fit scikit-learn's mixture of full Gaussians, one per class, to the bank in float64, and return the most probable
    component `[M]` of each test image.

    The best of `n_init` fits is used, even if it has not converged. None if a feature is not finite, if the bank has
    fewer distinct vectors than classes (a collapsed encoder), or if a covariance cannot be inverted. Raises ValueError
    unless `n_init` and `classes` are at least 1.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

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
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(labels_M, clusters_M)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / len(labels_M))


def batch_mean(score: Callable[[Labels, Labels], float], labels_M: Labels, clusters_M: Labels) -> float:
    """Mean of a score over batches of 64 images, or over one batch of all M images if M < 64.

    The images are shuffled with a fixed seed, because files may list them by class. An incomplete last batch is left
    out, because these scores depend on the batch size: random clusters score a high accuracy and NMI on small batches.
    """
    order_M = np.random.default_rng(0).permutation(len(labels_M))
    size = min(BATCH, len(labels_M))
    batches = order_M[: len(labels_M) // size * size].reshape(-1, size)
    return float(np.mean([score(labels_M[batch], clusters_M[batch]) for batch in batches]))


class MixtureClusters(RepresentationEvaluator):
    """How well the clusters of a Gaussian mixture agree with the classes."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return METRICS if last and config.content.gmm_n_init else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        by_member, classes = [], len(self.images.bank_labels.unique())  # without held-out classes
        for bank_ND, test_MD, seed in zip(vectors.bank()["z"], vectors.test(tested)["z"], vectors.seeds, strict=True):
            self.images.raise_if_stopped()
            by_member.append(
                cluster_scores(
                    bank_ND,
                    test_MD,
                    tested.labels,
                    classes,
                    n_init=self.config.content.gmm_n_init,
                    random_state=numpy_seed("clusters", self.config.data.dataset, seed),
                )
            )
        return {name: np.array([scores[name] for scores in by_member]) for name in METRICS}
