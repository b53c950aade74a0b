"""Data sets by name."""

from pathlib import Path

import pytest
import torch

from trainables.data.datasets.catalog import DATASETS, check_dataset, load
from trainables.data.datasets.dataset import UNLABELLED
from trainables.data.errors import DataError


@pytest.mark.parametrize("name", DATASETS)
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
