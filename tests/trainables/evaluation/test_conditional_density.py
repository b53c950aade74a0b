"""Distances of mixtures from a known density, against scipy and numerical integrals.

Shapes: B points x, M components.
"""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from trainables.contract import ConditionalDensity
from trainables.metrics.conditional_density import (
    branches_recovered,
    energy_distance,
    equal_mixture,
    log_likelihood,
    mean,
    variance_parts,
)

B = 4


def _mixture(components: int, seed: int) -> ConditionalDensity:
    source = torch.Generator().manual_seed(seed)
    logits, means, scale = torch.randn(3, B, components, generator=source, dtype=torch.float64)
    return ConditionalDensity(logits.log_softmax(-1), means, 0.1 + scale.abs())


def _cdf(mixture: ConditionalDensity, point: int, y: np.ndarray) -> np.ndarray:
    log_weights, means, sigmas = (values[point].numpy() for values in mixture)
    return (np.exp(log_weights) * norm.cdf(y[:, None], means, sigmas)).sum(1)


def test_log_likelihood_is_scipys() -> None:
    mixture, y_B = _mixture(3, 0), torch.linspace(-1, 1, B, dtype=torch.float64)
    for point in range(B):
        log_weights, means, sigmas = (values[point].numpy() for values in mixture)
        expected = math.log((np.exp(log_weights) * norm.pdf(y_B[point].item(), means, sigmas)).sum())
        assert log_likelihood(y_B, mixture)[point].item() == pytest.approx(expected)


def test_energy_distance_is_twice_the_integral_of_the_squared_difference_of_distribution_functions() -> None:
    first, second = _mixture(3, 0), _mixture(2, 1)
    y = np.linspace(-15, 15, 60_001)
    for point in range(B):
        squared = (_cdf(first, point, y) - _cdf(second, point, y)) ** 2
        assert energy_distance(first, second)[point].item() == pytest.approx(2 * np.trapezoid(squared, y), rel=1e-6)
    torch.testing.assert_close(energy_distance(first, first), torch.zeros(B, dtype=torch.float64))
    torch.testing.assert_close(energy_distance(first, second), energy_distance(second, first))


def test_energy_distance_of_point_masses_is_twice_their_distance() -> None:
    first, second = (equal_mixture(torch.tensor([[0.0], [1.0]]) + shift, 0.0) for shift in (0.0, 0.5))
    torch.testing.assert_close(energy_distance(first, second), torch.ones(2))


def test_energy_distance_of_a_point_mass_from_a_gaussian() -> None:
    """`2 E|X| - E|X - X'|` for a standard normal X."""
    point, gaussian = (equal_mixture(torch.zeros(1, 1, dtype=torch.float64), sigma) for sigma in (0.0, 1.0))
    expected = 2 * math.sqrt(2 / math.pi) - 2 / math.sqrt(math.pi)
    assert energy_distance(point, gaussian).item() == pytest.approx(expected)


def test_members_are_compared_at_once() -> None:
    mixtures = [_mixture(2, seed) for seed in range(3)]
    together = ConditionalDensity(*map(torch.stack, zip(*mixtures, strict=True)))
    other = _mixture(3, 5)
    torch.testing.assert_close(
        energy_distance(together, other), torch.stack([energy_distance(mixture, other) for mixture in mixtures])
    )


def test_the_mean_is_weighted() -> None:
    mixture = ConditionalDensity(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([[0.0, 4.0]]), torch.ones(1, 2))
    torch.testing.assert_close(mean(mixture), torch.tensor([3.0]))


def test_both_parts_of_the_variance_are_integrals() -> None:
    """Their sum is the integral of the squared distance from the mean; one component has no second part."""
    mixture, y = _mixture(3, 0), np.linspace(-15, 15, 60_001)
    within, between = variance_parts(mixture)
    for point in range(B):
        weights, means, sigmas = (values[point].numpy() for values in (mixture.log_weights_BM.exp(), *mixture[1:]))
        centre, pdf = weights @ means, (weights * norm.pdf(y[:, None], means, sigmas)).sum(1)
        assert (within + between)[point].item() == pytest.approx(np.trapezoid((y - centre) ** 2 * pdf, y), rel=1e-6)
        assert within[point].item() == pytest.approx(weights @ sigmas**2)
    one = _mixture(1, 0)
    torch.testing.assert_close(variance_parts(one), (one.sigmas_BM[:, 0].square(), torch.zeros(B).double()))


@pytest.mark.parametrize(
    ("weights", "means", "recovered"),
    [
        ((0.3, 0.3, 0.4), (0.0, 1.0, 2.0), 1.0),
        ((0.3, 0.3, 0.4), (0.09, 0.92, 1.85), 2 / 3),
        ((0.01, 0.49, 0.5), (0.0, 1.0, 2.0), 2 / 3),
        ((0.3, 0.3, 0.4), (0.0, 0.01, 0.02), 1 / 3),
    ],
)
def test_a_branch_is_recovered_by_a_component_with_weight_near_it(
    weights: tuple[float, ...], means: tuple[float, ...], recovered: float
) -> None:
    mixture = ConditionalDensity(torch.tensor([weights]).log(), torch.tensor([means]), torch.ones(1, 3))
    shares = branches_recovered(mixture, torch.tensor([[0.0, 1.0, 2.0]]), tolerance=0.1, least_weight=0.05)
    torch.testing.assert_close(shares, torch.tensor([recovered]))
