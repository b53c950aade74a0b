"""Weights of particles against loops, and resamplers against the exact distributions of what they draw.

In float64 unless said. Shapes: B images, D dimensions, M particles of the bank, P of the pool. Where a test draws, a
uniform number is replaced by the midpoints of N equal intervals, so that counting indices is integrating over it: a
probability is then exact to 1/N, and exact where it is a multiple of 1/N.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor

from tests.trainables.losses.samples import close, covariance, normal, unit_normal
from trainables.losses.linear_algebra import cholesky
from trainables.losses.mixtures import shared_exponents
from trainables.losses.particles import (
    RESAMPLERS,
    alias_indices,
    distinct_share,
    drawn_indices,
    effective_sample_size,
    mean_age,
    multinomial_indices,
    pool_identities,
    reweighted,
    systematic_indices,
    uniforms_of,
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


WEIGHTS = torch.tensor([0.1, 0.35, 0.0, 0.05, 0.5], dtype=torch.float64)
LOG_WEIGHTS_TO_DRAW = WEIGHTS.log() + 3
"""Those of the weights, without their constant."""


def _midpoints(count: int) -> Tensor:
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def _counts(indices: Tensor) -> tuple[int, ...]:
    return tuple(torch.bincount(indices, minlength=len(WEIGHTS)).tolist())


Draw = Callable[[Tensor, Tensor], Tensor]
INDEPENDENT: tuple[Draw, ...] = (multinomial_indices, alias_indices)
"""Schemes of independent draws."""


@pytest.mark.parametrize("draw", INDEPENDENT)
def test_a_draw_has_the_probability_of_its_weight(draw: Draw) -> None:
    assert _counts(draw(LOG_WEIGHTS_TO_DRAW, _midpoints(1000))) == (100, 350, 0, 50, 500)


@pytest.mark.parametrize("draw", INDEPENDENT)
def test_counts_of_independent_draws_are_multinomial(draw: Draw) -> None:
    """All triples of 20 midpoints against scipy: 8,000 equally probable draws of three particles."""
    triples = torch.tensor(list(itertools.product(_midpoints(20).tolist(), repeat=3)), dtype=torch.float64)
    drawn = Counter(_counts(indices) for indices in torch.vmap(draw, (None, 0))(LOG_WEIGHTS_TO_DRAW, triples))
    distribution = stats.multinomial(3, WEIGHTS.numpy())
    for counts in itertools.product(range(4), repeat=len(WEIGHTS)):
        if sum(counts) == 3:
            assert drawn[counts] / 8000 == pytest.approx(distribution.pmf(counts), abs=1e-12)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any))
def test_an_alias_table_has_the_weights_whatever_they_are(weights: list[int]) -> None:
    """With whole weights all shares are multiples of one over their sum, so as many midpoints per place count them."""
    total, places = sum(weights), len(weights)
    log_weights = torch.tensor(weights, dtype=torch.float64).log()
    counts = torch.bincount(alias_indices(log_weights, _midpoints(total * places)), minlength=places)
    assert counts.tolist() == [weight * places for weight in weights]


def test_multinomial_draws_keep_the_order_of_their_uniforms() -> None:
    uniforms = torch.tensor([0.99, 0.0, 0.3, 0.46, 0.0999, 0.1001], dtype=torch.float64)
    assert multinomial_indices(LOG_WEIGHTS_TO_DRAW, uniforms).tolist() == [4, 0, 1, 3, 0, 1]


def test_a_resampling_is_chosen_by_name_and_takes_its_number_of_uniforms() -> None:
    uniforms = _midpoints(6).flip(0)
    drawn = {name: drawn_indices(name, LOG_WEIGHTS_TO_DRAW, uniforms[: uniforms_of(name, 6)], 6) for name in RESAMPLERS}
    assert drawn["multinomial"].tolist() == multinomial_indices(LOG_WEIGHTS_TO_DRAW, uniforms).tolist()
    assert drawn["alias"].tolist() == alias_indices(LOG_WEIGHTS_TO_DRAW, uniforms).tolist()
    assert drawn["systematic"].tolist() == systematic_indices(LOG_WEIGHTS_TO_DRAW, uniforms[0], 6).tolist()


@pytest.mark.parametrize("draws", [1, 4, 5, 10, 13])
def test_systematic_counts_are_the_expected_ones_rounded(draws: int) -> None:
    expected = draws * WEIGHTS
    for uniform in _midpoints(101):
        indices = systematic_indices(LOG_WEIGHTS_TO_DRAW, uniform, draws)
        counts = torch.bincount(indices, minlength=len(WEIGHTS))
        assert counts.sum() == draws and ((counts - expected).abs() < 1).all()
        assert torch.equal(indices, indices.sort().values)


@pytest.mark.parametrize("draws", [1, 4, 5, 13])
def test_systematic_counts_are_right_on_average(draws: int) -> None:
    """Exact, since each count changes at multiples of 1/20 of the offset."""
    totals = sum(torch.bincount(systematic_indices(LOG_WEIGHTS_TO_DRAW, u, draws), minlength=5) for u in _midpoints(20))
    np.testing.assert_allclose(totals / 20, draws * WEIGHTS, atol=1e-12)


def test_the_distribution_of_systematic_counts_is_that_of_one_offset() -> None:
    """Two draws at u/2 and (u + 1)/2, by hand: u < 0.2 gives particle 0, then 0.9 > u gives 1, else 3; the second is 4
    for all."""
    drawn = Counter(_counts(systematic_indices(LOG_WEIGHTS_TO_DRAW, u, 2)) for u in _midpoints(100))
    assert drawn == {(1, 0, 0, 0, 1): 20, (0, 1, 0, 0, 1): 70, (0, 0, 0, 1, 1): 10}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("zeros", [0, 3])
def test_no_particle_of_weight_zero_is_drawn_even_at_the_ends(dtype: torch.dtype, zeros: int) -> None:
    """The largest uniform below 1, with 5,000 weights whose sum is 1 only nearly, between particles without weight."""
    nothing = torch.full((zeros,), -math.inf, dtype=dtype)
    log_weights = torch.cat([nothing, normal(5000).to(dtype), nothing])
    ends = torch.tensor([0.0, math.nextafter(1, 0)], dtype=torch.float64).to(dtype)
    assert multinomial_indices(log_weights, ends).tolist() == [zeros, zeros + 4999]
    everywhere = torch.cat([torch.arange(20_000, dtype=dtype) / 20_000, ends])
    drawn = alias_indices(log_weights, everywhere)
    assert zeros <= drawn.min() and drawn.max() <= zeros + 4999
    indices = systematic_indices(log_weights, ends[1], 7)
    assert zeros <= indices.min() and indices.max() == zeros + 4999


def test_one_particle_with_all_the_weight_is_drawn_each_time() -> None:
    log_weights = torch.tensor([-math.inf, 0.0, -1e9])
    for draw in INDEPENDENT:
        assert draw(log_weights, torch.rand(50)).unique().tolist() == [1]
    assert systematic_indices(log_weights, torch.tensor(0.7), 50).unique().tolist() == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_draw_what_each_draws_alone(dtype: torch.dtype) -> None:
    """With uniforms of one's own, or shared; in the precision of the noise."""
    log_weights = normal(3, 9).to(dtype)
    uniforms = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
    for draw in INDEPENDENT:
        fused = torch.vmap(draw)(log_weights, uniforms)
        shared = torch.vmap(draw, (0, None))(log_weights, uniforms[0])
        assert fused.dtype == torch.int64
        for k in range(3):
            assert torch.equal(fused[k], draw(log_weights[k], uniforms[k]))
            assert torch.equal(shared[k], draw(log_weights[k], uniforms[0]))
    systematic = torch.vmap(lambda weights, u: systematic_indices(weights, u, 6))(log_weights, uniforms[:, :1])
    for k in range(3):
        assert torch.equal(systematic[k], systematic_indices(log_weights[k], uniforms[k, 0], 6))


def test_a_resampled_bank_is_an_index_of_the_pool() -> None:
    pool, indices = normal(3, 9, 2), torch.tensor([[0, 8, 8], [1, 1, 1], [5, 4, 3]])
    drawn = torch.vmap(lambda pool_PD, indices_M: pool_PD[indices_M])(pool, indices)
    assert torch.equal(drawn, torch.stack([pool[k][indices[k]] for k in range(3)]))
