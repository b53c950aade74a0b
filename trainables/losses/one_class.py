"""Losses of one class: distances to a centre and a sphere around it (Deep SVDD), and errors of reconstructed images.

Shapes: B images, D dimensions of a representation; C channels, H by W pixels. All numbers of a batch are in float32.
"""

import torch
from torch import Tensor


def bounded_centre(mean_D: Tensor, margin: float) -> Tensor:
    """The mean with entries nearer to 0 than the margin moved to plus or minus the margin, by their sign; 0 counts as
    positive. Weights of 0 would reach an entry of 0."""
    least_D = torch.full_like(mean_D, margin)
    return torch.where(mean_D.abs() < margin, torch.where(mean_D < 0, -least_D, least_D), mean_D)


def squared_distance(z_BD: Tensor, centre_D: Tensor) -> Tensor:
    """`||z - c||^2`, `[B]`."""
    return (z_BD - centre_D).square().sum(-1)


def soft_boundary(distance_B: Tensor, radius: Tensor, nu: Tensor) -> Tensor:
    """Squared radius of the sphere plus the mean excess of squared distances beyond it over `nu` in (0, 1]:
    `R^2 + mean max(0, d - R^2) / nu`."""
    return radius.square() + (distance_B - radius.square()).relu().mean() / nu


def quantile(values_B: Tensor, share: Tensor) -> Tensor:
    """The quantile of at least one value at a `share` in [0, 1], with linear interpolation between order statistics.
    Unlike torch.quantile it takes another share for each member of a stack."""
    sorted_B = values_B.sort().values
    place = share * (len(sorted_B) - 1)
    low = place.floor()
    pair_2 = torch.stack([low, place.ceil()]).long().clamp(0, len(sorted_B) - 1)
    below, above = sorted_B.gather(0, pair_2).unbind()
    return below + (place - low) * (above - below)


def squared_error(images_BCHW: Tensor, decoded_BCHW: Tensor) -> Tensor:
    """Squared error of each reconstructed image, the sum over its pixels, `[B]`."""
    return (images_BCHW - decoded_BCHW).square().sum((-3, -2, -1))


def relative_variance(z_BD: Tensor) -> Tensor:
    """Variance of vectors around their mean, over their mean squared length, in [0, 1]: 0 where all are one vector.
    0 for vectors of length 0."""
    variance = (z_BD - z_BD.mean(0)).square().sum(-1).mean()
    return variance / z_BD.square().sum(-1).mean().clamp_min(torch.finfo(z_BD.dtype).tiny)
