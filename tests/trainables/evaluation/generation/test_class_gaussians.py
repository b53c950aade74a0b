"""Gaussians of classes are scikit-learn's mixtures of one component, and samples have their moments."""

import math

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor

from trainables.metrics.generation import (
    fit_class_gaussians,
    sample_class_gaussians,
    sample_pixel_gaussians,
)

N, D, L = 200, 4, 3


@pytest.fixture
def features_ND() -> Tensor:
    """Correlated features, of which the last is a sum of two others: the covariance is singular."""
    source = torch.Generator().manual_seed(0)
    x_ND = torch.randn(N, D, generator=source) @ torch.randn(D, D, generator=source) + 3
    x_ND[:, -1] = x_ND[:, 0] + x_ND[:, 1]
    return x_ND


@pytest.fixture
def labels_N() -> Tensor:
    return torch.arange(N) % L


def noise(samples: int) -> Tensor:
    return torch.randn(L, samples, D, generator=torch.Generator().manual_seed(1))


def test_each_class_has_scikit_learns_mean_and_covariance(features_ND: Tensor, labels_N: Tensor) -> None:
    gaussians = fit_class_gaussians(features_ND, labels_N, L)
    assert gaussians.mean_LD.dtype == gaussians.covariance_LDD.dtype == torch.float64
    for label in range(L):
        mixture = GaussianMixture(1, reg_covar=1e-6).fit(features_ND[labels_N == label].double().numpy())
        np.testing.assert_allclose(gaussians.mean_LD[label], mixture.means_[0], rtol=1e-12)
        np.testing.assert_allclose(gaussians.covariance_LDD[label], mixture.covariances_[0], rtol=1e-12)


def test_samples_are_as_likely_as_their_noise(features_ND: Tensor, labels_N: Tensor) -> None:
    """Their squared Mahalanobis distance is the squared length of the noise."""
    gaussians, noise_LSD = fit_class_gaussians(features_ND, labels_N, L), noise(7).double()
    samples_LSD = sample_class_gaussians(gaussians, noise_LSD)
    centred_LSD = samples_LSD - gaussians.mean_LD[:, None]
    distance_LS = torch.einsum("lsd,lde,lse->ls", centred_LSD, gaussians.covariance_LDD.inverse(), centred_LSD)
    torch.testing.assert_close(distance_LS, noise_LSD.square().sum(-1), rtol=1e-6, atol=0)


def test_many_samples_have_the_moments_of_their_class(features_ND: Tensor, labels_N: Tensor) -> None:
    gaussians = fit_class_gaussians(features_ND, labels_N, L)
    samples_LSD = sample_class_gaussians(gaussians, noise(40_000))
    assert samples_LSD.dtype == torch.float32
    for label in range(L):
        scale = gaussians.covariance_LDD[label].diagonal().max().item()
        covariance = samples_LSD[label].double().T.cov()
        torch.testing.assert_close(covariance, gaussians.covariance_LDD[label], rtol=0, atol=0.03 * scale)
        mean_D = samples_LSD[label].double().mean(0)
        torch.testing.assert_close(mean_D, gaussians.mean_LD[label], rtol=0, atol=0.03 * scale**0.5)


def test_without_noise_a_sample_is_the_mean(features_ND: Tensor, labels_N: Tensor) -> None:
    gaussians = fit_class_gaussians(features_ND, labels_N, L)
    samples_LSD = sample_class_gaussians(gaussians, torch.zeros(L, 2, D, dtype=torch.float64))
    assert (samples_LSD == gaussians.mean_LD[:, None]).all()


def test_members_are_fitted_and_sampled_as_if_alone(features_ND: Tensor, labels_N: Tensor) -> None:
    members_KND = torch.stack([features_ND, 2 * features_ND - 1])
    together_KLSD = sample_class_gaussians(fit_class_gaussians(members_KND, labels_N, L), noise(5))
    for member_ND, together_LSD in zip(members_KND, together_KLSD, strict=True):
        alone_LSD = sample_class_gaussians(fit_class_gaussians(member_ND, labels_N, L), noise(5))
        torch.testing.assert_close(together_LSD, alone_LSD)


def test_images_without_a_label_are_ignored(features_ND: Tensor, labels_N: Tensor) -> None:
    expected = fit_class_gaussians(features_ND, labels_N, L)
    features_ND, labels_N = (
        torch.cat([features_ND, 100 + features_ND[:5]]),
        torch.cat([labels_N, -torch.ones(5).long()]),
    )
    actual = fit_class_gaussians(features_ND, labels_N, L)
    assert (actual.mean_LD == expected.mean_LD).all() and (actual.covariance_LDD == expected.covariance_LDD).all()


def test_a_class_of_one_image_is_sampled_around_it() -> None:
    gaussians = fit_class_gaussians(torch.tensor([[5.0, -2.0]]), torch.tensor([0]), 1)
    samples_LSD = sample_class_gaussians(gaussians, torch.ones(1, 1, 2))
    torch.testing.assert_close(samples_LSD, torch.tensor([[[5.001, -1.999]]]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_feature_that_is_not_finite_affects_only_its_own_class(
    features_ND: Tensor, labels_N: Tensor, bad: float
) -> None:
    clean_LSD = sample_class_gaussians(fit_class_gaussians(features_ND, labels_N, L), noise(5))
    features_ND[1, 2] = bad
    samples_LSD = sample_class_gaussians(fit_class_gaussians(features_ND, labels_N, L), noise(5))
    assert samples_LSD[1].isnan().all()
    assert (samples_LSD[[0, 2]] == clean_LSD[[0, 2]]).all()


def test_a_class_without_images_is_an_error(features_ND: Tensor, labels_N: Tensor) -> None:
    with pytest.raises(ValueError, match="each of the 4 classes must have a training image, but class 3 has none"):
        fit_class_gaussians(features_ND, labels_N, L + 1)


def test_samples_of_pixels_are_images_like_those_of_their_class() -> None:
    """Dark images of one class and bright ones of the other, of two channels and unequal sides."""
    source = torch.Generator().manual_seed(0)
    labels_N = torch.arange(100) % 2
    images_NCHW = 0.4 * torch.rand(100, 2, 3, 4, generator=source) + 0.6 * labels_N[:, None, None, None]
    samples_LSCHW = sample_pixel_gaussians(images_NCHW, labels_N, torch.randn(2, 50, 24, generator=source))
    assert samples_LSCHW.shape == (2, 50, 2, 3, 4)
    assert samples_LSCHW.min() == 0 and samples_LSCHW.max() == 1, "they are clipped"
    means = torch.stack([images_NCHW[labels_N == label].mean(0) for label in range(2)])
    torch.testing.assert_close(samples_LSCHW.mean(1), means, atol=0.08, rtol=0)
