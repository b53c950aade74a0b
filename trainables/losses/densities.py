"""Negative log-likelihoods and divergences of Gaussian and Student-t factors.

Shapes: B samples, D dimensions. Every function returns one value per sample, `[B]`.
The degrees of freedom `nu > 0` are a float or a tensor that broadcasts against `[B]`; `nu = inf` is the exact Gaussian
limit. The losses leave out the constants that depend on `nu` and D alone; the `*_log_density` functions keep them.
"""

from __future__ import annotations

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
    return 0.5 * (math.log(2 * math.pi * math.e) + var_BD.log()).sum(-1)


def directional_log_density(z_BD: Tensor, s_BD: Tensor, var_BD: Tensor, nu: float | Tensor) -> Tensor:
    """Log-density of the directional factor with its constant `log C_{nu,D}` (VJE Eq. 13): comparable across `nu`.

    On the unit sphere it is a sub-density: it integrates to less than one there.
    """
    nll_B = directional_nll(z_BD, s_BD, var_BD, nu)
    return _student_log_constant(nu, z_BD.shape[-1]).to(nll_B.dtype) - nll_B


def radial_log_density(z_BD: Tensor, s_BD: Tensor, nu: float | Tensor) -> Tensor:
    """Log-density of the radial factor with its constant (VJE Eq. 28): comparable across `nu`."""
    nll_B = radial_nll(z_BD, s_BD, nu)
    return _student_log_constant(nu, 1).to(nll_B.dtype) - nll_B


def _student_exponent(q_B: Tensor, nu: float | Tensor, dimension: int) -> Tensor:
    """`(nu + d)/2 log(1 + q/nu)`, and `q/2` where `nu` is infinite; finite gradients on both sides."""
    if not isinstance(nu, Tensor):
        return q_B / 2 if math.isinf(nu) else (nu + dimension) / 2 * torch.log1p(q_B / nu)
    gaussian = torch.isinf(nu)
    finite_nu = torch.where(gaussian, 1.0, nu)
    return torch.where(gaussian, q_B / 2, (finite_nu + dimension) / 2 * torch.log1p(q_B / finite_nu))


def _student_log_constant(nu: float | Tensor, dimension: int) -> Tensor:
    """`log C_{nu,d}`, the normaliser of a standard d-variate Student-t; the Gaussian's where `nu` is infinite.

    In float64 always: for large `nu` it is a small difference of large numbers.
    """
    nu = torch.as_tensor(nu, dtype=torch.float64)
    gaussian = torch.isinf(nu)
    finite_nu = torch.where(gaussian, 1.0, nu)
    student = torch.lgamma((finite_nu + dimension) / 2) - torch.lgamma(finite_nu / 2)
    student = student - dimension / 2 * torch.log(finite_nu * math.pi)
    return torch.where(gaussian, -dimension / 2 * math.log(2 * math.pi), student)
