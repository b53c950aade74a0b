"""Where embeddings lie on the unit sphere: how far they fill it, and how near two views of an image are.

Every function scales embeddings to unit length first. Covariances are about the mean, with divisor N, in float64, so
that their trace is at most 1. A member with an embedding that is not finite gets NaN.
Shapes: K members, N images, D dimensions.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.evaluation.anomaly import Floats

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
