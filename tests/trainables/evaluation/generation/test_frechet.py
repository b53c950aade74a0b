"""The Frechet distance, compared with scipy's matrix square root and with closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import Tensor

from trainables.metrics.sample_quality import frechet_distance

D = 6


def vectors(count: int, seed: int, shift: float = 0.0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    mixing_DD = torch.randn(D, D, generator=source)
    return torch.randn(count, D, generator=source) @ mixing_DD + shift


def by_matrix_root(a_ND: Tensor, b_MD: Tensor) -> float:
    a, b = a_ND.double().numpy(), b_MD.double().numpy()
    cov_a, cov_b = np.cov(a.T), np.cov(b.T)
    root = sqrtm(cov_a @ cov_b).real
    return float(np.sum((a.mean(0) - b.mean(0)) ** 2) + np.trace(cov_a + cov_b - 2 * root))


@pytest.mark.parametrize(("n", "m"), [(40, 25), (D + 1, 300)])
@pytest.mark.parametrize("shift", [0.0, 10.0])
def test_it_is_that_of_scipys_matrix_root(n: int, m: int, shift: float) -> None:
    a_ND, b_MD = vectors(n, 0), vectors(m, 1, shift)
    assert frechet_distance(a_ND, b_MD).item() == pytest.approx(by_matrix_root(a_ND, b_MD), rel=1e-9)


def test_independent_features_have_the_closed_form() -> None:
    """Features without correlations: squared differences of means and of standard deviations."""
    signs_ND = torch.tensor([[(i >> d & 1) * 2.0 - 1 for d in range(3)] for i in range(8)])
    a_ND = signs_ND * torch.tensor([1.0, 2.0, 0.5])
    b_ND = signs_ND * torch.tensor([3.0, 2.0, 0.0]) + torch.tensor([0.0, 1.0, -2.0])
    expected = 5 + 8 / 7 * (2**2 + 0.5**2)
    assert frechet_distance(a_ND, b_ND).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", [3, 50])
def test_a_set_has_no_distance_to_itself_and_a_shifted_one_that_of_the_shift(count: int) -> None:
    """Also of fewer vectors than features, whose covariance is singular."""
    a_ND = vectors(count, 0).double()
    assert frechet_distance(a_ND, a_ND).item() == pytest.approx(0, abs=1e-12)
    assert frechet_distance(a_ND + 2, a_ND).item() == pytest.approx(4 * D, rel=1e-12)


def test_it_is_symmetric_and_does_not_depend_on_order_or_rotation() -> None:
    a_ND, b_MD = vectors(40, 0), vectors(25, 1, 1.0)
    turned_DD = torch.linalg.qr(torch.randn(D, D, generator=torch.Generator().manual_seed(2)).double()).Q
    expected = frechet_distance(a_ND, b_MD)
    torch.testing.assert_close(frechet_distance(b_MD, a_ND), expected)
    torch.testing.assert_close(frechet_distance(a_ND.flip(0), b_MD), expected)
    torch.testing.assert_close(frechet_distance(a_ND.double() @ turned_DD, b_MD.double() @ turned_DD), expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_member_with_a_feature_that_is_not_finite_has_nan_alone(bad: float) -> None:
    members_KND = torch.stack([vectors(30, seed) for seed in range(3)])
    members_KND[1, 4, 2] = bad
    test_MD = vectors(40, 9)
    distance_K = frechet_distance(members_KND, test_MD)
    assert distance_K.isnan().tolist() == [False, True, False]
    for index in (0, 2):
        torch.testing.assert_close(distance_K[index], frechet_distance(members_KND[index], test_MD))
    test_MD[0, 0] = bad
    assert frechet_distance(members_KND, test_MD).isnan().all()


def test_one_vector_has_no_covariance() -> None:
    with pytest.raises(ValueError, match="at least 2 vectors of each set, but got 1"):
        frechet_distance(vectors(1, 0), vectors(5, 1))
