"""One-class losses and scores: distances to a centre and a sphere around it (Deep SVDD), and reconstruction errors. For
networks that classify transformations of images: cross-entropies, distances to the centre of each transformation
(GOAD), and Dirichlet densities of the predicted probabilities (GEOM).

Shapes: B images, D dimensions of a representation; C channels, H by W pixels; T transformations, each a class, M
classes of a head. All results are float32.
"""

import torch
from torch import Tensor

from trainables.losses.linear_algebra import squared_distances

ITERATIONS = 60
"""Number of Newton steps that fit Dirichlet densities. Each step changes a parameter at most tenfold."""


def bounded_centre(mean_D: Tensor, margin: float) -> Tensor:
    """The mean, with entries of smaller absolute value than the margin set to plus or minus the margin by their sign; 0
    counts as positive. An entry of 0 could be matched by zero weights."""
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
    Unlike torch.quantile it allows a different share for each member of a stack."""
    sorted_B = values_B.sort().values
    place = share * (len(sorted_B) - 1)
    low = place.floor()
    pair_2 = torch.stack([low, place.ceil()]).long().clamp(0, len(sorted_B) - 1)
    below, above = sorted_B.gather(0, pair_2).unbind()
    return below + (place - low) * (above - below)


def squared_error(images_BCHW: Tensor, decoded_BCHW: Tensor) -> Tensor:
    """Squared error of each reconstructed image, summed over its pixels, `[B]`."""
    return (images_BCHW - decoded_BCHW).square().sum((-3, -2, -1))


def relative_variance(z_BD: Tensor) -> Tensor:
    """Variance of vectors around their mean, divided by their mean squared length, in [0, 1]: 0 if all vectors are
    equal, also for vectors of length 0."""
    variance = (z_BD - z_BD.mean(0)).square().sum(-1).mean()
    return variance / z_BD.square().sum(-1).mean().clamp_min(torch.finfo(z_BD.dtype).tiny)


def log_probability(logits_TBM: Tensor, labels_T: Tensor | None = None) -> Tensor:
    """Log probability of the class of each transformation, `[T, B]`. By default each transformation is its own
    class."""
    labels_T = torch.arange(len(logits_TBM), device=logits_TBM.device) if labels_T is None else labels_T
    labels_TB1 = labels_T[:, None, None].expand(-1, logits_TBM.shape[1], 1)
    return logits_TBM.log_softmax(-1).gather(-1, labels_TB1)[..., 0]


def triplet_centre(z_TBD: Tensor, margin: Tensor) -> Tensor:
    """How much the squared distance from a vector's own centre, plus the margin, exceeds the squared distance from the
    nearest other centre, `[T, B]`. The centre of a transformation is its mean over the batch (GOAD Eq. 8)."""
    squared_TBT = squared_distances(z_TBD, z_TBD.mean(1))
    own_TB = squared_TBT.diagonal(dim1=0, dim2=-1).mT
    itself_T1T = torch.eye(len(z_TBD), dtype=torch.bool, device=z_TBD.device)[:, None]
    other_TB = squared_TBT.masked_fill(itself_T1T, torch.inf).amin(-1)
    return (own_TB + margin - other_TB).relu()


def fitted_dirichlet(mean_log_p_TM: Tensor) -> Tensor:
    """Parameters `[T, M]` of the maximum-likelihood Dirichlet densities for probabilities with these mean logarithms,
    by Newton's method (Minka, "Estimating a Dirichlet distribution", 2000)."""
    mean_TM = mean_log_p_TM.double()
    alpha_TM = torch.ones_like(mean_TM)
    for _ in range(ITERATIONS):
        sum_T1 = alpha_TM.sum(-1, keepdim=True)
        gradient_TM = torch.digamma(sum_T1) - torch.digamma(alpha_TM) + mean_TM
        diagonal_TM, constant_T1 = -torch.polygamma(1, alpha_TM), torch.polygamma(1, sum_T1)
        common_T1 = (gradient_TM / diagonal_TM).sum(-1, keepdim=True)
        common_T1 = common_T1 / (1 / constant_T1 + (1 / diagonal_TM).sum(-1, keepdim=True))
        step_TM = (gradient_TM - common_T1) / diagonal_TM
        alpha_TM = torch.minimum(torch.maximum(alpha_TM - step_TM, alpha_TM / 10), alpha_TM * 10)
    return alpha_TM.to(mean_log_p_TM.dtype)
