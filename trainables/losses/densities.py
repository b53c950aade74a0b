"""Negative log-likelihoods and divergences: Gaussian and Student-t factors, the prior of grouped latents, pixels.

Shapes: B samples, D dimensions. Every function returns one value per sample, `[B]`. Functions of `logvar` take the log
variance, which a network may return without bounds. The degrees of freedom `nu > 0` are a float or a tensor that
broadcasts against `[B]`; `nu = inf` is the exact Gaussian limit. Constants that depend only on `nu` and D are left out.

The prior of grouped latents integrates out the centre of each group (SimVAE Eq. 9). Shapes: B groups (the views of one
image each), J views, L latent dimensions; one value per group, `[B]`. Given its centre psi, the latents of a group are
`N(psi, sigma2 I)`. The centre is `N(0, I / precision)`, with `precision = 0` for the uniform (improper) centre. `sigma2
> 0` and a finite `precision >= 0` are floats or 0-dimensional tensors, and all functions are smooth in both. Constants
that depend only on sigma2, precision, J and L are left out, so a group of zeros has the value 0. For `precision > 0`
they are `(J-1) L/2 log(2 pi sigma2) + L/2 log J + L/2 log(2 pi (1/precision + sigma2/J))`.

The pixel likelihoods are those of images given the decoder's output for their latents. Shapes: B images of C channels,
H by W pixels in [0, 1]; further dimensions before C, such as views, are kept; one value per image, `[B]`, summed over
its pixels. `sigma2 > 0` and `divisor > 0` are floats or 0-dimensional tensors. Constants that depend only on sigma2 and
the number of pixels are left out.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST_NORM = 1e-6
"""Minimum of norms in divisions, as in VJE."""


def unit(x_BD: Tensor) -> Tensor:
    """`x / max(||x||, 1e-6)`, row by row, `[B, D]`."""
    return x_BD / torch.linalg.vector_norm(x_BD, dim=-1, keepdim=True).clamp_min(SMALLEST_NORM)


def directional_nll(z_BD: Tensor, s_BD: Tensor, var_BD: Tensor, nu: float | Tensor) -> Tensor:
    """Extrinsic Student-t on unit vectors (VJE Eqs. 7, 24): `(nu + D)/2 log(1 + Q/nu) + 1/2 sum log var`."""
    q_B = ((unit(s_BD) - unit(z_BD)).square() / var_BD).sum(-1)
    return _student_exponent(q_B, nu, z_BD.shape[-1]) + 0.5 * var_BD.log().sum(-1)


def radial_nll(z_BD: Tensor, s_BD: Tensor, nu: float | Tensor) -> Tensor:
    """Student-t on the difference of norms (VJE Eqs. 8, 29): `(nu + 1)/2 log(1 + (||z|| - ||s||)^2 / nu)`."""
    return _student_exponent(norm_difference(z_BD, s_BD).square(), nu, 1)


def norm_difference(z_BD: Tensor, s_BD: Tensor) -> Tensor:
    """`||z|| - ||s||`."""
    return torch.linalg.vector_norm(z_BD, dim=-1) - torch.linalg.vector_norm(s_BD, dim=-1)


def scaled_radial_nll(z_BD: Tensor, s_BD: Tensor, nu: float | Tensor, scale: Tensor, normaliser: bool) -> Tensor:
    """`radial_nll` with the difference divided by `scale > 0`, plus `log(scale)` if the `normaliser` of the density is
    kept. Without the normaliser the value falls as the scale grows, for any difference."""
    scaled_B = _student_exponent((norm_difference(z_BD, s_BD) / scale).square(), nu, 1)
    return scaled_B + scale.log() if normaliser else scaled_B


def euclidean_nll(z_BD: Tensor, s_BD: Tensor, var_BD: Tensor, nu: float | Tensor) -> Tensor:
    """Student-t on embeddings, without a split into direction and length (VJE Eq. 14): `(nu + D)/2 log(1 + sum (z -
    s)^2 / var / nu) + 1/2 sum log var`."""
    q_B = ((s_BD - z_BD).square() / var_BD).sum(-1)
    return _student_exponent(q_B, nu, z_BD.shape[-1]) + 0.5 * var_BD.log().sum(-1)


def gaussian_kl(mu_BD: Tensor, var_BD: Tensor) -> Tensor:
    """KL from `N(mu, diag var)` to `N(0, I)` (VJE Eqs. 9, 34), never negative."""
    return 0.5 * (var_BD + mu_BD.square() - 1 - var_BD.log()).sum(-1)


def gaussian_entropy(var_BD: Tensor) -> Tensor:
    """Differential entropy of `N(., diag var)` in nats."""
    return logvar_entropy(var_BD.log())


def logvar_entropy(logvar_BD: Tensor) -> Tensor:
    """Differential entropy of `N(., diag exp(logvar))` in nats."""
    return 0.5 * (math.log(2 * math.pi * math.e) + logvar_BD).sum(-1)


def logvar_kl(mu_BD: Tensor, logvar_BD: Tensor) -> Tensor:
    """KL from `N(mu, diag exp(logvar))` to `N(0, I)`."""
    return 0.5 * (mu_BD.square() + _expm1_excess(logvar_BD)).sum(-1)


def logvar_kl_between(mu_BD: Tensor, logvar_BD: Tensor, prior_mu_BD: Tensor, prior_logvar_BD: Tensor) -> Tensor:
    """KL from `N(mu, diag exp(logvar))` to `N(prior_mu, diag exp(prior_logvar))`."""
    distance_BD = (mu_BD - prior_mu_BD).square() * (-prior_logvar_BD).exp()
    return 0.5 * (distance_BD + _expm1_excess(logvar_BD - prior_logvar_BD)).sum(-1)


def _expm1_excess(x: Tensor) -> Tensor:
    """`exp(x) - 1 - x`, accurate even for results far below 1."""
    return x.expm1() - x


def _student_exponent(q_B: Tensor, nu: float | Tensor, dimension: int) -> Tensor:
    """`(nu + d)/2 log(1 + q/nu)`, or `q/2` if `nu` is infinite; gradients are finite in both cases."""
    if not isinstance(nu, Tensor):
        return q_B / 2 if math.isinf(nu) else (nu + dimension) / 2 * torch.log1p(q_B / nu)
    gaussian = torch.isinf(nu)
    finite_nu = torch.where(gaussian, 1.0, nu)
    return torch.where(gaussian, q_B / 2, (finite_nu + dimension) / 2 * torch.log1p(q_B / finite_nu))


def group_nll(z_BJL: Tensor, sigma2: float | Tensor, precision: float | Tensor) -> Tensor:
    """`S / (2 sigma2) + ||m||^2 / (2 (1/precision + sigma2/J))`, where m is the mean of the group and S the sum of the
    squared distances from it. With `precision = 0` it is SimVAE's Eq. 9."""
    return _nll(_spread(z_BJL), _squared_centre(z_BJL), z_BJL.shape[-2], sigma2, precision)


def expected_group_nll(mu_BJL: Tensor, logvar_BJL: Tensor, sigma2: float | Tensor, precision: float | Tensor) -> Tensor:
    """The exact expectation of `group_nll` over `z ~ N(mu, diag exp(logvar))`."""
    views = mu_BJL.shape[-2]
    variance_B = logvar_BJL.exp().sum((-2, -1))
    spread_B = _spread(mu_BJL) + (1 - 1 / views) * variance_B
    return _nll(spread_B, _squared_centre(mu_BJL) + variance_B / views**2, views, sigma2, precision)


def standard_centre_nll(z_BJL: Tensor) -> Tensor:
    """`||m||^2 / 2`: the standard normal term for the group's mean m that the authors' code adds to the prior with a
    uniform centre. It equals the centre's term of `group_nll` at `precision = 1 / (1 - sigma2/J)`."""
    return _squared_centre(z_BJL) / 2


def _nll(
    spread_B: Tensor, squared_centre_B: Tensor, views: int, sigma2: float | Tensor, precision: float | Tensor
) -> Tensor:
    """Writes the centre's weight `1 / (1/precision + sigma2/J)` such that it is 0 at `precision = 0`."""
    centre_weight = precision / (1 + precision * sigma2 / views)
    return (spread_B / sigma2 + centre_weight * squared_centre_B) / 2


def _spread(z_BJL: Tensor) -> Tensor:
    """Sum of the squared distances of a group's latents from their mean, `[B]`."""
    return (z_BJL - z_BJL.mean(-2, keepdim=True)).square().sum((-2, -1))


def _squared_centre(z_BJL: Tensor) -> Tensor:
    """Squared norm of a group's mean, `[B]`."""
    return z_BJL.mean(-2).square().sum(-1)


def gaussian_reconstruction(images_BCHW: Tensor, mean_BCHW: Tensor, sigma2: float | Tensor) -> Tensor:
    """`||x - mean||^2 / (2 sigma2)`; left out is `C H W / 2 log(2 pi sigma2)`."""
    return (images_BCHW - mean_BCHW).square().sum((-3, -2, -1)) / (2 * sigma2)


def bernoulli_reconstruction(images_BCHW: Tensor, logits_BCHW: Tensor, divisor: float | Tensor) -> Tensor:
    """Cross-entropy between the pixels and `sigmoid(logits)`, divided by `divisor`: 1 for the likelihood, exp(-4.6) =
    0.01005 in the authors' code. Finite for all logits."""
    entropies_BCHW = F.binary_cross_entropy_with_logits(logits_BCHW, images_BCHW, reduction="none")
    return entropies_BCHW.sum((-3, -2, -1)) / divisor
