"""How well mixtures of Gaussians match a known conditional density.

Shapes: B points x, M components of one mixture, J of another, F branches. Densities `[..., B, M]` may have dimensions
before these, such as one of members. Components of standard deviation 0 are point masses.
"""

import math

import torch
from torch import Tensor

from trainables.contract import ConditionalDensity
from trainables.losses.mixtures import log_mixture_density


def equal_mixture(means_BM: Tensor, sigma: float) -> ConditionalDensity:
    """The mixture with these means, equal weights, and one standard deviation."""
    weight = 1 / means_BM.shape[-1]
    return ConditionalDensity(torch.full_like(means_BM, math.log(weight)), means_BM, torch.full_like(means_BM, sigma))


def mean(density: ConditionalDensity) -> Tensor:
    """The mean of y, `[B]`."""
    return (density.log_weights_BM.exp() * density.means_BM).sum(-1)


def variance_parts(density: ConditionalDensity) -> tuple[Tensor, Tensor]:
    """The variance of y in two parts, `[B]` each: within the components, which is noise, and between their means, which
    is how much they disagree. Their sum is the variance of y (GMJE Eq. 106)."""
    weights_BM = density.log_weights_BM.exp()
    deviations_BM = density.means_BM - mean(density)[..., None]
    return (weights_BM * density.sigmas_BM.square()).sum(-1), (weights_BM * deviations_BM.square()).sum(-1)


def log_likelihood(y_B: Tensor, density: ConditionalDensity) -> Tensor:
    """The log density at y, `[B]`."""
    means_BM1, sigmas_BM1 = density.means_BM[..., None], density.sigmas_BM[..., None]
    return log_mixture_density(y_B[..., None], density.log_weights_BM, means_BM1, sigmas_BM1)


def energy_distance(first: ConditionalDensity, second: ConditionalDensity) -> Tensor:
    """`2 E|X - Y| - E|X - X'| - E|Y - Y'|` at each x, `[B]`: twice the integral of the squared difference of the two
    distribution functions. At least 0."""
    between, within_first, within_second = (
        _mean_distance(*pair) for pair in ((first, second), (first, first), (second, second))
    )
    return 2 * between - within_first - within_second


def branches_recovered(
    density: ConditionalDensity, branches_BF: Tensor, tolerance: float, least_weight: float
) -> Tensor:
    """Share of the F branches within `tolerance` of a component's mean at each x, `[B]`. Components of a weight below
    `least_weight` do not count."""
    near_BMF = (density.means_BM[..., None] - branches_BF[..., None, :]).abs() <= tolerance
    counts_BM = density.log_weights_BM >= math.log(least_weight)
    return (near_BMF & counts_BM[..., None]).any(-2).to(density.means_BM.dtype).mean(-1)


def _mean_distance(first: ConditionalDensity, second: ConditionalDensity) -> Tensor:
    """`E|X - Y|`, `[B]`. The difference of two components is Gaussian, and its absolute value folded normal."""
    mean_BMJ = first.means_BM[..., :, None] - second.means_BM[..., None, :]
    sigma_BMJ = torch.hypot(first.sigmas_BM[..., :, None], second.sigmas_BM[..., None, :])
    ratio_BMJ = mean_BMJ / sigma_BMJ.clamp_min(torch.finfo(sigma_BMJ.dtype).tiny)
    spread_BMJ = sigma_BMJ * math.sqrt(2 / math.pi) * (-ratio_BMJ.square() / 2).exp()
    distance_BMJ = spread_BMJ + mean_BMJ * (ratio_BMJ / math.sqrt(2)).erf()
    weights_BM, weights_BJ = first.log_weights_BM.exp(), second.log_weights_BM.exp()
    return torch.einsum("...m,...j,...mj->...", weights_BM, weights_BJ, distance_BMJ)
