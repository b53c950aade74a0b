"""Losses and scores of networks that tell apart the transformations of images: cross-entropies, distances to the centre
of each transformation (GOAD), and Dirichlet densities of the predicted probabilities (GEOM).

Shapes: T transformations, each a class; B images, M classes of a head, D dimensions.
"""

import torch
from torch import Tensor

from trainables.losses.linear_algebra import squared_distances

ITERATIONS = 60
"""Newton's steps that fit Dirichlet densities. Each changes a parameter at most tenfold."""


def log_probability(logits_TBM: Tensor, labels_T: Tensor) -> Tensor:
    """Log probability of the class of each transformation, `[T, B]`."""
    labels_TB1 = labels_T[:, None, None].expand(-1, logits_TBM.shape[1], 1)
    return logits_TBM.log_softmax(-1).gather(-1, labels_TB1)[..., 0]


def triplet_centre(z_TBD: Tensor, margin: Tensor) -> Tensor:
    """How much the squared distance from the centre of a vector's own transformation, plus the margin, exceeds that
    from the nearest other centre, `[T, B]`. The centres are the means over the batch (GOAD Eq. 8)."""
    squared_TBT = squared_distances(z_TBD, z_TBD.mean(1))
    own_TB = squared_TBT.diagonal(dim1=0, dim2=-1).mT
    itself_T1T = torch.eye(len(z_TBD), dtype=torch.bool, device=z_TBD.device)[:, None]
    other_TB = squared_TBT.masked_fill(itself_T1T, torch.inf).amin(-1)
    return (own_TB + margin - other_TB).relu()


def fitted_dirichlet(mean_log_p_TM: Tensor) -> Tensor:
    """Parameters `[T, M]` of the likeliest Dirichlet densities of probabilities with these mean logarithms, by Newton's
    method (Minka, "Estimating a Dirichlet distribution", 2000)."""
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
