"""Ink and slant are what they are called, and their quintiles say nothing about the digit."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv
from sklearn.metrics import mutual_info_score
from torch import Tensor

from trainables.data.datasets.catalog import load
from trainables.data.datasets.digits import ink, quintiles, slant


def test_ink_is_the_mean_grey() -> None:
    images_NHW = torch.tensor([[[0, 16], [0, 0]], [[3, 5], [7, 9]]], dtype=torch.uint8)
    assert ink(images_NHW).tolist() == [4.0, 6.0]


@pytest.mark.parametrize("columns_per_row", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_slant_of_a_line_is_its_columns_per_row(columns_per_row: float) -> None:
    """A line through the centre that is sheared to the right at its top, interpolated between columns."""
    image_HW = torch.zeros(9, 21)
    for y in range(9):
        x = 10 - columns_per_row * (y - 4)
        image_HW[y, int(np.floor(x))] += 1 - (x - np.floor(x))
        image_HW[y, int(np.floor(x)) + 1] += x - np.floor(x)
    assert slant(image_HW[None]).item() == pytest.approx(columns_per_row, abs=1e-9)


def test_slant_ignores_place_and_brightness_and_changes_its_sign_in_a_mirror() -> None:
    images_NHW = torch.nn.functional.pad(load("digits", Path()).test_images[:][:, 0], (3, 3, 3, 3))
    slant_N = slant(images_NHW)
    torch.testing.assert_close(slant(images_NHW.roll((2, -3), (1, 2))), slant_N)
    torch.testing.assert_close(slant(images_NHW * 3.0), slant_N)
    torch.testing.assert_close(slant(tv.horizontal_flip(images_NHW)), -slant_N)


@pytest.mark.parametrize("style", ["ink", "slant"])
def test_quintiles_are_balanced_within_each_digit_on_training_images(style: str) -> None:
    digits = load("digits", Path())
    attribute = digits.attributes[style]
    for digit in range(10):
        counts = attribute.train_labels[digits.train_labels == digit].bincount(minlength=5)
        assert (counts - counts.sum() / 5).abs().max() <= 4  # images have equal ink, but never equal slant
    assert mutual_info_score(digits.train_labels, attribute.train_labels) < 0.002
    assert attribute.test_labels.bincount(minlength=5).min() > 0.15 * len(attribute.test_labels)


@pytest.mark.parametrize(("name", "style"), [("ink", ink), ("slant", slant)])
def test_quintiles_are_numpys_with_thresholds_of_training_images(name: str, style: Callable[[Tensor], Tensor]) -> None:
    digits = load("digits", Path())
    train_N, test_N = (style(images[:][:, 0]).numpy() for images in (digits.train_images, digits.test_images))
    attribute = digits.attributes[name]
    for digit in range(10):
        trained, tested = (labels.numpy() == digit for labels in (digits.train_labels, digits.test_labels))
        thresholds = np.quantile(train_N[trained], [0.2, 0.4, 0.6, 0.8])
        assert (attribute.train_labels.numpy()[trained] == np.digitize(train_N[trained], thresholds)).all()
        assert (attribute.test_labels.numpy()[tested] == np.digitize(test_N[tested], thresholds)).all()


def test_quintiles_of_a_label_do_not_depend_on_other_labels() -> None:
    value_N, labels_N = torch.rand(200, generator=torch.Generator().manual_seed(0)).double(), torch.arange(200) % 2
    alone, even = quintiles(value_N, labels_N, value_N, labels_N), labels_N == 0
    shifted_N = torch.where(even, value_N, 100 * value_N + 7)
    both = quintiles(shifted_N, labels_N, shifted_N, labels_N)
    assert torch.equal(both.train_labels, alone.train_labels) and both.classes == 5
