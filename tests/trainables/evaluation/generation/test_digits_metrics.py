"""The metrics of generated digits have the published figures for real images and for Gaussians of pixels."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.digits import digits
from trainables.data.views import scale_pixels
from trainables.metrics.generation import sample_pixel_gaussians
from trainables.metrics.sample_classifiers import digits_classifier
from trainables.metrics.sample_quality import FRECHET_IMAGES, frechet_digits, frechet_distance, sample_accuracy

SAMPLES = 100


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return digits(Path())


@pytest.fixture
def train_images(dataset: Dataset) -> Tensor:
    return scale_pixels(dataset.train_images[:], dataset.levels)


@pytest.fixture
def test_images(dataset: Dataset) -> Tensor:
    return scale_pixels(dataset.test_images[:], dataset.levels)


@pytest.fixture
def gaussian_samples(dataset: Dataset, train_images: Tensor) -> Tensor:
    noise_LSD = torch.randn(10, SAMPLES, 64, generator=torch.Generator().manual_seed(0))
    return sample_pixel_gaussians(train_images, dataset.train_labels, noise_LSD).flatten(0, 1)


LABELS = torch.arange(10).repeat_interleave(SAMPLES)


def test_real_images_and_gaussians_of_pixels_have_the_published_distances(
    train_images: Tensor, test_images: Tensor, gaussian_samples: Tensor
) -> None:
    """Those of 500: means of 0.80 over draws of training images, with a deviation of 0.20, and 2.19 over noises."""
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randperm(len(train_images), generator=generator)[:FRECHET_IMAGES] for _ in range(20)]
    distances = torch.stack([frechet_digits(train_images[drawn], test_images) for drawn in draws])
    assert frechet_digits(test_images, test_images) < 0.1
    assert 0.65 < distances.mean() < 0.95 and 0.1 < distances.std() < 0.3
    assert 1.6 < frechet_digits(gaussian_samples, test_images) < 2.8


def test_the_distance_is_of_500_images_however_many_there_are(gaussian_samples: Tensor, test_images: Tensor) -> None:
    """As many of each class, of samples in the order of the classes; without 500 there is none."""
    features, half = digits_classifier().features, gaussian_samples[::2]
    expected = frechet_distance(features(half), features(test_images))
    assert FRECHET_IMAGES == len(half) == 500
    for samples in (gaussian_samples, half, gaussian_samples.repeat_interleave(3, 0)):
        torch.testing.assert_close(frechet_digits(samples, test_images), expected)
    assert frechet_digits(torch.stack([half, half])[:, :499], test_images).isnan().tolist() == [True, True]


def test_samples_of_pixel_gaussians_are_recognised_almost_as_often_as_published(gaussian_samples: Tensor) -> None:
    """95.7 %; of other noise or another classifier 95 to 98 %."""
    assert 0.95 < sample_accuracy(gaussian_samples, LABELS) < 0.98
    assert sample_accuracy(gaussian_samples, LABELS.flip(0)) < 0.1


def test_samples_of_too_few_classes_are_recognised_but_far_from_the_test_images(
    dataset: Dataset, train_images: Tensor, test_images: Tensor
) -> None:
    chosen = dataset.train_labels < 5
    distance = frechet_digits(train_images[chosen], test_images)
    assert distance > 20 * frechet_digits(train_images, test_images)
    assert sample_accuracy(train_images[chosen], dataset.train_labels[chosen]) > 0.97


def test_members_are_judged_as_if_alone_and_one_with_nan_has_nan(gaussian_samples: Tensor, test_images: Tensor) -> None:
    broken = gaussian_samples.clone()
    broken[8, 0, 3, 3] = math.nan
    members = torch.stack([gaussian_samples, broken, 0.5 * gaussian_samples])
    for judge, reference in ((frechet_digits, test_images), (sample_accuracy, LABELS)):
        value_K = judge(members, reference)
        assert value_K.isnan().tolist() == [False, True, False]
        for index in (0, 2):
            torch.testing.assert_close(value_K[index], judge(members[index], reference))
