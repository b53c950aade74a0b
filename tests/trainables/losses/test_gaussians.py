"""The Gaussian's divergence and entropy against torch, scipy and sampling."""

import math

import numpy as np
import torch
from scipy import stats

from tests.trainables.losses.samples import B, D, Inputs, close
from trainables.losses.densities import gaussian_entropy, gaussian_kl


def test_kl_equals_torch_distributions_and_is_zero_at_the_prior(zsv: Inputs) -> None:
    mu, _, var = zsv
    posterior = torch.distributions.Normal(mu, var.sqrt())
    prior = torch.distributions.Normal(torch.zeros_like(mu), torch.ones_like(mu))
    close(gaussian_kl(mu, var), torch.distributions.kl_divergence(posterior, prior).sum(-1))
    assert torch.equal(gaussian_kl(torch.zeros_like(mu), torch.ones_like(mu)), torch.zeros(B, dtype=torch.float64))
    assert (gaussian_kl(mu, var) > 0).all()


def test_kl_and_entropy_equal_their_monte_carlo_means(zsv: Inputs) -> None:
    mu, _, var = (value[0].numpy() for value in zsv)
    mean, deviation = mu / 4, np.sqrt(var)
    draws = np.random.default_rng(0).normal(mean, deviation, (200_000, D))
    log_q = stats.norm.logpdf(draws, mean, deviation).sum(1)
    log_p = stats.norm.logpdf(draws).sum(1)
    for values, actual in (
        (log_q - log_p, gaussian_kl(torch.tensor(mean)[None], torch.tensor(var)[None])),
        (-log_q, gaussian_entropy(torch.tensor(var)[None])),
    ):
        assert abs(float(actual) - values.mean()) < 4 * values.std() / math.sqrt(len(values))


def test_entropy_equals_scipy(zsv: Inputs) -> None:
    mu, _, var = zsv
    expected = [stats.multivariate_normal(mu_D, np.diag(var_D)).entropy() for mu_D, var_D in zip(mu, var, strict=True)]
    close(gaussian_entropy(var), expected)


def test_gaussian_gradients_equal_finite_differences(zsv: Inputs) -> None:
    mu, _, var = (value.clone().requires_grad_() for value in zsv)
    assert torch.autograd.gradcheck(gaussian_kl, (mu, var))
    assert torch.autograd.gradcheck(gaussian_entropy, (var,))


def test_gaussian_functions_return_one_value_a_sample_and_leave_inputs(zsv: Inputs) -> None:
    mu, _, var = zsv
    before = mu.clone(), var.clone()
    assert gaussian_kl(mu, var).shape == gaussian_entropy(var).shape == (B,)
    assert torch.equal(mu, before[0]) and torch.equal(var, before[1])
