"""A Gaussian over joint embeddings `[z_c; z_t]` of context and target: alignment, entropy and likelihood (GJE).

Shapes: B images, D dimensions of an embedding, or of a joint one, for which callers concatenate. Moments are about the
origin: the Gaussian's mean is zero on purpose. Gradients flow into all arguments.

Training with a Gaussian needs care (GJE, appendix O). The batch mean of `gaussian_nll` under the batch's own moment has
a constant quadratic form, so that its gradient only shrinks the embeddings; under any other fixed moment, shrinking
them lowers it too. GJE therefore minimises `alignment - weight * entropy` of unit vectors.
"""

from torch import Tensor

from trainables.losses.linear_algebra import cholesky, log_det, mahalanobis, product


def alignment(context_BD: Tensor, target_BD: Tensor) -> Tensor:
    """`||z_c - z_t||^2`, `[B]`, summed over dimensions: with their mean and the paper's weight of 1/(2D), the entropy
    of the joint embedding would win, and the views of an image would not align."""
    return (context_BD - target_BD).square().sum(-1)


def second_moment(z_BD: Tensor) -> Tensor:
    """`Z'Z / B`, `[D, D]`."""
    return product(z_BD.mT, z_BD) / z_BD.shape[-2]


def averaged_moment(average_DD: Tensor, z_BD: Tensor, decay: float | Tensor) -> Tensor:
    """`decay * average + (1 - decay) Z'Z / B`, `[D, D]`: a moving average that includes the batch. Gradients through
    the batch's share have its factor `1 - decay`; divide the weight of an entropy by it."""
    return decay * average_DD + (1 - decay) * second_moment(z_BD)


def entropy(moment_DD: Tensor, epsilon: float | Tensor) -> Tensor:
    """`logdet(S + epsilon I) / 2`, `[]`: the entropy of `N(0, S + epsilon I)` without `D/2 log(2 pi e)`. On unit
    vectors it is at most that of `S = I / D`."""
    return log_det(cholesky(moment_DD, epsilon)) / 2


def gaussian_nll(z_BD: Tensor, factor_DD: Tensor) -> Tensor:
    """`z' S^-1 z / 2 + logdet(S) / 2`, `[B]`, for `S = L L'` with the lower factor L; left out is `D/2 log(2 pi)` (GJE
    Eq. 9)."""
    return (mahalanobis(z_BD, factor_DD) + log_det(factor_DD)) / 2
