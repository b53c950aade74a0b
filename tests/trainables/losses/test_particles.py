"""Weights of particles and their effective sample size, against loops; float64 unless said.

Shapes: B images, D dimensions, M particles of the bank, P of the pool.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp

from tests.trainables.losses.normals import covariance, normal, unit_normal
from tests.trainables.losses.samples import close
from trainables.losses.linear_algebra import cholesky
from trainables.losses.mixtures import shared_exponents
from trainables.losses.particles import (
    distinct_share,
    effective_sample_size,
    mean_age,
    pool_identities,
    reweighted,
)
from trainables.losses.similarity import similarities

B, D, M, K = 5, 4, 7, 3
QUERY, KEY, BANK, LOG_WEIGHTS = normal(B, D), normal(B, D, seed=1), normal(M, D, seed=2), normal(M, seed=3)


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


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


@pytest.mark.parametrize("draws", [0, 1, 6])
def test_identities_tell_copies_and_ages_apart(draws: int) -> None:
    """As counted over labels (step, place) that are drawn beside them; three members at once."""
    rng = np.random.default_rng(draws)
    identities = torch.arange(M).repeat(K, 1)
    labels = [[(0, m) for m in range(M)] for _ in range(K)]
    for step in range(1, draws + 1):
        indices = rng.integers(M + B, size=(K, M))
        pools = torch.vmap(lambda own: pool_identities(own, B))(identities)
        identities = pools.gather(1, torch.tensor(indices))
        labels = [
            [[*own, *((step, M + b) for b in range(B))][s] for s in drawn]
            for own, drawn in zip(labels, indices, strict=True)
        ]
    close(torch.vmap(distinct_share)(identities), np.array([len({*own}) / M for own in labels]), rtol=1e-6)
    ages = np.array([np.mean([draws - born for born, _ in own]) for own in labels])
    close(torch.vmap(lambda own: mean_age(own, B))(identities), ages, rtol=1e-6)


def test_particles_of_weight_zero_do_not_come_back() -> None:
    log_weights, kept = LOG_WEIGHTS.clone(), torch.arange(M) != 2
    log_weights[2] = -math.inf
    assert torch.isfinite(reweighted(log_weights, normal(B, M))).equal(kept)


def test_gradients_equal_finite_differences() -> None:
    log_weights = LOG_WEIGHTS.clone().requires_grad_()
    assert torch.autograd.gradcheck(reweighted, (log_weights, normal(B, M).requires_grad_()))
    assert torch.autograd.gradcheck(effective_sample_size, (log_weights,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_equal_each_alone(dtype: torch.dtype) -> None:
    log_weights, exponents = normal(K, M, seed=3).to(dtype), normal(K, B, M).to(dtype)
    tight = 1e-5 if dtype == torch.float32 else 1e-11
    sizes = torch.vmap(lambda old, x: effective_sample_size(reweighted(old, x)))(log_weights, exponents)
    for k in range(K):
        alone_size = effective_sample_size(reweighted(log_weights[k], exponents[k]))
        torch.testing.assert_close(sizes[k], alone_size, rtol=tight, atol=tight)


@pytest.mark.parametrize("tau", [0.005, 100.0])
def test_extreme_temperatures_stay_finite_in_float32(tau: float) -> None:
    """`exp(1 / 0.005)` is beyond float32."""
    query, bank = (unit_normal(M, D, seed=seed).float() for seed in (0, 1))
    weights = reweighted(torch.zeros(M), similarities(query, bank, tau))
    assert torch.isfinite(weights).all()
    assert 1 <= effective_sample_size(weights) <= M * (1 + 1e-6)
