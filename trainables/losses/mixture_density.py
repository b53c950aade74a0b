"""Mixture density networks: a mixture of diagonal Gaussians whose parameters a network predicts (GMJE, section 4.4).

Shapes: B samples, M components, D dimensions of the target. Predicted weights are `softmax(logits)`.

The network must not see the target. If it does, `mixture_density_nll` falls to its least value: with `sigma >= floor`,
that is `D (log(floor) + log(2 pi) / 2)`.
"""

import math

import torch.nn.functional as F
from torch import Tensor


def floored_softplus(raw: Tensor, floor: float | Tensor) -> Tensor:
    """`softplus(raw) + floor`: standard deviations from outputs without bounds."""
    return F.softplus(raw) + floor


def mixture_density_nll(target_BD: Tensor, logits_BM: Tensor, means_BMD: Tensor, sigma_BMD: Tensor) -> Tensor:
    """`-log sum_m pi_m N(target; mu_m, diag sigma_m^2)`, `[B]`, with all constants (GMJE Eq. 23, third term)."""
    return -log_mixture_density(target_BD, logits_BM.log_softmax(-1), means_BMD, sigma_BMD)


def log_mixture_density(target_BD: Tensor, log_weights_BM: Tensor, means_BMD: Tensor, sigma_BMD: Tensor) -> Tensor:
    """`log sum_m pi_m N(target; mu_m, diag sigma_m^2)`, `[B]`, for logarithms of weights that sum to one."""
    standardised_BMD = (target_BD[..., None, :] - means_BMD) / sigma_BMD
    log_densities_BMD = -standardised_BMD.square() / 2 - sigma_BMD.log() - math.log(2 * math.pi) / 2
    return (log_weights_BM + log_densities_BMD.sum(-1)).logsumexp(-1)
