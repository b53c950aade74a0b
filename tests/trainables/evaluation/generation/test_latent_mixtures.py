"""Mixtures over latents: fitted like scikit-learn's, sampled with their exact moments, measured against closed forms.

Shapes: N latents, S samples, M components, D dimensions.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.mixture import GaussianMixture
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainables.metrics.latent_density import (
    REGULARISATION,
    Mixture,
    fit_gaussian,
    fit_gmm,
    mean_trace,
    mean_volume,
    sample,
    spread,
    to_sphere,
)

M, D = 3, 2


def _latents(count: int, size: int = D, seed: int = 0) -> Tensor:
    return to_sphere(torch.randn(count, size, generator=torch.Generator().manual_seed(seed)).double() + 0.5)


def _mixture() -> Mixture:
    roots_MDD = torch.randn(M, D, D, generator=torch.Generator().manual_seed(1)).double()
    means_MD = torch.tensor([[0.0, 3.0], [1.0, -1.0], [-2.0, 0.5]]).double()
    return Mixture(torch.tensor([0.2, 0.5, 0.3]).log(), means_MD, roots_MDD @ roots_MDD.mT + 0.1 * torch.eye(D))


def _quadrature(nodes: int) -> tuple[Tensor, Tensor]:
    """Uniform and normal numbers `[S]` and `[S, D]` at equally likely places of both distributions."""
    middle = (np.arange(nodes) + 0.5) / nodes
    normal = stats.norm.ppf(middle)
    grid = np.stack(np.meshgrid(middle, normal, normal, indexing="ij"), -1).reshape(-1, 1 + D)
    return torch.from_numpy(grid[:, 0].copy()), torch.from_numpy(grid[:, 1:].copy())


def test_samples_have_the_mixtures_moments() -> None:
    """Over a grid of noise: the law of total expectation and variance."""
    mixture = _mixture()
    uniform_S, normal_SD = _quadrature(100)
    got = sample(mixture, uniform_S, normal_SD).numpy()
    weights, means = mixture.logits_M.double().softmax(-1).numpy(), mixture.means_MD.numpy()
    mean = weights @ means
    covariance = np.einsum("m,mij->ij", weights, mixture.covariances_MDD.numpy()) + np.cov(
        means, rowvar=False, aweights=weights, ddof=0
    )
    np.testing.assert_allclose(got.mean(0), mean, atol=1e-6)
    np.testing.assert_allclose(np.cov(got, rowvar=False, ddof=0), covariance, rtol=0.01, atol=0.01)


def test_a_component_is_drawn_where_the_weights_sum_to_more_than_the_uniform_number() -> None:
    still = Mixture(torch.tensor([0.25, 0.5, 0.25]).log(), torch.eye(3).double(), 1e-12 * torch.eye(3).expand(3, 3, 3))
    uniform = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-24, 1.0])
    drawn = sample(still, uniform, torch.zeros(7, 3)).argmax(-1)
    assert drawn.tolist() == [0, 0, 1, 1, 2, 2, 2]


def test_noise_is_coloured_by_the_factor_of_its_own_component() -> None:
    mixture = _mixture()
    normal_SD = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]])
    got = sample(mixture, torch.tensor([0.9, 0.1, 0.5]), normal_SD).numpy()
    for own, noise, component in zip(got, normal_SD.numpy(), (2, 0, 1), strict=True):
        factor = np.linalg.cholesky(mixture.covariances_MDD[component].numpy())
        np.testing.assert_allclose(own, mixture.means_MD[component].numpy() + factor @ noise, rtol=1e-6)


class LargestTensor(TorchDispatchMode):
    """Keeps the number of elements of the largest tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.elements = max([self.elements, *(t.numel() for t in tree_leaves(result) if isinstance(t, Tensor))])
        return result


def test_samples_need_no_matrix_of_their_own() -> None:
    """`[S, D, D]` is 3.4 GB for 1,600 samples of 512 dimensions."""
    count, size = 200, 8
    mixture = Mixture(torch.zeros(2), torch.zeros(2, size), torch.eye(size).expand(2, size, size))
    with LargestTensor() as largest:
        sample(mixture, torch.linspace(0, 0.99, count), torch.randn(count, size))
    assert largest.elements == count * size


def test_a_component_that_is_not_positive_definite_gives_nan_in_its_own_samples_and_in_the_volume() -> None:
    mixture = _mixture()
    broken = mixture.covariances_MDD.clone()
    broken[1] -= 10 * torch.eye(D)
    failed = mixture._replace(covariances_MDD=broken)
    assert math.isnan(mean_volume(failed)) and math.isfinite(mean_volume(mixture))
    uniform_S, normal_SD = torch.tensor([0.1, 0.5, 0.9]), torch.ones(3, D)
    got, expected = (sample(each, uniform_S, normal_SD) for each in (failed, mixture))
    assert got[1].isnan().all() and torch.equal(got[[0, 2]], expected[[0, 2]])


def test_one_gaussian_has_the_latents_mean_and_covariance() -> None:
    z_ND = _latents(50, 4)
    logits_M, means_MD, covariances_MDD = fit_gaussian(z_ND.float())
    assert logits_M.tolist() == [0] and means_MD.dtype == covariances_MDD.dtype == torch.float64
    np.testing.assert_allclose(means_MD[0], z_ND.numpy().mean(0), rtol=1e-5)
    expected = np.cov(z_ND.numpy(), rowvar=False, ddof=0) + REGULARISATION * np.eye(4)
    np.testing.assert_allclose(covariances_MDD[0], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("steps", [1, 20])
def test_a_mixture_is_scikit_learns_after_so_many_steps(steps: int) -> None:
    z_ND = _latents(90, 3)
    mixture = fit_gmm(z_ND, 4, steps, random_state=0)
    theirs = GaussianMixture(4, covariance_type="full", max_iter=steps, reg_covar=REGULARISATION, random_state=0)
    with pytest.warns(Warning) if steps == 1 else np.errstate():
        theirs.fit(z_ND.numpy())
    np.testing.assert_allclose(mixture.logits_M.exp(), theirs.weights_, rtol=1e-9)
    np.testing.assert_allclose(mixture.means_MD, theirs.means_, rtol=1e-9)
    np.testing.assert_allclose(mixture.covariances_MDD, theirs.covariances_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spoil", ["nan", "collapsed"])
def test_latents_that_cannot_be_fitted_give_nan(spoil: str) -> None:
    z_ND = _latents(20)
    z_ND[3:] = math.nan if spoil == "nan" else z_ND[0]
    mixture = fit_gmm(z_ND, 5, 20, random_state=0)
    assert all(part.isnan().all() for part in mixture) and [len(part) for part in mixture] == [5] * 3
    assert math.isnan(mean_volume(mixture)) and math.isnan(mean_trace(mixture)) and math.isnan(spread(mixture))
    assert sample(mixture, torch.rand(4), torch.randn(4, D)).isnan().all()


def test_volume_trace_and_spread_are_means_over_components() -> None:
    mixture = _mixture()
    matrices = mixture.covariances_MDD.numpy()
    assert mean_volume(mixture) == pytest.approx(np.linalg.slogdet(matrices)[1].mean())
    assert mean_trace(mixture) == pytest.approx(np.trace(matrices, axis1=1, axis2=2).mean())
    assert spread(mixture) == pytest.approx((math.sqrt(17) + math.sqrt(10.25) + math.sqrt(11.25)) / 3)
    assert math.isnan(spread(fit_gaussian(_latents(9))))


def test_unit_vectors_reach_the_ceilings_and_do_not_exceed_them() -> None:
    """An isotropic covariance of trace 1, and the corners of a simplex."""
    size = 6
    isotropic = Mixture(torch.zeros(1), torch.zeros(1, size), torch.eye(size)[None] / size)
    assert mean_volume(isotropic) == pytest.approx(-size * math.log(size)) and mean_trace(isotropic) == pytest.approx(1)
    assert mean_volume(fit_gaussian(_latents(500, size))) < -size * math.log(size)
    corners_MD = to_sphere(torch.eye(size).double() - 1 / size)
    simplex = Mixture(torch.zeros(size), corners_MD, torch.eye(size).expand(size, size, size))
    assert spread(simplex) == pytest.approx(math.sqrt(2 * size / (size - 1)))
    assert spread(simplex._replace(means_MD=_latents(size, size))) < spread(simplex)
