"""Where embeddings lie on the unit sphere, and how the posterior's variance is spread (VJE, section 3.3); both at every
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
from trainables.metrics.evaluator import EvaluationSet, Floats, RepresentationEvaluator, Representations

ISOTROPIC = 1e-6
"""Share of the isotropic covariance `I / D` that the volume mixes in, so that it is finite for collapsed embeddings."""
ONE_POINT = 1e-12
"""Largest trace of embeddings that are equal except for rounding in float32."""


def spectrum(z_KND: Tensor) -> Floats:
    """Eigenvalues `[K, D]` of the covariance of unit embeddings, ascending and at least 0."""
    return np.array([_eigenvalues(z_ND) for z_ND in z_KND])


def volume(eigenvalues_KD: Floats) -> Floats:
    """`logdet((1 - s) C + s I / D)` with s = `ISOTROPIC`, `[K]`. Its trace is at most 1, so it is at most `-D log D`,
    which `C = I / D` alone reaches, and at least `D log(s / D)`, which embeddings in one point have."""
    size = eigenvalues_KD.shape[-1]
    logdet_K: Floats = np.log((1 - ISOTROPIC) * eigenvalues_KD + ISOTROPIC / size).sum(-1)
    return logdet_K


def trace(eigenvalues_KD: Floats) -> Floats:
    """Trace of the covariance, `[K]`: 1 minus the squared length of the mean, in [0, 1]."""
    return np.minimum(eigenvalues_KD.sum(-1), 1.0)


def effective_rank(eigenvalues_KD: Floats) -> Floats:
    """`exp(-sum p log p)` for `p = eigenvalues / trace`, `[K]`: r where r eigenvalues are equal and the others 0. 1 for
    embeddings in one point."""
    total_K1 = eigenvalues_KD.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        share_KD = eigenvalues_KD / total_K1
        entropy_K: Floats = -np.where(share_KD > 0, share_KD * np.log(share_KD), 0.0).sum(-1)
    rank_K = np.where(total_K1[:, 0] > ONE_POINT, np.exp(entropy_K), 1.0)
    return np.where(np.isfinite(total_K1[:, 0]), rank_K, math.nan)


def cosine(first_KND: Tensor, second_KND: Tensor) -> Floats:
    """Cosine of the two embeddings of an image, the mean over images, `[K]`, in [-1, 1]."""
    first_KND, second_KND = (F.normalize(z_KND.double(), dim=-1) for z_KND in (first_KND, second_KND))
    mean_K: Floats = (first_KND * second_KND).sum(-1).mean(-1).clamp(-1, 1).cpu().numpy()
    return mean_K


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
"""Mean variance below which the posterior has collapsed (the paper prints 0.00); its variation is then noise."""


def statistics(var_KMD: Tensor) -> dict[str, Floats]:
    """Compute `var_mean` and `var_cv`, `[K]` each, from posterior variances.

    The variance of each dimension is averaged over the images. `var_mean` is the mean of these averages over
    dimensions. `var_cv` is their population standard deviation divided by `var_mean`: 0 if the posterior is isotropic,
    NaN if `var_mean < 0.01`. Both are NaN for a member whose variances have a sum that is not finite.
    """
    average_KD = var_KMD.sum(1, dtype=torch.float64) / var_KMD.shape[1]
    average_KD = torch.where(average_KD.isfinite(), average_KD, torch.nan)
    mean_K = average_KD.mean(1)
    cv_K = torch.where(mean_K < SMALLEST_MEAN, torch.nan, average_KD.std(1, correction=0) / mean_K)
    return {name: values_K.cpu().numpy() for name, values_K in zip(POSTERIOR_METRICS, (mean_K, cv_K), strict=True)}


class EmbeddingGeometry(RepresentationEvaluator):
    """Geometry of the embeddings of evaluated images, and of two views of each, at every report."""

    needs_bank = False

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        asked = config.embeddings.geometry != "none"
        return ("effective_rank", "cosine", "volume", "trace", "norm") if asked else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        plain_KMP = self._embedded(vectors, self.images.prepared(tested.images))
        first_KMP, second_KMP = (self._embedded(vectors, self.images.views(tested.images, index)) for index in range(2))
        eigenvalues_KP = spectrum(plain_KMP)
        return {
            "effective_rank": effective_rank(eigenvalues_KP),
            "cosine": cosine(first_KMP, second_KMP),
            "volume": volume(eigenvalues_KP),
            "trace": trace(eigenvalues_KP),
            "norm": plain_KMP.double().norm(dim=-1).mean(-1).cpu().numpy(),
        }

    def _embedded(self, vectors: Representations, batches: Iterator[Tensor]) -> Tensor:
        """Embeddings `[K, M, P]` of prepared images."""
        if self.config.embeddings.geometry == "projection":
            return torch.cat([vectors.stack.evaluate("project", batch_BCHW) for batch_BCHW in batches], dim=1)
        return torch.cat([vectors.stack.evaluate("embed", batch_BCHW)["z"] for batch_BCHW in batches], dim=1)


class PosteriorSpread(RepresentationEvaluator):
    """Statistics of the posterior's variance, at every report."""

    needs_bank = False

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return POSTERIOR_METRICS if method.variance else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        assert vectors.method.variance
        return statistics(vectors.test(tested)[vectors.method.variance])
