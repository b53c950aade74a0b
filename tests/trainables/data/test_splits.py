"""One class is trained on, all are tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainables.data.datasets import Dataset, load
from trainables.data.splits import one_class, whole


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits", Path())


def test_one_class_trains_on_all_of_that_class_only(digits: Dataset) -> None:
    split = one_class(digits, 3)
    assert split.train_labels.unique().tolist() == [3]
    assert len(split.train_images) == len(split.train_labels) == (digits.train_labels == 3).sum()
    assert (split.train_images == digits.train_images[digits.train_labels == 3]).all()


def test_one_class_tests_on_everything_and_calls_the_rest_outliers(digits: Dataset) -> None:
    split = one_class(digits, 3)
    assert split.test_images is digits.test_images
    assert split.outlier is not None
    assert split.outlier.tolist() == [label != 3 for label in digits.test_labels.tolist()]


def test_whole_keeps_everything_and_knows_no_outlier(digits: Dataset) -> None:
    split = whole(digits)
    assert split.train_images is digits.train_images and split.outlier is None
    assert (split.levels, split.mean, split.std) == (digits.levels, digits.mean, digits.std)


@pytest.mark.parametrize("normal_class", [10, -1, True, 1.0])
def test_normal_class_must_be_a_class(digits: Dataset, normal_class: int) -> None:
    with pytest.raises(ValueError, match=rf"normal_class must be one of 0\.\.9 for digits, but got {normal_class!r}"):
        one_class(digits, normal_class)
