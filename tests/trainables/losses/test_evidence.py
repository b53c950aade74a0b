"""The losses put together are the evidence of linear Gaussian models, which scipy knows exactly. In float64.

Shapes: J views, L = 2 latent dimensions, 1 by 1 by P pixels. A view is `x = W z + noise` of variance SIGMA2_X; the
latents of a group are a group of the prior. `expectation` is the exact mean of a quadratic loss over the posterior.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from tests.trainables.losses.samples import close
from trainables.losses.densities import (
    expected_group_nll,
    gaussian_reconstruction,
    group_nll,
    logvar_entropy,
    logvar_kl,
)

J, L, P = 3, 2, 5
SIGMA2, PRECISION, SIGMA2_X = 0.15, 0.7, 0.3
RANDOM = np.random.default_rng(0)
W = torch.tensor(RANDOM.normal(size=(P, L)))
X = torch.tensor(RANDOM.normal(size=(1, J, P)))
PIXELS_CONSTANT = P / 2 * math.log(2 * math.pi * SIGMA2_X)
PRIOR = np.kron(SIGMA2 * np.eye(J) + 1 / PRECISION, np.eye(L))
"""Covariance of all latents of a group, `[J L, J L]`."""
PRIOR_CONSTANT = 0.5 * np.linalg.slogdet(2 * math.pi * PRIOR)[1]


def _reconstruction(z_BJL: Tensor, weights: Tensor = W) -> Tensor:
    """Summed over the views, `[B]`."""
    means, images = z_BJL @ weights.mT, X.expand(len(z_BJL), J, P)
    return gaussian_reconstruction(images[:, :, None, None], means[:, :, None, None], SIGMA2_X).sum(1)


def _evidence(weights: Tensor, prior: np.ndarray) -> float:
    """log p(x) of all views."""
    map_all = np.kron(np.eye(J), weights.numpy())
    cov = map_all @ prior @ map_all.T + SIGMA2_X * np.eye(J * P)
    return float(stats.multivariate_normal(cov=cov).logpdf(X.numpy().ravel()))


def _posterior_precision(weights: Tensor, prior: np.ndarray) -> np.ndarray:
    map_all = np.kron(np.eye(J), weights.numpy())
    return np.linalg.inv(prior) + map_all.T @ map_all / SIGMA2_X


def _posterior_mean(weights: Tensor, precision: np.ndarray) -> Tensor:
    right = np.kron(np.eye(J), weights.numpy()).T @ X.numpy().ravel() / SIGMA2_X
    return torch.tensor(np.linalg.solve(precision, right).reshape(1, J, L))


def expectation(loss: Callable[[Tensor], Tensor], mu_1JL: Tensor, var_1JL: Tensor) -> Tensor:
    """Exact for quadratics in n variables: the mean over `mu +- sqrt(n var_i) e_i`."""
    size = mu_1JL.numel()
    steps = math.sqrt(size) * torch.cat([torch.eye(size), -torch.eye(size)]).double().reshape(-1, *mu_1JL.shape[1:])
    return loss(mu_1JL + steps * var_1JL.sqrt()).mean()


def test_joint_over_posterior_is_the_evidence_at_every_latent() -> None:
    """`log p(x, z) - log q(z|x)`, where q is the exact posterior over all views, which has correlations."""
    precision = _posterior_precision(W, PRIOR)
    mean, cov = _posterior_mean(W, precision), np.linalg.inv(precision)
    z_BJL = torch.tensor(RANDOM.normal(size=(6, J, L)))
    log_q = stats.multivariate_normal(mean.numpy().ravel(), cov).logpdf(z_BJL.reshape(6, -1).numpy())
    joint = _reconstruction(z_BJL) + J * PIXELS_CONSTANT + group_nll(z_BJL, SIGMA2, PRECISION) + PRIOR_CONSTANT
    close(joint + torch.tensor(log_q), np.full(6, -_evidence(W, PRIOR)), rtol=1e-10)


def test_a_factorised_posterior_misses_the_evidence_by_its_divergence() -> None:
    """SimVAE's ELBO at the best diagonal posterior: variances `1 / diag(P)` of the exact precision P, and its mean.
    The divergence from it to the exact posterior is `(sum log diag(P) - log det P) / 2`."""
    precision = _posterior_precision(W, PRIOR)
    mu_1JL, var_1JL = _posterior_mean(W, precision), torch.tensor(1 / np.diag(precision)).reshape(1, J, L)
    logvar_1JL = var_1JL.log()
    loss = expectation(_reconstruction, mu_1JL, var_1JL) - logvar_entropy(logvar_1JL).sum()
    loss = loss + expected_group_nll(mu_1JL, logvar_1JL, SIGMA2, PRECISION).sum() + J * PIXELS_CONSTANT + PRIOR_CONSTANT
    divergence = (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1]) / 2
    assert divergence > 0.1
    close(-loss, _evidence(W, PRIOR) - divergence, rtol=1e-10)


def test_the_vae_reaches_the_evidence_with_orthogonal_weights() -> None:
    """Then the exact posterior of each view is diagonal, and the standard normal prior's divergence is closed."""
    weights = torch.linalg.qr(W).Q * torch.tensor([2.0, 0.5])
    precision = _posterior_precision(weights, np.eye(J * L))
    mu_1JL, var_1JL = _posterior_mean(weights, precision), torch.tensor(1 / np.diag(precision)).reshape(1, J, L)
    loss = expectation(lambda z_BJL: _reconstruction(z_BJL, weights), mu_1JL, var_1JL)
    loss = loss + logvar_kl(mu_1JL, var_1JL.log()).sum() + J * PIXELS_CONSTANT
    close(-loss, _evidence(weights, np.eye(J * L)), rtol=1e-10)
