"""Losses of one class against numpy in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trainables.losses.one_class import (
    bounded_centre,
    quantile,
    relative_variance,
    soft_boundary,
    squared_distance,
    squared_error,
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
