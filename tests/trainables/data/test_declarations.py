"""What is declared of each data set is what its loader gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainables.config.trial import resolve
from trainables.data.datasets import DATASETS, UNLABELLED, load
from trainables.data.declarations import DECLARATIONS, stand_in
from trainables.data.folders import Folder
from trainables.learners.streams import split

SIZES = {
    "cifar10": (50_000, 10_000), "cifar100": (50_000, 10_000), "stl10": (105_000, 8_000), "svhn": (73_257, 26_032)
}  # fmt: skip
"""Training and test images, as published."""


def test_every_set_is_declared() -> None:
    assert set(DECLARATIONS) == set(DATASETS)


@pytest.mark.parametrize("name", DATASETS)
def test_shape_classes_and_levels_are_the_loaders(root: Path, name: str) -> None:
    """The files are small ones in the true formats, so only their counts may differ."""
    dataset, declared = load(name, root), DECLARATIONS[name]
    assert dataset.train_images.shape[1:] == dataset.test_images.shape[1:] == declared.shape
    assert dataset.levels == declared.levels
    files = isinstance(dataset.train_images, Folder)
    assert (declared.train is None) == (declared.test is None) == files
    if not files:
        assert len(dataset.classes) == declared.classes == len(declared.train or ()) == len(declared.test or ())
        assert bool(declared.unlabelled) == (UNLABELLED in dataset.train_labels)


@pytest.mark.parametrize("name", SIZES)
def test_there_are_as_many_images_as_published(name: str) -> None:
    made = stand_in(name)
    assert made and (len(made.train_images), len(made.test_images)) == SIZES[name]
    assert (len(made.train_labels), len(made.test_labels)) == SIZES[name]


@pytest.mark.parametrize("name", ["digits", "digits32"])
@pytest.mark.parametrize("data", [{}, {"normal_class": 3}, {"held_out": "2+7"}])
def test_the_embedded_sets_are_split_as_they_are_declared(name: str, data: dict[str, object]) -> None:
    made, config = stand_in(name), resolve({"method": "vje", "dataset": name, **data}).data  # type: ignore[dict-item]
    assert made
    loaded = load(name, Path())
    for labels in ("train_labels", "test_labels"):
        assert getattr(made, labels).bincount().tolist() == getattr(loaded, labels).bincount().tolist()
    ours, theirs = split(made, config), split(loaded, config)
    for part in ("train_images", "labelled_images", "test_images", "train_labels", "test_labels"):
        assert len(getattr(ours, part)) == len(getattr(theirs, part))
    assert (made.levels, made.classes) == (loaded.levels, loaded.classes)


def test_a_stand_in_takes_no_memory_and_folders_have_none() -> None:
    made = stand_in("stl10")
    assert made and made.train_images.shape == (105_000, 3, 0, 0) and stand_in("imagenet") is None
