"""Moments of embeddings over the batch: variance and decorrelation of dimensions (VICReg, Barlow Twins), and the
Gaussian over joint embeddings `[z_c; z_t]` of context and target (GJE).

Shapes: B images (at least 2), D dimensions of an embedding, or of a joint embedding that the caller concatenates.
Gradients flow into all arguments; callers weight the losses. VICReg uses unscaled embeddings and unbiased moments;
Barlow Twins standardises every dimension. GJE's moments are about the origin, because the Gaussian's mean is zero by
design.

Training with a Gaussian needs care (GJE, appendix O). The batch mean of `gaussian_nll` under the batch's own moment has
a constant quadratic form, so that its gradient only shrinks the embeddings; under any other fixed moment, shrinking
also lowers the loss. GJE therefore minimises `alignment - weight * entropy` of unit vectors.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.losses.linear_algebra import cholesky, log_det, mahalanobis, product

SMALLEST_DEVIATION = 1e-4
"""Minimum of standard deviations in divisions, so that a constant dimension correlates with nothing."""


def invariance(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """VICReg's s as in its authors' code: the mean squared difference over images and dimensions. The paper's Eq. 5
    sums over dimensions, which is D times as much."""
    return (first_BD - second_BD).square().mean()


def variance_hinge(z_BD: Tensor, epsilon: float | Tensor) -> Tensor:
    """VICReg's v: how far standard deviations fall short of 1, `mean_d max(0, 1 - sqrt(Var(z_d) + epsilon))`. `epsilon
    > 0` bounds the gradient, even for a constant dimension."""
    return (1 - (z_BD.var(0) + epsilon).sqrt()).relu().mean()


def covariance_penalty(z_BD: Tensor) -> Tensor:
    """VICReg's c: the sum of squared covariances between different dimensions, divided by D."""
    batch, dimension = z_BD.shape
    centred_BD = z_BD - z_BD.mean(0)
    return off_diagonal(_products(centred_BD, centred_BD) / (batch - 1)) / dimension


def cross_correlation(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """Pearson correlation over the batch between each dimension of one view and each dimension of the other, `[D, D]`
    in [-1, 1]. Rows and columns of constant dimensions are 0 (Barlow Twins Eq. 2)."""
    return _products(_standardised(first_BD), _standardised(second_BD))


def on_diagonal(matrix_DD: Tensor) -> Tensor:
    """Barlow Twins' invariance term: `sum_i (1 - C_ii)^2`."""
    return (1 - matrix_DD.diagonal()).square().sum()


def off_diagonal(matrix_DD: Tensor) -> Tensor:
    """Barlow Twins' redundancy term: `sum C_ij^2` over `i != j`."""
    diagonal = torch.eye(matrix_DD.shape[-1], dtype=torch.bool, device=matrix_DD.device)
    return matrix_DD.masked_fill(diagonal, 0).square().sum()


def _standardised(z_BD: Tensor) -> Tensor:
    """Standardised to mean 0 and biased standard deviation 1, divided by `sqrt(B)`: columns of unit length."""
    floor = SMALLEST_DEVIATION * math.sqrt(z_BD.shape[0])
    return F.normalize(z_BD - z_BD.mean(0), dim=0, eps=floor)


def _products(x_BD: Tensor, y_BD: Tensor) -> Tensor:
    """`x^T y`, `[D, D]`, in the inputs' own precision: bfloat16 would round small covariances away."""
    with torch.autocast(x_BD.device.type, enabled=False):
        return x_BD.mT @ y_BD


def alignment(context_BD: Tensor, target_BD: Tensor) -> Tensor:
    """`||z_c - z_t||^2`, `[B]`, summed over dimensions. With a mean over dimensions and a weight of 1/(2D), the entropy
    of the joint embedding would dominate, and the views of an image would not align."""
    return (context_BD - target_BD).square().sum(-1)


def second_moment(z_BD: Tensor) -> Tensor:
    """`Z'Z / B`, `[D, D]`."""
    return product(z_BD.mT, z_BD) / z_BD.shape[-2]


def averaged_moment(average_DD: Tensor, z_BD: Tensor, decay: float | Tensor) -> Tensor:
    """`decay * average + (1 - decay) Z'Z / B`, `[D, D]`: a moving average that includes the batch. Gradients through
    the batch are scaled by `1 - decay`; divide the weight of an entropy by this factor."""
    return decay * average_DD + (1 - decay) * second_moment(z_BD)


def entropy(moment_DD: Tensor, epsilon: float | Tensor) -> Tensor:
    """`logdet(S + epsilon I) / 2`, `[]`: the entropy of `N(0, S + epsilon I)` without `D/2 log(2 pi e)`. For unit
    vectors it is largest at `S = I / D`."""
    return log_det(cholesky(moment_DD, epsilon)) / 2


def gaussian_nll(z_BD: Tensor, factor_DD: Tensor) -> Tensor:
    """`z' S^-1 z / 2 + logdet(S) / 2`, `[B]`, for `S = L L'` with the lower factor L, without `D/2 log(2 pi)` (GJE Eq.
    9)."""
    return (mahalanobis(z_BD, factor_DD) + log_det(factor_DD)) / 2
