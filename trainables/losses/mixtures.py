"""Mixtures of Gaussians over joint embeddings `[z_c; z_t]`: prototypes, marginals, conditionals, and mixtures of
diagonal Gaussians whose parameters a network predicts (GMJE; mixture density networks are its section 4.4).

Shapes: B samples, M components, D dimensions; a joint vector has E = C + T dimensions: first C for the context, then T
for the target. Weights are `softmax(logits)`, so zeros are uniform weights and log weights are valid logits. Exponents
`[B, M]` are the components' log densities; each function states the terms that it leaves out.

A network that predicts a mixture must not see the target. If it does, `mixture_density_nll` falls to its minimum: with
`sigma >= floor`, this is `D (log(floor) + log(2 pi) / 2)`.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.losses.linear_algebra import cholesky, log_det, mahalanobis, product, squared_distances, whiten


class ConditionalMixture(NamedTuple):
    """The density of targets given a context, again a mixture of Gaussians."""

    log_weights_BM: Tensor
    """Log weights; the weights sum to 1."""
    means_BMT: Tensor
    covariances_MTT: Tensor
    """Covariances, the same for every context."""


def isotropic_exponents(z_BD: Tensor, means_MD: Tensor, tau: float | Tensor) -> Tensor:
    """`-||z - mu||^2 / (2 tau)`, `[B, M]`, for `S = tau I` with tau as a temperature, without `D/2 log(2 pi tau)`. For
    unit vectors this is the cosine divided by tau, up to a constant."""
    return -squared_distances(z_BD, means_MD) / (2 * tau)


def shared_exponents(z_BD: Tensor, means_MD: Tensor, factor_DD: Tensor) -> Tensor:
    """`-(z - mu)' S^-1 (z - mu) / 2`, `[B, M]`, for `S = L L'` shared by all components, without `logdet(2 pi S) / 2`.
    A loss must add its part with S."""
    return -squared_distances(whiten(z_BD, factor_DD), whiten(means_MD, factor_DD)) / 2


def component_exponents(z_BD: Tensor, means_MD: Tensor, factor_MDD: Tensor) -> Tensor:
    """`-(z - mu)' S^-1 (z - mu) / 2 - logdet(S) / 2`, `[B, M]`, for each component's own `S = L L'`, without `D/2 log(2
    pi)`."""
    deviation_MBD = z_BD - means_MD[:, None]
    return -(mahalanobis(deviation_MBD, factor_MDD).mT + log_det(factor_MDD)) / 2


def prototype_nll(exponents_BM: Tensor, logits: Tensor) -> Tensor:
    """`-log sum_m pi_m exp(exponent_m)`, `[B]`, for logits `[M]` or `[B, M]`. Its gradient with respect to the
    exponents is minus the responsibilities, `softmax(logits + exponents)` (GMJE Eq. 16)."""
    return -(logits.log_softmax(-1) + exponents_BM).logsumexp(-1)


def weight_entropy(logits_BM: Tensor) -> Tensor:
    """Entropy of the weights divided by the entropy of equal weights, `[B]`: 1 for equal weights, 0 if one component
    has all the weight or is the only one."""
    log_weights_BM = logits_BM.log_softmax(-1)
    return -(log_weights_BM.exp() * log_weights_BM).sum(-1) / math.log(max(logits_BM.shape[-1], 2))


def data_as_mode_nll(
    context_BD: Tensor, target_BD: Tensor, mode_context_MD: Tensor, mode_target_MD: Tensor, tau: float | Tensor
) -> Tensor:
    """`-log p(z_t | z_c)`, `[B]`, where M samples are the modes, equally weighted and isotropic with variance tau (GMJE
    Eqs. 27 to 31), without `D/2 log(2 pi tau)`.

    It is InfoNCE of unit vectors under four conditions: contexts and targets of the modes are equal, each target is a
    mode, the numerator contains only that mode, and the denominator contains only the modes. Without the third
    condition, it is smaller by `log sum_m exp(-(d_m - d) / (2 tau))`, where `d_m = ||z_c - mu_c||^2 + ||z_t - mu_t||^2`
    is the distance of mode m and d the distance of the matching mode. As tau becomes small, this difference vanishes if
    the matching mode is the nearest; otherwise it grows as `(d - min d_m) / (2 tau)`.
    """
    context_BM = isotropic_exponents(context_BD, mode_context_MD, tau)
    joint_BM = context_BM + isotropic_exponents(target_BD, mode_target_MD, tau)
    return context_BM.logsumexp(-1) - joint_BM.logsumexp(-1)


def matching_mode_nll(context_BD: Tensor, target_BD: Tensor, tau: float | Tensor) -> Tensor:
    """`data_as_mode_nll`, `[B]`, with the targets as modes in both halves, where only its own mode explains a target:
    `-log(exp(-||z_c - z_t||^2 / (2 tau)) / sum_m exp(-||z_c - z_m||^2 / (2 tau)))`. On unit vectors it is InfoNCE of a
    context against all targets."""
    exponents_BB = isotropic_exponents(context_BD, target_BD, tau)
    return exponents_BB.logsumexp(-1) - exponents_BB.diagonal(dim1=-2, dim2=-1)


def marginal(means_ME: Tensor, covariances_MEE: Tensor, dimensions: slice) -> tuple[Tensor, Tensor]:
    """Means and covariances of a subset of dimensions; the marginal mixture has the same weights (GMJE Eqs. 97 and
    98)."""
    return means_ME[:, dimensions], covariances_MEE[:, dimensions, dimensions]


def conditional(context_BC: Tensor, logits_M: Tensor, means_ME: Tensor, covariances_MEE: Tensor) -> ConditionalMixture:
    """The density of the last T dimensions given the first C (GMJE Eqs. 102 to 104). With one component of mean zero
    this is the Gaussian's linear predictor (GJE Eq. 10)."""
    size = context_BC.shape[-1]
    mean_MC, covariance_MCC = marginal(means_ME, covariances_MEE, slice(size))
    mean_MT, covariance_MTT = marginal(means_ME, covariances_MEE, slice(size, None))
    factor_MCC, cross_MCT = cholesky(covariance_MCC), covariances_MEE[:, :size, size:]
    gain_MCT = torch.cholesky_solve(cross_MCT, factor_MCC)
    shift_MBT = product(context_BC - mean_MC[:, None], gain_MCT)
    return ConditionalMixture(
        (logits_M + component_exponents(context_BC, mean_MC, factor_MCC)).log_softmax(-1),
        (mean_MT[:, None] + shift_MBT).transpose(0, 1),
        covariance_MTT - product(cross_MCT.mT, gain_MCT),
    )


def floored_softplus(raw: Tensor, floor: float | Tensor) -> Tensor:
    """`softplus(raw) + floor`: standard deviations from unbounded outputs."""
    return F.softplus(raw) + floor


def mixture_density_nll(target_BD: Tensor, logits_BM: Tensor, means_BMD: Tensor, sigma_BMD: Tensor) -> Tensor:
    """`-log sum_m pi_m N(target; mu_m, diag sigma_m^2)`, `[B]`, with all constants (GMJE Eq. 23, third term)."""
    return -log_mixture_density(target_BD, logits_BM.log_softmax(-1), means_BMD, sigma_BMD)


def log_mixture_density(target_BD: Tensor, log_weights_BM: Tensor, means_BMD: Tensor, sigma_BMD: Tensor) -> Tensor:
    """`log sum_m pi_m N(target; mu_m, diag sigma_m^2)`, `[B]`, for log weights whose weights sum to 1."""
    standardised_BMD = (target_BD[..., None, :] - means_BMD) / sigma_BMD
    log_densities_BMD = -standardised_BMD.square() / 2 - sigma_BMD.log() - math.log(2 * math.pi) / 2
    return (log_weights_BM + log_densities_BMD.sum(-1)).logsumexp(-1)
