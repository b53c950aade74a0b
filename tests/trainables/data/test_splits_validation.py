"""Validation images are held out of the training images: always the same ones, of every class, and never tested."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.image_files import write_imagenet
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import UNLABELLED, Attribute, Dataset
from trainables.data.image_files import ImageFiles
from trainables.data.splits import hold_out_validation


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits", Path())


@pytest.fixture(scope="module")
def numbered(digits: Dataset) -> Dataset:
    """The labels of the digits with images that encode their own index in two channels."""
    index_N = torch.arange(len(digits.train_labels))
    images = torch.stack([index_N // 256, index_N % 256], 1).byte()[:, :, None, None]
    return replace(digits, train_images=images)


def indices(images: object) -> set[int]:
    assert isinstance(images, torch.Tensor)
    return {256 * int(high) + int(low) for high, low in images[:, :, 0, 0]}


def test_validation_images_are_disjoint_from_training_and_are_all_else(numbered: Dataset) -> None:
    trained, validated = hold_out_validation(numbered, 0.2)
    trained_indices, validation_indices = indices(trained.train_images), indices(validated.test_images)
    assert not trained_indices & validation_indices and trained_indices | validation_indices == set(range(1260))
    assert len(trained.train_labels) == len(trained_indices) and len(validated.test_labels) == len(validation_indices)
    for part, labels in ((trained.train_images, trained.train_labels), (validated.test_images, validated.test_labels)):
        assert isinstance(part, torch.Tensor)
        positions = 256 * part[:, 0, 0, 0].long() + part[:, 1, 0, 0].long()
        assert torch.equal(labels, numbered.train_labels[positions])


def test_no_test_image_is_a_validation_image(digits: Dataset) -> None:
    """No two images of the digits are equal, so they can be compared by their pixels."""
    trained, validated = hold_out_validation(digits, 0.2)
    assert trained.test_images is digits.test_images and trained.test_labels is digits.test_labels
    assert validated.train_images is trained.train_images and validated.train_labels is trained.train_labels
    pixels = [
        {bytes(image.numpy().tobytes()) for image in images[:]}
        for images in (trained.train_images, validated.test_images, digits.test_images)
    ]
    assert [len(images) for images in pixels] == [1008, 252, 537]
    assert len(set.union(*pixels)) == 1797


@pytest.mark.parametrize("share", [0.01, 0.1, 0.2, 0.5])
def test_every_class_gives_the_same_share(digits: Dataset, share: float) -> None:
    _, validated = hold_out_validation(digits, share)
    counts = digits.train_labels.bincount().tolist()
    assert validated.test_labels.bincount().tolist() == [round(share * count) for count in counts]


def test_the_split_is_fixed_and_a_larger_share_holds_out_more_of_the_same(numbered: Dataset) -> None:
    drawn = torch.get_rng_state()
    held_out = {share: indices(hold_out_validation(numbered, share)[1].test_images) for share in (0.1, 0.2, 0.4)}
    torch.manual_seed(5)
    assert indices(hold_out_validation(numbered, 0.2)[1].test_images) == held_out[0.2]
    assert held_out[0.1] < held_out[0.2] < held_out[0.4]
    assert sorted(held_out[0.2])[:5] != list(range(5))  # shuffled, not the first of the file
    torch.set_rng_state(drawn)


def test_attributes_stay_with_their_images(digits: Dataset) -> None:
    train_N, test_N = (torch.arange(len(images)) for images in (digits.train_images, digits.test_images))
    trained, validated = hold_out_validation(
        replace(digits, attributes={"number": Attribute(train_N, test_N, 1260)}), 0.2
    )
    trained_indices, validation_indices = (
        trained.attributes["number"].train_labels,
        validated.attributes["number"].test_labels,
    )
    assert torch.equal(trained.attributes["number"].test_labels, test_N)
    assert torch.equal(validated.attributes["number"].train_labels, trained_indices)
    assert torch.equal(trained.train_images[:], digits.train_images[:][trained_indices])
    assert torch.equal(validated.test_images[:], digits.train_images[:][validation_indices])


def test_unlabelled_images_stay_training_images(numbered: Dataset) -> None:
    labels = numbered.train_labels.clone()
    labels[630:] = UNLABELLED
    trained, validated = hold_out_validation(replace(numbered, train_labels=labels), 0.2)
    assert (validated.test_labels >= 0).all() and indices(validated.test_images) < set(range(630))
    assert indices(trained.train_images) >= set(range(630, 1260))


def test_statistics_of_the_channels_stay(digits: Dataset) -> None:
    for part in hold_out_validation(digits, 0.5):
        assert (part.mean, part.std, part.levels, part.classes) == (
            digits.mean, digits.std, digits.levels, digits.classes,
        )  # fmt: skip


def test_folders_are_parted_by_their_files(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    imagenet = load("imagenet", tmp_path)
    trained, validated = hold_out_validation(imagenet, 0.25)
    full, remaining, held_out = imagenet.train_images, trained.train_images, validated.test_images
    assert isinstance(full, ImageFiles) and isinstance(remaining, ImageFiles) and isinstance(held_out, ImageFiles)
    assert sorted([*remaining.paths(), *held_out.paths()]) == sorted(full.paths())
    assert validated.test_labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("share", "count"), [(0.003, 0), (0.999, 125)])
def test_a_class_without_an_image_on_either_side_is_refused(digits: Dataset, share: float, count: int) -> None:
    with pytest.raises(ValueError) as error:
        hold_out_validation(digits, share)
    assert str(error.value) == (
        "validation must leave and hold out at least one image of each class, but of the 125 training images of class "
        f"0 of digits validation={share} holds out {count}"
    )
