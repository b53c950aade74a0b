"""Mean and spread of the posterior's variance, against scipy, and in the three regimes of the paper."""

import numpy as np
import pytest
import torch
from scipy.stats import variation
from torch import Tensor

from trainables.metrics.embeddings import POSTERIOR_METRICS, statistics

K, M, D = 4, 50, 9


@pytest.fixture
def var_KMD() -> Tensor:
    """Variances of about 0.3, as from a softplus, with a level of its own for each dimension."""
    source = torch.Generator().manual_seed(0)
    return torch.rand(K, M, D, generator=source) * torch.rand(K, 1, D, generator=source) + 0.05


def test_statistics_are_those_of_numpy_and_scipy(var_KMD: Tensor) -> None:
    actual, average_KD = statistics(var_KMD), var_KMD.double().numpy().mean(1)
    np.testing.assert_allclose(actual["var_mean"], var_KMD.double().numpy().mean((1, 2)), rtol=1e-12)
    np.testing.assert_allclose(actual["var_cv"], variation(average_KD, axis=1, ddof=0), rtol=1e-12)
    assert tuple(actual) == POSTERIOR_METRICS and actual["var_cv"].dtype == np.float64


def test_spread_over_images_is_no_spread_over_dimensions() -> None:
    """Two images with swapped dimensions: each dimension averages to 2."""
    actual = statistics(torch.tensor([[[1.0, 3.0], [3.0, 1.0]]]))
    assert actual["var_mean"] == 2 and actual["var_cv"] == 0


def test_the_deviation_is_the_populations() -> None:
    actual = statistics(torch.tensor([[[1.0, 3.0]]]))
    assert actual["var_mean"] == 2 and actual["var_cv"] == 0.5


def test_one_dimension_has_no_spread() -> None:
    assert statistics(torch.ones(1, 5, 1))["var_cv"] == 0


@pytest.mark.parametrize("scale", [0.5, 40.0])
def test_the_coefficient_of_variation_has_no_scale(var_KMD: Tensor, scale: float) -> None:
    actual, expected = statistics(scale * var_KMD), statistics(var_KMD)
    np.testing.assert_allclose(actual["var_mean"], scale * expected["var_mean"], rtol=1e-6)
    np.testing.assert_allclose(actual["var_cv"], expected["var_cv"], rtol=1e-6)


def test_three_regimes(var_KMD: Tensor) -> None:
    """Anisotropic, collapsed (spread undefined) and the prior: told apart by these two numbers."""
    regimes_3MD = torch.stack([var_KMD[0], 1e-6 * var_KMD[0], torch.ones(M, D)])
    actual = statistics(regimes_3MD)
    np.testing.assert_allclose(actual["var_mean"][1:], [0, 1], atol=1e-5)
    assert actual["var_cv"][0] > 0.1 and np.isnan(actual["var_cv"][1]) and actual["var_cv"][2] == 0


@pytest.mark.parametrize(("mean", "undefined"), [(0.00999, True), (0.01001, False)])
def test_the_spread_is_undefined_below_a_mean_of_one_percent(mean: float, undefined: bool) -> None:
    actual = statistics(torch.full((1, 3, 4), mean, dtype=torch.float64))
    assert np.isnan(actual["var_cv"][0]) == undefined and actual["var_mean"] == pytest.approx(mean)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_variance_that_is_not_finite_affects_only_its_own_member(var_KMD: Tensor, bad: float) -> None:
    clean = statistics(var_KMD)
    var_KMD[2, 7, 1] = bad
    for name, values_K in statistics(var_KMD).items():
        assert np.isnan(values_K[2])
        np.testing.assert_array_equal(np.delete(values_K, 2), np.delete(clean[name], 2))
