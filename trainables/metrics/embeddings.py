"""Geometry of embeddings on the unit sphere, and the spread of the posterior's variance (VJE, Table 7), at every
report.

Functions of embeddings scale them to unit length first. Covariances are about the mean, with divisor N, in float64, so
that their trace is at most 1. A member with an embedding that is not finite gets NaN.
Shapes: K members, N or M evaluated images, D dimensions, P of a projection.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.metrics.evaluator import PROJECTION, EvaluationSet, Floats, RepresentationEvaluator, Representations

ISOTROPIC = 1e-6
"""Share of the isotropic covariance `I / D` that is mixed in, so that the volume is finite for collapsed embeddings."""
ONE_POINT = 1e-12
"""Maximum trace of embeddings that are equal up to float32 rounding."""


def spectrum(z_KND: Tensor) -> Floats:
    """Eigenvalues `[K, D]` of the covariance of unit embeddings, ascending and at least 0."""
    return np.array([_eigenvalues(z_ND) for z_ND in z_KND])


def volume(eigenvalues_KD: Floats) -> Floats:
    """`logdet((1 - s) C + s I / D)` with s = `ISOTROPIC`, `[K]`. Since the trace is at most 1, the volume is at most
    `-D log D` (only for `C = I / D`) and at least `D log(s / D)` (all embeddings coincide)."""
    size = eigenvalues_KD.shape[-1]
    logdet_K: Floats = np.log((1 - ISOTROPIC) * eigenvalues_KD + ISOTROPIC / size).sum(-1)
    return logdet_K


def trace(eigenvalues_KD: Floats) -> Floats:
    """Trace of the covariance, `[K]`: 1 minus the squared length of the mean, in [0, 1]."""
    return np.minimum(eigenvalues_KD.sum(-1), 1.0)


def effective_rank(eigenvalues_KD: Floats) -> Floats:
    """`exp(-sum p log p)` for `p = eigenvalues / trace`, `[K]`: r if r eigenvalues are equal and the others 0; 1 if all
    embeddings coincide."""
    total_K1 = eigenvalues_KD.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        share_KD = eigenvalues_KD / total_K1
        entropy_K: Floats = -np.where(share_KD > 0, share_KD * np.log(share_KD), 0.0).sum(-1)
    rank_K = np.where(total_K1[:, 0] > ONE_POINT, np.exp(entropy_K), 1.0)
    return np.where(np.isfinite(total_K1[:, 0]), rank_K, math.nan)


def cosine(first_KND: Tensor, second_KND: Tensor) -> Floats:
    """Cosine between the two embeddings of an image, averaged over images, `[K]`, in [-1, 1]."""
    first_KND, second_KND = (F.normalize(z_KND.double(), dim=-1) for z_KND in (first_KND, second_KND))
    mean_K: Floats = (first_KND * second_KND).sum(-1).mean(-1).clamp(-1, 1).cpu().numpy()
    return mean_K


def view_variance(views_JKND: Sequence[Tensor]) -> Floats:
    """Variance of the embeddings of J views around their image's mean, divided by the variance of these means, `[K]`: 0
    if the views of an image coincide. Embeddings keep their lengths; the ratio does not depend on their common scale.
    NaN if all means coincide."""
    z_JKND = torch.stack([*views_JKND]).double()
    mean_KND = z_JKND.mean(0)
    within_K = (z_JKND - mean_KND).square().sum(-1).mean((0, -1))
    between_K = (mean_KND - mean_KND.mean(1, keepdim=True)).square().sum(-1).mean(-1)
    scale_K = z_JKND.square().sum(-1).mean((0, -1))
    ratio_K: Floats = torch.where(between_K > ONE_POINT * scale_K, within_K / between_K, math.nan).cpu().numpy()
    return ratio_K


def class_distance(z_KND: Tensor, labels_N: Tensor) -> Floats:
    """Mean of 1 - cosine over all pairs of different images of the same class, divided by its mean over pairs of
    different classes, `[K]`: 1 if classes are as wide as the whole set, 0 if each class is one point. NaN if all
    embeddings coincide, or without such pairs. Images without a label are ignored."""
    known_N = labels_N >= 0
    unit_KND, labels_N = F.normalize(z_KND[:, known_N].double(), dim=-1), labels_N[known_N]
    member_NC = F.one_hot(labels_N).double().to(unit_KND.device)
    sums_KCD, sizes_C = member_NC.mT @ unit_KND, member_NC.sum(0)
    own_K, of_class_K = unit_KND.square().sum((-2, -1)), sums_KCD.square().sum((-2, -1))
    of_all_K, pairs = sums_KCD.sum(1).square().sum(-1), (sizes_C * (sizes_C - 1)).sum()
    within_K = 1 - (of_class_K - own_K) / pairs
    between_K = 1 - (of_all_K - of_class_K) / (sizes_C.sum().square() - sizes_C.square().sum())
    ratio_K: Floats = torch.where(between_K > ONE_POINT, within_K / between_K, math.nan).cpu().numpy()
    return ratio_K


def _eigenvalues(z_ND: Tensor) -> Floats:
    z_ND = F.normalize(z_ND.double(), dim=-1)
    centred_ND = z_ND - z_ND.mean(0)
    covariance_DD = centred_ND.mT @ centred_ND / len(z_ND)
    if not bool(covariance_DD.isfinite().all()):
        return np.full(z_ND.shape[-1], math.nan)
    values: Floats = torch.linalg.eigvalsh(covariance_DD).clamp_min(0).cpu().numpy()
    return values


POSTERIOR_METRICS = ("var_mean", "var_cv")
"""Names of the metrics that `statistics` returns."""
SMALLEST_MEAN = 0.01
"""Mean variance below which the posterior counts as collapsed (0.00 in the paper); its variation is then noise."""


def statistics(var_KMD: Tensor) -> dict[str, Floats]:
    """Compute `var_mean` and `var_cv`, `[K]` each, from posterior variances.

    The variance of each dimension is averaged over the images. `var_mean` is the mean of these averages over
    dimensions. `var_cv` is their population standard deviation divided by `var_mean`: 0 if the posterior is isotropic,
    NaN if `var_mean < 0.01`. Both are NaN for a member whose variances do not have a finite sum.
    """
    average_KD = var_KMD.sum(1, dtype=torch.float64) / var_KMD.shape[1]
    average_KD = torch.where(average_KD.isfinite(), average_KD, torch.nan)
    mean_K = average_KD.mean(1)
    cv_K = torch.where(mean_K < SMALLEST_MEAN, torch.nan, average_KD.std(1, correction=0) / mean_K)
    return {name: values_K.cpu().numpy() for name, values_K in zip(POSTERIOR_METRICS, (mean_K, cv_K), strict=True)}


class EmbeddingGeometry(RepresentationEvaluator):
    """Geometry of the embeddings of evaluated images and of two views of each image, at every report."""

    needs_bank = False

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        if config.embeddings.geometry == "none":
            return ()
        of_views = [f"view_variance_{name}" for name in cls._vectors(config)]
        return ("effective_rank", "cosine", "volume", "trace", "norm", "class_distance", *of_views)

    @staticmethod
    def _vectors(config: ImageTrial) -> Sequence[str]:
        """Names of the vectors whose views are compared, beginning with the vectors of `geometry`."""
        asked = PROJECTION if config.embeddings.geometry == "projection" else "z"
        other = "z" if asked == PROJECTION else PROJECTION
        return (asked, other) if config.embeddings.compare_projection else (asked,)

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        names = self._vectors(self.config)
        plain_KMP = self._embedded(vectors, names[0], self.images.prepared(tested.images))
        views = {
            name: [self._embedded(vectors, name, self.images.views(tested.images, index)) for index in range(2)]
            for name in names
        }
        eigenvalues_KP = spectrum(plain_KMP)
        return {
            "effective_rank": effective_rank(eigenvalues_KP),
            "cosine": cosine(*views[names[0]]),
            "volume": volume(eigenvalues_KP),
            "trace": trace(eigenvalues_KP),
            "norm": plain_KMP.double().norm(dim=-1).mean(-1).cpu().numpy(),
            "class_distance": class_distance(plain_KMP, tested.labels),
            **{f"view_variance_{name}": view_variance(views[name]) for name in names},
        }

    def _embedded(self, vectors: Representations, name: str, batches: Iterator[Tensor]) -> Tensor:
        """Representations or projections `[K, M, P]` of prepared images."""
        if name == PROJECTION:
            return self.images.projected(vectors.stack, batches)
        return torch.cat([vectors.stack.evaluate("embed", batch_BCHW)["z"] for batch_BCHW in batches], dim=1)


MEAN_METRICS = ("mu_cosine", "mu_norm", "radius_difference")
"""Names of the metrics that compare the posterior's mean with its embedding."""


class PosteriorSpread(RepresentationEvaluator):
    """Statistics of the posterior's variance, and of its mean compared with the embedding, at every report."""

    needs_bank = False

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        beside = MEAN_METRICS if "mu" in method.representations and not method.projects(config.options) else ()
        return (*POSTERIOR_METRICS, *beside) if method.variance else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        assert vectors.method.variance
        test, method = vectors.test(tested), vectors.method
        metrics = statistics(test[vectors.method.variance])
        if "mu" not in method.representations or method.projects(self.config.options):
            return metrics
        z_KM, mu_KM = (test[name].double().norm(dim=-1) for name in ("z", "mu"))
        values = (cosine(test["z"], test["mu"]), mu_KM.mean(-1), (z_KM - mu_KM).abs().mean(-1))
        beside = {
            name: np.asarray(torch.as_tensor(each).cpu()) for name, each in zip(MEAN_METRICS, values, strict=True)
        }
        return {**metrics, **beside}
