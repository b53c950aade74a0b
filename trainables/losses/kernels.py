"""Kernels between the images of a batch: dependence (HSIC) and Gaussian processes from context to target (GJE).

Shapes: B images, D dimensions, M other samples, F random features. The losses are scalars. Gradients flow into all
arguments. Callers of the Gaussian process must stop the gradient of the targets; otherwise targets vanish, and then all
contexts coincide. `length > 0` and `epsilon > 0` are floats or 0-dimensional tensors.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.losses.linear_algebra import cholesky, log_det, product, squared_distances, whiten


class DualTerms(NamedTuple):
    """The terms of the likelihood of targets Z under a Gaussian process with the batch covariance K."""

    quadratic: Tensor
    """`tr(Z' K^-1 Z)`."""
    log_det: Tensor
    """`logdet K`."""


def rbf_kernel(x_BD: Tensor, y_MD: Tensor, length: float | Tensor) -> Tensor:
    """`exp(-||x - y||^2 / (2 length^2))`, `[B, M]`."""
    return (-squared_distances(x_BD, y_MD) / (2 * length**2)).exp()


def median_length(z_BD: Tensor, floor: float | Tensor) -> Tensor:
    """The median distance between two different samples, `[]`, at least `floor > 0`, because for a constant embedding
    it is 0. For an even number of distances it is the lower of the two middle distances."""
    row, column = torch.triu_indices(z_BD.shape[0], z_BD.shape[0], 1, device=z_BD.device)
    median = squared_distances(z_BD, z_BD)[row, column].median()
    return median.clamp_min(floor**2).sqrt()


def hsic(first_BB: Tensor, second_BB: Tensor) -> Tensor:
    """`tr(K_1 H K_2 H) / (B - 1)^2` with `H = I - 11'/B`, at least 0 (GJE, appendix I). C equal clusters without spread
    score about `(C - 1) / C^2`, with a maximum at C = 2: on its own, this loss does not learn many classes."""
    centred_BB = first_BB - first_BB.mean(-1, keepdim=True) - first_BB.mean(-2, keepdim=True) + first_BB.mean()
    return (centred_BB * second_BB).sum() / (len(first_BB) - 1) ** 2


def dual_terms(target_BD: Tensor, kernel_BB: Tensor, epsilon: float | Tensor) -> DualTerms:
    """Terms for `K = kernel + epsilon I`, in O(B^3)."""
    factor_BB = cholesky(kernel_BB, epsilon)
    return DualTerms(whiten(target_BD.mT, factor_BB).square().sum(), log_det(factor_BB))


def random_features(z_BD: Tensor, frequencies_DF: Tensor, phases_F: Tensor, length: float | Tensor) -> Tensor:
    """Features `[B, F]` whose products approach the RBF kernel as F grows: `sqrt(2/F) cos(z W / length + b)`, with
    standard normal frequencies W and phases b uniform in [0, 2 pi)."""
    angles_BF = product(z_BD, frequencies_DF) / length + phases_F
    return math.sqrt(2 / frequencies_DF.shape[-1]) * angles_BF.cos()


def feature_dual_terms(target_BD: Tensor, features_BF: Tensor, epsilon: float | Tensor) -> DualTerms:
    """Terms for `K = Phi Phi' + epsilon I` without a matrix `[B, B]`, in O(B F^2) (GJE, appendix H).

    With the ridge regression `A = (Phi'Phi + epsilon I)^-1 Phi' Z`, the quadratic term is `||Z - Phi A||^2 / epsilon +
    ||A||^2`. Unlike the difference in Woodbury's identity divided by `epsilon`, this is a minimum over A and a sum of
    positive terms, so rounding errors of A hardly matter.
    """
    batch, size = features_BF.shape
    factor_FF = cholesky(product(features_BF.mT, features_BF), epsilon)
    ridge_FD = torch.cholesky_solve(product(features_BF.mT, target_BD), factor_FF)
    residual_BD = target_BD - product(features_BF, ridge_FD)
    log_epsilon = epsilon.to(features_BF.dtype).log() if isinstance(epsilon, Tensor) else math.log(epsilon)
    return DualTerms(
        residual_BD.square().sum() / epsilon + ridge_FD.square().sum(),
        log_det(factor_FF) + (batch - size) * log_epsilon,
    )


def gaussian_process_posterior(
    x_MD: Tensor, training_BD: Tensor, factor_BB: Tensor, dual_B: Tensor, length: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance of the function at new samples, `[M]` each, under the RBF kernel (GJE Eq. 5). `factor` is the
    lower Cholesky factor of the training samples' covariance K, including noise, and `dual` is `K^-1 z`. The variance
    is that of the function without noise."""
    cross_MB = rbf_kernel(x_MD, training_BD, length)
    explained_M = whiten(cross_MB, factor_BB).square().sum(-1)
    return product(cross_MB, dual_B), (1 - explained_M).clamp_min(0)


def gaussian_process_nll(terms: DualTerms, outputs: int) -> Tensor:
    """`quadratic / 2 + outputs / 2 * logdet K`, `[]`, summed over the batch, without the constant with 2 pi. `outputs`
    is D for a likelihood (GJE Eq. 3), and 1 for the dual of the Gaussian's loss (appendix J)."""
    return (terms.quadratic + outputs * terms.log_det) / 2
