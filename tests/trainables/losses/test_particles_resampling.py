"""Both resamplers against the exact distributions of what they draw.

A uniform number is replaced by the midpoints of N equal intervals, so that counting indices is integrating over it: a
probability is then exact to 1/N, and exact where it is a multiple of 1/N.
"""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.trainables.losses.normals import normal
from trainables.losses.particles import (
    RESAMPLERS,
    drawn_indices,
    multinomial_indices,
    systematic_indices,
    uniforms_of,
)

WEIGHTS = torch.tensor([0.1, 0.35, 0.0, 0.05, 0.5], dtype=torch.float64)
LOG_WEIGHTS = WEIGHTS.log() + 3
"""Those of the weights, without their constant."""


def _midpoints(count: int) -> Tensor:
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def _counts(indices: Tensor) -> tuple[int, ...]:
    return tuple(torch.bincount(indices, minlength=len(WEIGHTS)).tolist())


def test_a_multinomial_draw_has_the_probability_of_its_weight() -> None:
    assert _counts(multinomial_indices(LOG_WEIGHTS, _midpoints(1000))) == (100, 350, 0, 50, 500)


def test_counts_of_multinomial_draws_are_multinomial() -> None:
    """All triples of 20 midpoints against scipy: 8,000 equally probable draws of three particles."""
    triples = torch.tensor(list(itertools.product(_midpoints(20).tolist(), repeat=3)), dtype=torch.float64)
    drawn = Counter(_counts(indices) for indices in torch.vmap(multinomial_indices, (None, 0))(LOG_WEIGHTS, triples))
    distribution = stats.multinomial(3, WEIGHTS.numpy())
    for counts in itertools.product(range(4), repeat=len(WEIGHTS)):
        if sum(counts) == 3:
            assert drawn[counts] / 8000 == pytest.approx(distribution.pmf(counts), abs=1e-12)


def test_multinomial_draws_keep_the_order_of_their_uniforms() -> None:
    uniforms = torch.tensor([0.99, 0.0, 0.3, 0.46, 0.0999, 0.1001], dtype=torch.float64)
    assert multinomial_indices(LOG_WEIGHTS, uniforms).tolist() == [4, 0, 1, 3, 0, 1]


def test_a_resampling_is_chosen_by_name_and_takes_its_number_of_uniforms() -> None:
    uniforms = _midpoints(6).flip(0)
    drawn = {name: drawn_indices(name, LOG_WEIGHTS, uniforms[: uniforms_of(name, 6)], 6) for name in RESAMPLERS}
    assert drawn["multinomial"].tolist() == multinomial_indices(LOG_WEIGHTS, uniforms).tolist()
    assert drawn["systematic"].tolist() == systematic_indices(LOG_WEIGHTS, uniforms[0], 6).tolist()


@pytest.mark.parametrize("draws", [1, 4, 5, 10, 13])
def test_systematic_counts_are_the_expected_ones_rounded(draws: int) -> None:
    expected = draws * WEIGHTS
    for uniform in _midpoints(101):
        indices = systematic_indices(LOG_WEIGHTS, uniform, draws)
        counts = torch.bincount(indices, minlength=len(WEIGHTS))
        assert counts.sum() == draws and ((counts - expected).abs() < 1).all()
        assert torch.equal(indices, indices.sort().values)


@pytest.mark.parametrize("draws", [1, 4, 5, 13])
def test_systematic_counts_are_right_on_average(draws: int) -> None:
    """Exact, since each count changes at multiples of 1/20 of the offset."""
    totals = sum(torch.bincount(systematic_indices(LOG_WEIGHTS, u, draws), minlength=5) for u in _midpoints(20))
    np.testing.assert_allclose(totals / 20, draws * WEIGHTS, atol=1e-12)


def test_the_distribution_of_systematic_counts_is_that_of_one_offset() -> None:
    """Two draws at u/2 and (u + 1)/2, by hand: u < 0.2 gives particle 0, then 0.9 > u gives 1, else 3; the second is 4
    for all."""
    drawn = Counter(_counts(systematic_indices(LOG_WEIGHTS, u, 2)) for u in _midpoints(100))
    assert drawn == {(1, 0, 0, 0, 1): 20, (0, 1, 0, 0, 1): 70, (0, 0, 0, 1, 1): 10}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("zeros", [0, 3])
def test_no_particle_of_weight_zero_is_drawn_even_at_the_ends(dtype: torch.dtype, zeros: int) -> None:
    """The largest uniform below 1, with 5,000 weights whose sum is 1 only nearly, between particles without weight."""
    nothing = torch.full((zeros,), -math.inf, dtype=dtype)
    log_weights = torch.cat([nothing, normal(5000).to(dtype), nothing])
    ends = torch.tensor([0.0, math.nextafter(1, 0)], dtype=torch.float64).to(dtype)
    assert multinomial_indices(log_weights, ends).tolist() == [zeros, zeros + 4999]
    indices = systematic_indices(log_weights, ends[1], 7)
    assert zeros <= indices.min() and indices.max() == zeros + 4999


def test_one_particle_with_all_the_weight_is_drawn_each_time() -> None:
    log_weights = torch.tensor([-math.inf, 0.0, -1e9])
    assert multinomial_indices(log_weights, torch.rand(50)).unique().tolist() == [1]
    assert systematic_indices(log_weights, torch.tensor(0.7), 50).unique().tolist() == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_draw_what_each_draws_alone(dtype: torch.dtype) -> None:
    """With uniforms of one's own, or shared; in the precision of the noise."""
    log_weights = normal(3, 9).to(dtype)
    uniforms = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
    fused = torch.vmap(multinomial_indices)(log_weights, uniforms)
    shared = torch.vmap(multinomial_indices, (0, None))(log_weights, uniforms[0])
    systematic = torch.vmap(lambda weights, u: systematic_indices(weights, u, 6))(log_weights, uniforms[:, :1])
    assert fused.dtype == torch.int64
    for k in range(3):
        assert torch.equal(fused[k], multinomial_indices(log_weights[k], uniforms[k]))
        assert torch.equal(shared[k], multinomial_indices(log_weights[k], uniforms[0]))
        assert torch.equal(systematic[k], systematic_indices(log_weights[k], uniforms[k, 0], 6))


def test_a_resampled_bank_is_an_index_of_the_pool() -> None:
    pool, indices = normal(3, 9, 2), torch.tensor([[0, 8, 8], [1, 1, 1], [5, 4, 3]])
    drawn = torch.vmap(lambda pool_PD, indices_M: pool_PD[indices_M])(pool, indices)
    assert torch.equal(drawn, torch.stack([pool[k][indices[k]] for k in range(3)]))
