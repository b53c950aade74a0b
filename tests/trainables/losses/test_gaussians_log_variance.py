"""Entropy and divergences from the log-variance against torch, scipy and reference values; float64 unless said."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from tests.trainables.losses.samples import B, D, Inputs, close
from trainables.losses.densities import logvar_entropy, logvar_kl, logvar_kl_between


def test_reference_values() -> None:
    """Section 11 of SimVAE's specification."""
    assert logvar_entropy(torch.tensor([[0.0, -2.0]])).item() == pytest.approx(1.837877, abs=1e-6)
    mu, logvar = torch.tensor([[0.5]]), torch.tensor([[math.log(0.25)]])
    assert logvar_kl(mu, logvar).item() == pytest.approx(0.443147, abs=1e-6)


def test_entropy_equals_scipy(zsv: Inputs) -> None:
    _, _, var = zsv
    expected = [stats.multivariate_normal(np.zeros(D), np.diag(var_D)).entropy() for var_D in var.numpy()]
    close(logvar_entropy(var.log()), expected)


def test_divergences_equal_torch_distributions(zsv: Inputs) -> None:
    mu, prior_mu, var = zsv
    prior_var = var.roll(1, 0)
    posterior, prior = (torch.distributions.Normal(*pair) for pair in ((mu, var.sqrt()), (prior_mu, prior_var.sqrt())))
    standard = torch.distributions.Normal(torch.zeros(D).double(), torch.ones(D).double())
    expected = torch.distributions.kl_divergence(posterior, standard).sum(-1)
    close(logvar_kl(mu, var.log()), expected)
    expected = torch.distributions.kl_divergence(posterior, prior).sum(-1)
    close(logvar_kl_between(mu, var.log(), prior_mu, prior_var.log()), expected)


def test_divergence_is_zero_for_equals_alone_and_has_a_direction(zsv: Inputs) -> None:
    mu, other_mu, var = zsv
    logvar = var.log()
    assert torch.equal(logvar_kl_between(mu, logvar, mu, logvar), torch.zeros(B, dtype=torch.float64))
    forward, reverse = (
        logvar_kl_between(mu, logvar, other_mu, -logvar),
        logvar_kl_between(other_mu, -logvar, mu, logvar),
    )
    assert (forward > 0.1).all() and (reverse > 0.1).all() and ((forward - reverse).abs() > 0.1).all()
    zeros = torch.zeros_like(mu)
    assert torch.equal(logvar_kl(zeros, zeros), torch.zeros(B, dtype=torch.float64))


def test_small_divergences_are_not_lost_in_float32() -> None:
    """`logvar^2 / 4` near the prior: 2.5e-9 here, where `exp(logvar) - 1 - logvar` rounds to multiples of 6e-8."""
    logvar = torch.tensor([[1e-4], [-1e-4]])
    expected = logvar.double().square().sum(-1).float() / 4
    torch.testing.assert_close(logvar_kl(torch.zeros(2, 1), logvar), expected, rtol=2e-3, atol=0)
    actual = logvar_kl_between(torch.ones(2, 1), 0 * logvar, torch.ones(2, 1), -logvar)
    torch.testing.assert_close(actual, expected, rtol=2e-3, atol=0)


def test_gradients_equal_finite_differences(zsv: Inputs) -> None:
    mu, other_mu, var = (value.clone().requires_grad_() for value in zsv)
    logvar, other_logvar = (value.detach().requires_grad_() for value in (var.log(), -var.log() / 2))
    assert torch.autograd.gradcheck(logvar_entropy, (logvar,))
    assert torch.autograd.gradcheck(logvar_kl, (mu, logvar))
    assert torch.autograd.gradcheck(logvar_kl_between, (mu, logvar, other_mu, other_logvar))


def test_leading_dimensions_are_kept_and_members_stack(zsv: Inputs) -> None:
    mu, other_mu, var = zsv
    logvar, before = var.log(), mu.clone()
    pairs = torch.stack([mu, other_mu]), torch.stack([logvar, 2 * logvar])
    assert logvar_entropy(pairs[1]).shape == logvar_kl(*pairs).shape == (2, B)
    fused = torch.vmap(logvar_kl_between, (0, 0, None, None))(*pairs, other_mu, logvar)
    for value, pair_mu, pair_logvar in zip(fused, *pairs, strict=True):
        close(value, logvar_kl_between(pair_mu, pair_logvar, other_mu, logvar))
    assert torch.equal(mu, before)
