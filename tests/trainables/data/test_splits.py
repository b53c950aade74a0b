"""Splits that train on one class and test all, and splits that hold out some classes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.image_files import CLASSES, write_imagenet
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import UNLABELLED, Attribute, Dataset
from trainables.data.image_files import ImageFiles
from trainables.data.splits import all_classes_split, held_out_split, one_class_split


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits", Path())


@pytest.fixture(scope="module")
def half_labelled(digits: Dataset) -> Dataset:
    """The digits; the second half of the training images has no labels."""
    labels = digits.train_labels.clone()
    labels[630:] = UNLABELLED
    return replace(digits, train_labels=labels)


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("data")
    write_imagenet(root)
    return load("imagenet", root)


def test_one_class_trains_on_all_of_that_class_only(digits: Dataset) -> None:
    split = one_class_split(digits, 3)
    assert split.train_labels.unique().tolist() == [3]
    assert len(split.train_images) == len(split.train_labels) == (digits.train_labels == 3).sum()
    assert torch.equal(split.train_images[:], digits.train_images[:][digits.train_labels == 3])
    assert split.labelled_images is split.train_images and torch.equal(split.labelled_labels, split.train_labels)


def test_one_class_tests_on_everything_and_calls_the_rest_outliers(digits: Dataset) -> None:
    split = one_class_split(digits, 3)
    assert split.test_images is digits.test_images and split.held_out_images is None
    assert split.outlier is not None
    assert split.outlier.tolist() == [label != 3 for label in digits.test_labels.tolist()]


def test_whole_keeps_everything_and_has_no_outliers(digits: Dataset) -> None:
    split = all_classes_split(digits)
    assert split.train_images is split.labelled_images is digits.train_images
    assert split.outlier is None and split.held_out_images is None
    assert (split.levels, split.mean, split.std) == (digits.levels, digits.mean, digits.std)


def test_unlabelled_images_are_trained_on_but_not_used_by_classifiers(half_labelled: Dataset) -> None:
    split = all_classes_split(half_labelled)
    assert split.train_images is half_labelled.train_images and split.train_labels is half_labelled.train_labels
    assert torch.equal(split.labelled_images[:], half_labelled.train_images[:630])
    assert torch.equal(split.labelled_labels, half_labelled.train_labels[:630])


def test_unlabelled_images_belong_to_no_class(half_labelled: Dataset) -> None:
    for split in (one_class_split(half_labelled, 3), held_out_split(half_labelled, (0,))):
        assert (split.train_labels >= 0).all() and len(split.train_images) == len(split.train_labels) < 630
        assert split.labelled_images is split.train_images


@pytest.mark.parametrize("normal_class", [10, -1, True, 1.0])
def test_normal_class_must_be_a_class(digits: Dataset, normal_class: int) -> None:
    with pytest.raises(ValueError, match=rf"normal_class must be one of 0\.\.9 for digits, but got {normal_class!r}"):
        one_class_split(digits, normal_class)


def test_held_out_classes_are_neither_trained_on_nor_tested(digits: Dataset) -> None:
    split = held_out_split(digits, (7, 2))
    rest = [0, 1, 3, 4, 5, 6, 8, 9]
    assert split.train_labels.unique().tolist() == split.test_labels.unique().tolist() == rest
    for images, labels, all_images, all_labels in (
        (split.train_images, split.train_labels, digits.train_images, digits.train_labels),
        (split.test_images, split.test_labels, digits.test_images, digits.test_labels),
    ):
        remaining = [i for i, label in enumerate(all_labels.tolist()) if label in rest]
        assert torch.equal(images[:], all_images[:][remaining]) and torch.equal(labels, all_labels[remaining])
    assert split.outlier is None and split.classes == digits.classes and split.labelled_images is split.train_images


def test_held_out_test_images_are_kept_apart(digits: Dataset) -> None:
    split = held_out_split(digits, (7, 2))
    apart = [i for i, label in enumerate(digits.test_labels.tolist()) if label in (2, 7)]
    assert split.held_out_images is not None
    assert torch.equal(split.held_out_images[:], digits.test_images[:][apart])
    assert len(split.test_images) + len(split.held_out_images) == len(digits.test_images)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ((3, 10), "each held-out class must be one of 0..9 for digits, but got 10"),
        ((-1,), "each held-out class must be one of 0..9 for digits, but got -1"),
        ((True,), "each held-out class must be one of 0..9 for digits, but got True"),
        ((4, 1, 4), "a class must be held out once, but got 4 more than once"),
        (tuple(range(9)), "one class must be held out and two be left of the 10 of digits, but got 9 held out"),
        ((), "one class must be held out and two be left of the 10 of digits, but got 0 held out"),
    ],
)
def test_classes_that_cannot_be_held_out_are_refused(digits: Dataset, classes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError) as error:
        held_out_split(digits, classes)
    assert str(error.value).removeprefix("at least ") == message


def test_two_classes_may_be_left(digits: Dataset) -> None:
    assert held_out_split(digits, tuple(range(8))).test_labels.unique().tolist() == [8, 9]


def test_folders_are_split_by_their_files(imagenet: Dataset) -> None:
    only_second, others = one_class_split(imagenet, 1), held_out_split(imagenet, (1,))
    for images, classes in (
        (only_second.train_images, CLASSES[1:2]),
        (others.train_images, (CLASSES[0], CLASSES[2])),
        (others.test_images, (CLASSES[0], CLASSES[2])),
        (others.held_out_images, CLASSES[1:2]),
    ):
        assert isinstance(images, ImageFiles)
        assert {Path(path).parent.name for path in images.paths()} == set(classes)
    assert others.train_labels.tolist() == [0] * 4 + [2] * 4
    assert all_classes_split(imagenet).labelled_images is imagenet.train_images


@pytest.fixture(scope="module")
def numbered(digits: Dataset) -> Dataset:
    """The digits with an attribute that counts their images."""
    train_N, test_N = (torch.arange(len(images)) for images in (digits.train_images, digits.test_images))
    return replace(digits, attributes={"number": Attribute(train_N, test_N, 1260)})


@pytest.mark.parametrize("held_out", [None, (2, 7)])
def test_attributes_stay_with_their_images(numbered: Dataset, held_out: tuple[int, ...] | None) -> None:
    split = held_out_split(numbered, held_out) if held_out else one_class_split(numbered, 3)
    number = split.attributes["number"]
    assert number.classes == 1260
    assert torch.equal(split.train_images[:], numbered.train_images[:][number.train_labels])
    assert torch.equal(split.train_labels, numbered.train_labels[number.train_labels])
    assert torch.equal(split.test_images[:], numbered.test_images[:][number.test_labels])
    assert torch.equal(split.test_labels, numbered.test_labels[number.test_labels])


def test_whole_keeps_the_attributes(numbered: Dataset) -> None:
    assert all_classes_split(numbered).attributes is numbered.attributes
