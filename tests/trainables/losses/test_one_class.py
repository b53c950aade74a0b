"""Losses and scores of one class, and of transformations, against numpy, loops in float64 and SciPy.

Shapes: T transformations, B images, M classes, D dimensions.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import minimize
from scipy.special import gammaln

from trainables.losses.one_class import (
    bounded_centre,
    fitted_dirichlet,
    log_probability,
    quantile,
    relative_variance,
    soft_boundary,
    squared_distance,
    squared_error,
    triplet_centre,
)

NUMBERS = st.floats(-100, 100, width=32)


@given(arrays.arrays(np.float64, st.integers(1, 20), elements=NUMBERS), st.floats(0, 1))
def test_a_quantile_is_numpys(values_B: np.ndarray[tuple[int], np.dtype[np.float64]], share: float) -> None:
    actual = quantile(torch.from_numpy(values_B), torch.tensor(share, dtype=torch.float64)).item()
    assert actual == pytest.approx(np.quantile(values_B, share), rel=1e-9, abs=1e-9)


def test_every_member_of_a_stack_has_its_own_share() -> None:
    values_KB, shares_K = torch.rand(3, 11), torch.tensor([0.1, 0.5, 1.0])
    stacked_K = torch.vmap(quantile)(values_KB, shares_K)
    expected = [np.quantile(values_B.numpy(), share) for values_B, share in zip(values_KB, shares_K, strict=True)]
    np.testing.assert_allclose(stacked_K.numpy(), expected, rtol=1e-5)


@given(arrays.arrays(np.float64, 5, elements=st.floats(-0.3, 0.3)))
def test_no_entry_of_a_centre_is_near_0(mean_D: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    """As the authors have it, in place: small negative entries become -0.1, small positive ones 0.1."""
    expected_D = mean_D.copy()
    expected_D[(abs(expected_D) < 0.1) & (expected_D < 0)] = -0.1
    expected_D[(abs(expected_D) < 0.1) & (expected_D >= 0)] = 0.1
    assert bounded_centre(torch.from_numpy(mean_D), 0.1).tolist() == expected_D.tolist()


def test_a_soft_boundary_is_least_where_the_share_nu_lies_outside() -> None:
    distance_B, nu = torch.rand(1000, dtype=torch.float64) * 3, torch.tensor(0.2)
    grid = torch.linspace(0.01, 3, 1000, dtype=torch.float64)
    losses = torch.stack([soft_boundary(distance_B, squared.sqrt(), nu) for squared in grid])
    best = grid[losses.argmin()]
    assert (distance_B > best).double().mean().item() == pytest.approx(0.2, abs=0.01)
    excess = np.maximum(0, distance_B.numpy() - best.item()).mean()
    assert losses.min().item() == pytest.approx(best.item() + excess / 0.2)


def test_distances_errors_and_variance_are_sums_over_the_right_dimensions() -> None:
    z_BD, centre_D = torch.randn(6, 3).double(), torch.randn(3).double()
    expected_B = np.linalg.norm(z_BD.numpy() - centre_D.numpy(), axis=1) ** 2
    np.testing.assert_allclose(squared_distance(z_BD, centre_D).numpy(), expected_B)
    images, decoded = torch.rand(2, 4, 3, 5, 5).double()
    expected_B = np.linalg.norm((images - decoded).numpy().reshape(4, -1), axis=1) ** 2
    np.testing.assert_allclose(squared_error(images, decoded).numpy(), expected_B)
    expected = np.trace(np.cov(z_BD.numpy().T, bias=True)) / np.mean(np.linalg.norm(z_BD.numpy(), axis=1) ** 2)
    assert relative_variance(z_BD).item() == pytest.approx(expected)
    assert relative_variance(centre_D.expand(6, 3)).item() == pytest.approx(0, abs=1e-12)
    assert relative_variance(torch.zeros(6, 3)).item() == 0


def test_log_probability_is_minus_torchs_cross_entropy() -> None:
    logits_TBM, labels_T = torch.randn(4, 5, 3) * 3, torch.tensor([2, 0, 1, 1])
    actual_TB = log_probability(logits_TBM, labels_T)
    for logits_BM, label, own_B in zip(logits_TBM, labels_T, actual_TB, strict=True):
        for logits_M, own in zip(logits_BM, own_B, strict=True):
            torch.testing.assert_close(-torch.nn.functional.cross_entropy(logits_M, label), own)


@pytest.mark.parametrize("margin", [0.0, 0.1, 3.0])
def test_triplet_centre_compares_with_the_nearest_other_centre(margin: float) -> None:
    z_TBD = torch.randn(4, 6, 3) + 0.7 * torch.randn(4, 1, 3)
    z = z_TBD.double().numpy()
    centres = [np.mean(z[t], axis=0) for t in range(4)]
    actual = triplet_centre(z_TBD, torch.tensor(margin))
    for t in range(4):
        for b in range(6):
            distances = [((z[t, b] - centre) ** 2).sum() for centre in centres]
            nearest = min(distance for other, distance in enumerate(distances) if other != t)
            assert actual[t, b].item() == pytest.approx(max(0.0, distances[t] + margin - nearest), abs=1e-4)


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 8.0])
def test_dirichlet_densities_are_the_likeliest(sharpness: float) -> None:
    """Of probabilities with one that dominates, as of a trained network, and of flat ones, by SciPy's optimiser."""
    source = np.random.default_rng(0)
    logits = source.normal(size=(200, 5)) * sharpness + 2 * sharpness * np.eye(5)[0]
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    mean_M = log_p.mean(0)

    def negative_log_likelihood(log_alpha: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        alpha = np.exp(log_alpha)
        return float(gammaln(alpha).sum() - gammaln(alpha.sum()) - ((alpha - 1) * mean_M).sum())

    best = minimize(negative_log_likelihood, np.zeros(5), method="BFGS")
    alpha_M = fitted_dirichlet(torch.from_numpy(mean_M)[None])[0].numpy()
    assert negative_log_likelihood(np.log(alpha_M)) <= best.fun + 1e-9
    np.testing.assert_allclose(alpha_M, np.exp(best.x), rtol=1e-2)


def test_the_parameters_of_a_dirichlet_density_are_found_again() -> None:
    true_TM = np.array([[2.0, 0.1, 30.0], [0.5, 0.5, 0.5], [400.0, 3.0, 0.02]])
    source = np.random.default_rng(1)
    gamma = [np.log(source.gamma(alpha_M + 1, size=(200_000, 3))) + np.log(source.random((200_000, 3))) / alpha_M
             for alpha_M in true_TM]  # fmt: skip
    mean = [(log_g - np.logaddexp.reduce(log_g, axis=1, keepdims=True)).mean(0) for log_g in gamma]
    np.testing.assert_allclose(fitted_dirichlet(torch.tensor(np.array(mean))).numpy(), true_TM, rtol=0.03)
