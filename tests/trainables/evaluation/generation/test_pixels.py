"""Errors of reconstructions and spread of samples, against numpy and at their limits."""

import numpy as np
import pytest
import torch
from torch import Tensor

from trainables.metrics.sample_quality import diversity, reconstruction_mse


@pytest.fixture
def images_NCHW() -> Tensor:
    return torch.rand(20, 3, 4, 5, generator=torch.Generator().manual_seed(0))


def test_the_error_is_the_mean_over_images_and_pixels(images_NCHW: Tensor) -> None:
    blurred_NCHW = images_NCHW.mean(0, keepdim=True).expand_as(images_NCHW)
    expected = np.mean((images_NCHW.double().numpy() - blurred_NCHW.double().numpy()) ** 2)
    assert reconstruction_mse(images_NCHW, blurred_NCHW).item() == pytest.approx(expected, rel=1e-6)


def test_each_member_has_its_own_error(images_NCHW: Tensor) -> None:
    members_KNCHW = torch.stack([images_NCHW, images_NCHW + 0.5, torch.full_like(images_NCHW, torch.nan)])
    error_K = reconstruction_mse(images_NCHW, members_KNCHW)
    torch.testing.assert_close(error_K, torch.tensor([0, 0.25, torch.nan]).double(), equal_nan=True)


def test_diversity_is_a_ratio_of_variances(images_NCHW: Tensor) -> None:
    samples_NCHW = images_NCHW[:7].square()
    variances = [np.trace(np.cov(x.flatten(1).double().numpy().T)) for x in (samples_NCHW, images_NCHW)]
    assert diversity(samples_NCHW, images_NCHW).item() == pytest.approx(variances[0] / variances[1], rel=1e-12)


def test_diversity_of_copies_of_one_image_and_of_the_images_themselves(images_NCHW: Tensor) -> None:
    copies_NCHW, halved_NCHW = images_NCHW[:1].expand_as(images_NCHW), images_NCHW / 2 + 0.1
    members_KNCHW = torch.stack([copies_NCHW, images_NCHW, halved_NCHW])
    diversity_K = diversity(members_KNCHW, images_NCHW)
    torch.testing.assert_close(diversity_K, torch.tensor([0, 1, 0.25]).double(), atol=1e-7, rtol=1e-6)
