"""InfoNCE against weighted particles, their weights and effective sample size, against loops; float64 unless said.

Shapes: B images, D dimensions, M particles of the bank, P of the pool.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor

from tests.trainables.losses.normals import covariance, normal, unit_normal
from tests.trainables.losses.samples import close
from trainables.losses.linear_algebra import cholesky
from trainables.losses.mixtures import shared_exponents
from trainables.losses.particles import effective_sample_size, reweighted, similarities, weighted_info_nce
from trainables.losses.similarity import info_nce

B, D, M, K = 5, 4, 7, 3
QUERY, KEY, BANK, LOG_WEIGHTS = normal(B, D), normal(B, D, seed=1), normal(M, D, seed=2), normal(M, seed=3)


def _loss(query: Tensor, key: Tensor, bank: Tensor, log_weights: Tensor, tau: float | Tensor) -> Tensor:
    """As a method computes it: one matrix of similarities with the whole pool."""
    negative_BM, key_BB = similarities(query, torch.cat([bank, key]), tau).split((len(bank), len(key)), -1)
    return weighted_info_nce(key_BB.diagonal(), negative_BM, log_weights)


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_uniform_weights_make_it_mocos_loss(tau: float) -> None:
    for uniform in (torch.zeros(M), torch.full((M,), -math.log(M))):
        close(_loss(QUERY, KEY, BANK, uniform, tau), info_nce(QUERY, KEY, BANK, tau))


@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_a_negative_counts_as_often_as_its_share_of_the_bank(tau: float) -> None:
    weights = np.exp(LOG_WEIGHTS.numpy()) / np.exp(LOG_WEIGHTS.numpy()).sum()
    expected = []
    for query, key in zip(QUERY.numpy(), KEY.numpy(), strict=True):
        positive = math.exp(_cosine(query, key) / tau)
        negatives = sum(M * w * math.exp(_cosine(query, z) / tau) for w, z in zip(weights, BANK.numpy(), strict=True))
        expected.append(-math.log(positive / (positive + negatives)))
    close(_loss(QUERY, KEY, BANK, LOG_WEIGHTS, tau), expected)


def test_weights_that_are_counts_are_a_bank_with_copies() -> None:
    counts = torch.tensor([3, 0, 1, 0, 2, 1, 0])
    copies = BANK.repeat_interleave(counts, dim=0)
    assert len(copies) == M
    close(_loss(QUERY, KEY, BANK, counts.double().log(), 0.3), info_nce(QUERY, KEY, copies, 0.3))


def test_new_weights_are_the_old_times_the_sum_over_the_batch() -> None:
    """Eq. 33, over the pool of bank and targets, from uniform and from other weights."""
    pool, tau = np.concatenate([BANK.numpy(), KEY.numpy()]), 0.2
    exponents = similarities(QUERY, torch.tensor(pool), tau)
    for old in (torch.zeros(M + B).double(), normal(M + B, seed=4)):
        sums = [sum(math.exp(_cosine(query, z) / tau) for query in QUERY.numpy()) for z in pool]
        weights = np.exp(old.numpy()) * sums
        close(reweighted(old, exponents).exp(), weights / weights.sum())


def test_joint_particles_are_weighted_by_their_gaussians() -> None:
    """Appendix N: the exponents of a mixture whose means are the particles."""
    z, particles, matrix = normal(B, 2 * D), normal(M, 2 * D, seed=1), covariance(2 * D)
    likelihoods = [stats.multivariate_normal(particle, matrix.numpy()).pdf(z).sum() for particle in particles.numpy()]
    weights = np.exp(LOG_WEIGHTS.numpy()) * likelihoods
    got = reweighted(LOG_WEIGHTS, shared_exponents(z, particles, cholesky(matrix)))
    close(got.exp(), weights / weights.sum(), rtol=1e-9)


def test_two_updates_are_one_of_both() -> None:
    first, second = normal(B, M), normal(B, M, seed=1)
    both = logsumexp(first, axis=0) + logsumexp(second, axis=0)
    twice = reweighted(reweighted(torch.zeros(M).double(), first), second)
    close(twice, both - logsumexp(both))


def test_the_effective_sample_size_is_that_of_kish() -> None:
    weights = LOG_WEIGHTS.exp().numpy()
    close(effective_sample_size(LOG_WEIGHTS), weights.sum() ** 2 / (weights**2).sum())
    close(effective_sample_size(torch.zeros(M)), M, rtol=1e-6)
    close(effective_sample_size(torch.tensor([0.0, -1e4, -math.inf])), 1.0)
    close(effective_sample_size(torch.tensor([5.0, 5.0, -math.inf]).double()), 2.0)


def test_particles_of_weight_zero_neither_push_nor_come_back() -> None:
    log_weights, bank, kept = LOG_WEIGHTS.clone(), BANK.clone().requires_grad_(), torch.arange(M) != 2
    log_weights[2] = -math.inf
    (slope,) = torch.autograd.grad(_loss(QUERY, KEY, bank, log_weights, 0.3).sum(), bank)
    assert slope[2].abs().max() == 0 and (slope[kept].abs().amax(-1) > 0).all()
    assert torch.isfinite(reweighted(log_weights, normal(B, M))).equal(kept)


def test_gradients_equal_finite_differences() -> None:
    inputs = [value.clone().requires_grad_() for value in (QUERY, KEY, BANK, LOG_WEIGHTS)]
    assert torch.autograd.gradcheck(_loss, (*inputs, torch.tensor(0.3).double().requires_grad_()))
    assert torch.autograd.gradcheck(reweighted, (inputs[3], normal(B, M).requires_grad_()))
    assert torch.autograd.gradcheck(effective_sample_size, (inputs[3],))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_with_their_own_tau_equal_each_alone(dtype: torch.dtype) -> None:
    shapes = ((B, D), (B, D), (M, D), (M,))
    inputs = [normal(K, *shape, seed=seed).to(dtype).requires_grad_() for seed, shape in enumerate(shapes)]
    stacked = (*inputs, torch.tensor([0.05, 0.5, 5.0]))
    fused = torch.vmap(_loss)(*stacked)
    alone = torch.stack([_loss(*(value[k] for value in stacked)) for k in range(K)])
    assert fused.dtype == dtype and fused.shape == (K, B)
    tight = 1e-5 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(fused, alone, rtol=tight, atol=tight)
    got, expected = (torch.autograd.grad(value.sum(), inputs) for value in (fused, alone))
    torch.testing.assert_close(got, expected, rtol=10 * tight, atol=10 * tight)
    sizes = torch.vmap(lambda old, x: effective_sample_size(reweighted(old, x)))(inputs[3], normal(K, B, M).to(dtype))
    for k in range(K):
        alone_size = effective_sample_size(reweighted(inputs[3][k], normal(K, B, M)[k].to(dtype)))
        torch.testing.assert_close(sizes[k], alone_size, rtol=tight, atol=tight)


@pytest.mark.parametrize("tau", [0.005, 100.0])
def test_extreme_temperatures_stay_finite_in_float32(tau: float) -> None:
    """`exp(1 / 0.005)` is beyond float32."""
    query, bank = (unit_normal(M, D, seed=seed).float().requires_grad_() for seed in (0, 1))
    loss = _loss(query, query, bank, torch.zeros(M), tau)
    weights = reweighted(torch.zeros(M), similarities(query, bank, tau))
    assert torch.isfinite(loss).all() and torch.isfinite(weights).all()
    assert all(torch.isfinite(slope).all() for slope in torch.autograd.grad(loss.sum(), (query, bank)))
    assert 1 <= effective_sample_size(weights) <= M * (1 + 1e-6)


def test_autocast_does_not_cost_precision() -> None:
    query, key, bank, log_weights = (value.float() for value in (QUERY, KEY, BANK, LOG_WEIGHTS))
    with torch.autocast("cpu", torch.bfloat16):
        got = _loss(query, key, bank, log_weights, 0.01)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), _loss(QUERY, KEY, BANK, LOG_WEIGHTS, 0.01), rtol=1e-5, atol=1e-4)
