"""Negative log-likelihoods and divergences of Gaussian and Student-t factors.

Shapes: B samples, D dimensions. Every function returns one value per sample, `[B]`. Functions of `logvar` take the
logarithm of the variance, which a network may return without bounds.
The degrees of freedom `nu > 0` are a float or a tensor that broadcasts against `[B]`; `nu = inf` is the exact Gaussian
limit. Constants that depend on `nu` and D alone are left out.
"""

import math

import torch
from torch import Tensor

SMALLEST_NORM = 1e-6
"""Norms are floored here before a division (VJE, section 1)."""


def unit(x_BD: Tensor) -> Tensor:
    """`x / max(||x||, 1e-6)`, row by row, `[B, D]`."""
    return x_BD / torch.linalg.vector_norm(x_BD, dim=-1, keepdim=True).clamp_min(SMALLEST_NORM)


def directional_nll(z_BD: Tensor, s_BD: Tensor, var_BD: Tensor, nu: float | Tensor) -> Tensor:
    """Extrinsic Student-t on unit vectors (VJE Eqs. 7, 24): `(nu + D)/2 log(1 + Q/nu) + 1/2 sum log var`."""
    q_B = ((unit(s_BD) - unit(z_BD)).square() / var_BD).sum(-1)
    return _student_exponent(q_B, nu, z_BD.shape[-1]) + 0.5 * var_BD.log().sum(-1)


def radial_nll(z_BD: Tensor, s_BD: Tensor, nu: float | Tensor) -> Tensor:
    """Student-t on the difference of norms (VJE Eqs. 8, 29): `(nu + 1)/2 log(1 + (||z|| - ||s||)^2 / nu)`."""
    difference_B = torch.linalg.vector_norm(z_BD, dim=-1) - torch.linalg.vector_norm(s_BD, dim=-1)
    return _student_exponent(difference_B.square(), nu, 1)


def gaussian_kl(mu_BD: Tensor, var_BD: Tensor) -> Tensor:
    """KL from `N(mu, diag var)` to `N(0, I)` (VJE Eqs. 9, 34), never negative."""
    return 0.5 * (var_BD + mu_BD.square() - 1 - var_BD.log()).sum(-1)


def gaussian_entropy(var_BD: Tensor) -> Tensor:
    """Differential entropy of `N(., diag var)` in nats."""
    return logvar_entropy(var_BD.log())


def logvar_entropy(logvar_BD: Tensor) -> Tensor:
    """Differential entropy of `N(., diag exp(logvar))` in nats (SimVAE Eq. 5)."""
    return 0.5 * (math.log(2 * math.pi * math.e) + logvar_BD).sum(-1)


def logvar_kl(mu_BD: Tensor, logvar_BD: Tensor) -> Tensor:
    """KL from `N(mu, diag exp(logvar))` to `N(0, I)` (SimVAE Eq. 6)."""
    return 0.5 * (mu_BD.square() + _expm1_excess(logvar_BD)).sum(-1)


def logvar_kl_between(mu_BD: Tensor, logvar_BD: Tensor, prior_mu_BD: Tensor, prior_logvar_BD: Tensor) -> Tensor:
    """KL from `N(mu, diag exp(logvar))` to `N(prior_mu, diag exp(prior_logvar))` (SimVAE Eq. 7)."""
    distance_BD = (mu_BD - prior_mu_BD).square() * (-prior_logvar_BD).exp()
    return 0.5 * (distance_BD + _expm1_excess(logvar_BD - prior_logvar_BD)).sum(-1)


def _expm1_excess(x: Tensor) -> Tensor:
    """`exp(x) - 1 - x`, also where that is far below 1."""
    return x.expm1() - x


def _student_exponent(q_B: Tensor, nu: float | Tensor, dimension: int) -> Tensor:
    """`(nu + d)/2 log(1 + q/nu)`, and `q/2` where `nu` is infinite; finite gradients on both sides."""
    if not isinstance(nu, Tensor):
        return q_B / 2 if math.isinf(nu) else (nu + dimension) / 2 * torch.log1p(q_B / nu)
    gaussian = torch.isinf(nu)
    finite_nu = torch.where(gaussian, 1.0, nu)
    return torch.where(gaussian, q_B / 2, (finite_nu + dimension) / 2 * torch.log1p(q_B / finite_nu))
