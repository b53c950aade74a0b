"""Cholesky factors that fail per matrix, and products in full precision.

Shapes: B samples, D dimensions, M other samples. Matrices and factors may have leading dimensions before `[D, D]`, such
as components.
"""

import torch
from torch import Tensor


def product(x: Tensor, y: Tensor) -> Tensor:
    """`x @ y` in the inputs' own precision, even under autocast."""
    with torch.autocast(x.device.type, enabled=False):
        return x @ y


def squared_distances(x_BD: Tensor, y_MD: Tensor) -> Tensor:
    """`||x - y||^2`, `[B, M]`, without a tensor `[B, M, D]`. Rounding errors are relative to the largest squared
    distance from the mean of y."""
    centre_D = y_MD.mean(-2, keepdim=True)
    x_BD, y_MD = x_BD - centre_D, y_MD - centre_D
    norms_BM = x_BD.square().sum(-1)[..., :, None] + y_MD.square().sum(-1)[..., None, :]
    return (norms_BM - 2 * product(x_BD, y_MD.mT)).clamp_min(0)


def cholesky(matrix_DD: Tensor, epsilon: float | Tensor = 0.0) -> Tensor:
    """Lower factor L of `matrix + epsilon I = L L'`. If the matrix is not positive definite, L and its gradients are
    NaN instead of an error, so that only the affected member of a stack diverges."""
    identity_DD = torch.eye(matrix_DD.shape[-1], dtype=matrix_DD.dtype, device=matrix_DD.device)
    factor_DD, failed = torch.linalg.cholesky_ex(matrix_DD + epsilon * identity_DD)
    return factor_DD * torch.where(failed > 0, torch.nan, 1.0).to(factor_DD.dtype)[..., None, None]


def positive_factor(raw_DD: Tensor) -> Tensor:
    """A lower factor with a positive diagonal from unbounded parameters: `raw` below the diagonal, and its exponential
    on the diagonal. Zeros give the identity."""
    return raw_DD.tril(-1) + raw_DD.diagonal(dim1=-2, dim2=-1).exp().diag_embed()


def log_det(factor_DD: Tensor) -> Tensor:
    """`logdet(L L')` of a lower factor L with a positive diagonal, `[]`."""
    return 2 * factor_DD.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def whiten(x_BD: Tensor, factor_DD: Tensor) -> Tensor:
    """`L^-1 x` for every row, `[B, D]`: its covariance is I if that of x is `L L'`."""
    return torch.linalg.solve_triangular(factor_DD, x_BD.mT, upper=False).mT


def mahalanobis(x_BD: Tensor, factor_DD: Tensor) -> Tensor:
    """`x' (L L')^-1 x` for every row, `[B]`."""
    return whiten(x_BD, factor_DD).square().sum(-1)
