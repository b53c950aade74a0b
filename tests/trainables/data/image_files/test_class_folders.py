"""Class folders that are incomplete or hold anything but images are refused by name."""

import shutil
from pathlib import Path

import pytest

from tests.image_files import CLASSES
from tests.trainables.data.refusals import imagenet_refusal
from trainables.data.datasets.catalog import load


def test_hidden_files_are_ignored(imagenet: Path) -> None:
    for folder in ("train", "val", f"train/{CLASSES[0]}"):
        (imagenet / folder / ".DS_Store").write_bytes(b"x")
    assert len(load("imagenet", imagenet.parent).train_images) == 12


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_missing_or_empty_split_is_refused(imagenet: Path, split: str) -> None:
    shutil.rmtree(imagenet / split)
    assert imagenet_refusal(imagenet) == (
        f"imagenet is without the split '{split}': there is no folder {imagenet / split}; images belong in "
        f"{imagenet}/{split}/CLASS/"
    )
    (imagenet / split).mkdir()
    assert imagenet_refusal(imagenet) == (
        f"imagenet has no images: {imagenet / split} is empty; images belong in {imagenet}/{split}/CLASS/"
    )


@pytest.mark.parametrize(("present", "absent"), [("train", "val"), ("val", "train")])
def test_a_class_in_one_split_only_is_refused(imagenet: Path, present: str, absent: str) -> None:
    shutil.rmtree(imagenet / absent / CLASSES[1])
    assert imagenet_refusal(imagenet) == (
        f"the classes of imagenet must be the same in train and val, but {imagenet / present / CLASSES[1]} has no "
        f"counterpart in {imagenet / absent}"
    )


def test_a_class_without_images_is_refused(imagenet: Path) -> None:
    for file in (imagenet / "val" / CLASSES[2]).iterdir():
        file.unlink()
    assert (
        imagenet_refusal(imagenet)
        == f"every class of imagenet must have images, but {imagenet / 'val' / CLASSES[2]} is empty"
    )


def test_images_outside_class_folders_are_refused(imagenet: Path) -> None:
    """ImageNet's validation images are distributed like this."""
    stray = imagenet / "val/ILSVRC2012_val_00000001.JPEG"
    stray.write_bytes(b"")
    assert (
        imagenet_refusal(imagenet)
        == f"a split of imagenet must hold nothing but a folder for each class, but {stray} is a file"
    )


@pytest.mark.parametrize("stray", ["readme.txt", "more/", "folder.jpg/"])
def test_other_files_in_a_class_folder_are_refused(imagenet: Path, stray: str) -> None:
    path = imagenet / "train" / CLASSES[0] / stray
    path.mkdir() if stray.endswith("/") else path.write_text("hello")
    assert imagenet_refusal(imagenet).startswith("class folders of imagenet must hold nothing but images (.jpg ")
    assert imagenet_refusal(imagenet).endswith(f"), but got {path}")
