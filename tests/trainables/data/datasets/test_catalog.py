"""Data sets by name: each keeps the contract, and its loader agrees with what is declared of it."""

from pathlib import Path

import pytest
import torch

from tests.cases import for_each
from trainables.data.datasets.catalog import DATASETS, check_dataset, load
from trainables.data.datasets.dataset import UNLABELLED, placeholder
from trainables.data.errors import DataError
from trainables.data.image_files import ImageFiles
from trainables.image_trial import Data
from trainables.tasks.images.stream import select_classes


@for_each("name", DATASETS)
def test_every_set_keeps_the_contract(root: Path, name: str) -> None:
    dataset = load(name, root)
    _, channels, height, width = dataset.train_images.shape
    assert dataset.name == name and dataset.test_images.shape[1:] == (channels, height, width)
    assert len(dataset.mean) == len(dataset.std) == channels
    for images, labels in (
        (dataset.train_images, dataset.train_labels[dataset.train_labels != UNLABELLED]),
        (dataset.test_images, dataset.test_labels),
    ):
        assert 0 < len(labels) <= len(images)
        assert labels.unique().tolist() == list(range(len(dataset.classes)))
        assert 0 <= images[:2].min() < images[:2].max() <= dataset.levels
    assert len(dataset.train_images) == len(dataset.train_labels)
    for attribute in dataset.attributes.values():
        for labels, images in (
            (attribute.train_labels, dataset.train_images),
            (attribute.test_labels, dataset.test_images),
        ):
            assert labels.dtype == torch.int64 and labels.shape == (len(images),)
            assert labels.min() >= UNLABELLED and labels.max() < attribute.classes
    check_dataset(dataset)


def test_all_but_imagenet_are_resident() -> None:
    assert {name for name, source in DATASETS.items() if source.declaration.files} == {"imagenet"}


def test_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load("cifar-10", tmp_path)
    assert str(error.value) == (
        "no dataset 'cifar-10' (did you mean 'cifar10'?); there are: celeba, cifar10, cifar100, digits, digits32, "
        "digits_tint, fashion_mnist, imagenet, mnist, mnist32, stl10, svhn"
    )


SIZES = {
    "celeba": (162_770, 19_962), "cifar10": (50_000, 10_000), "cifar100": (50_000, 10_000),
    "fashion_mnist": (60_000, 10_000), "mnist": (60_000, 10_000), "mnist32": (60_000, 10_000),
    "stl10": (105_000, 8_000), "svhn": (73_257, 26_032),
}  # fmt: skip
"""Training and test images, as published."""


@for_each("name", DATASETS)
def test_shape_classes_and_levels_are_the_loaders(root: Path, name: str) -> None:
    """The test files are small but in the published formats, so only the numbers of images differ."""
    dataset, declared = load(name, root), DATASETS[name].declaration
    assert dataset.train_images.shape[1:] == dataset.test_images.shape[1:] == declared.shape
    assert dataset.levels == declared.levels
    files = isinstance(dataset.train_images, ImageFiles)
    assert (declared.train is None) == (declared.test is None) == files
    if not files:
        assert len(dataset.classes) == declared.classes == len(declared.train or ()) == len(declared.test or ())
        assert bool(declared.unlabelled) == (UNLABELLED in dataset.train_labels)
    attributes = {attribute: labels.classes for attribute, labels in dataset.attributes.items()}
    assert attributes == declared.attributes


@for_each("name", SIZES)
def test_there_are_as_many_images_as_published(name: str) -> None:
    empty = placeholder(name, DATASETS[name].declaration)
    assert empty and (len(empty.train_images), len(empty.test_images)) == SIZES[name]
    assert (len(empty.train_labels), len(empty.test_labels)) == SIZES[name]


@pytest.mark.parametrize("name", ["digits", "digits32", "digits_tint"])
@pytest.mark.parametrize("data", [Data(), Data(normal_class=3), Data(held_out="2+7")], ids=["all", "one", "held out"])
def test_the_embedded_sets_are_split_as_they_are_declared(name: str, data: Data) -> None:
    empty = placeholder(name, DATASETS[name].declaration)
    assert empty
    loaded = load(name, Path())
    for labels in ("train_labels", "test_labels"):
        assert getattr(empty, labels).bincount().tolist() == getattr(loaded, labels).bincount().tolist()
    ours, theirs = select_classes(empty, data), select_classes(loaded, data)
    for part in ("train_images", "labelled_images", "test_images", "train_labels", "test_labels"):
        assert len(getattr(ours, part)) == len(getattr(theirs, part))
    assert (empty.levels, empty.classes) == (loaded.levels, loaded.classes)
    for name, attribute in ours.attributes.items():
        assert len(attribute.train_labels) == len(theirs.attributes[name].train_labels)
        assert len(attribute.test_labels) == len(theirs.attributes[name].test_labels)


@pytest.mark.parametrize("name", ["celeba", "digits_tint"])
def test_attributes_of_a_placeholder_have_all_their_values(name: str) -> None:
    empty = placeholder(name, DATASETS[name].declaration)
    assert empty and list(empty.attributes) == list(DATASETS[name].declaration.attributes)
    for attribute in empty.attributes.values():
        assert attribute.train_labels.unique().tolist() == list(range(attribute.classes))
        assert len(attribute.test_labels) == len(empty.test_labels)


def test_a_placeholder_takes_no_memory_and_folders_have_none() -> None:
    empty = placeholder("stl10", DATASETS["stl10"].declaration)
    assert (
        empty
        and empty.train_images.shape == (105_000, 3, 0, 0)
        and placeholder("imagenet", DATASETS["imagenet"].declaration) is None
    )
