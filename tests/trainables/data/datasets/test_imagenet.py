"""Image folders are listed as by torchvision, or refused in one line; broken files are found before training."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torchvision.datasets import ImageFolder

from tests.folder_files import CLASSES, write_broken, write_imagenet, write_modes
from trainables.data.datasets.catalog import check_dataset, load
from trainables.data.errors import DataError
from trainables.data.image_files import integrity
from trainables.data.image_files.decoding import ImageFiles


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    return write_imagenet(tmp_path)


def refusal(folder: Path) -> str:
    with pytest.raises(DataError) as error:
        load("imagenet", folder.parent)
    assert "\n" not in str(error.value)
    return str(error.value)


def check_refusal(folder: Path) -> str:
    with pytest.raises(DataError) as error:
        check_dataset(load("imagenet", folder.parent))
    return str(error.value)


def test_files_are_listed_like_torchvision_lists_them(imagenet: Path) -> None:
    (imagenet / "train" / CLASSES[0] / f"{CLASSES[0]}_0.JPEG").unlink()
    ours = load("imagenet", imagenet.parent)
    parts = ((ours.train_images, ours.train_labels, "train"), (ours.test_images, ours.test_labels, "val"))
    for images, labels, split in parts:
        theirs = ImageFolder(str(imagenet / split))
        assert isinstance(images, ImageFiles) and labels.dtype == torch.int64
        assert list(zip(images.paths(), labels.tolist(), strict=True)) == theirs.samples
        assert images.shape == (len(theirs), 3, 224, 224)
        assert list(ours.classes) == theirs.classes == list(CLASSES)


def test_listing_opens_no_image(imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.Image.open", None)
    assert len(load("imagenet", imagenet.parent).train_images) == 12


def test_hidden_files_are_ignored(imagenet: Path) -> None:
    for place in ("train", "val", f"train/{CLASSES[0]}"):
        (imagenet / place / ".DS_Store").write_bytes(b"x")
    assert len(load("imagenet", imagenet.parent).train_images) == 12


def test_an_absent_data_set_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "imagenet"
    assert refusal(folder) == (
        f"imagenet is absent from {tmp_path} and not to be downloaded; put its images into {folder}/train/CLASS/ and "
        f"{folder}/val/CLASS/, from https://image-net.org"
    )


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_missing_or_empty_split_is_refused(imagenet: Path, split: str) -> None:
    shutil.rmtree(imagenet / split)
    assert refusal(imagenet) == (
        f"imagenet is without the split '{split}': there is no folder {imagenet / split}; images belong in "
        f"{imagenet}/{split}/CLASS/"
    )
    (imagenet / split).mkdir()
    assert refusal(imagenet) == (
        f"imagenet has no images: {imagenet / split} is empty; images belong in {imagenet}/{split}/CLASS/"
    )


@pytest.mark.parametrize(("there", "absent"), [("train", "val"), ("val", "train")])
def test_a_class_in_one_split_only_is_refused(imagenet: Path, there: str, absent: str) -> None:
    shutil.rmtree(imagenet / absent / CLASSES[1])
    assert refusal(imagenet) == (
        f"the classes of imagenet must be the same in train and val, but {imagenet / there / CLASSES[1]} has no "
        f"counterpart in {imagenet / absent}"
    )


def test_a_class_without_images_is_refused(imagenet: Path) -> None:
    for file in (imagenet / "val" / CLASSES[2]).iterdir():
        file.unlink()
    assert (
        refusal(imagenet) == f"every class of imagenet must have images, but {imagenet / 'val' / CLASSES[2]} is empty"
    )


def test_images_outside_class_folders_are_refused(imagenet: Path) -> None:
    """ImageNet's validation images are distributed like this."""
    stray = imagenet / "val/ILSVRC2012_val_00000001.JPEG"
    stray.write_bytes(b"")
    assert (
        refusal(imagenet) == f"a split of imagenet must hold nothing but a folder for each class, but {stray} is a file"
    )


@pytest.mark.parametrize("stray", ["readme.txt", "more/", "folder.jpg/"])
def test_other_files_in_a_class_folder_are_refused(imagenet: Path, stray: str) -> None:
    path = imagenet / "train" / CLASSES[0] / stray
    path.mkdir() if stray.endswith("/") else path.write_text("hello")
    assert refusal(imagenet).startswith("class folders of imagenet must hold nothing but images (.jpg ")
    assert refusal(imagenet).endswith(f"), but got {path}")


def test_whole_files_pass(imagenet: Path) -> None:
    write_modes(imagenet / "train" / CLASSES[0])
    check_dataset(load("imagenet", imagenet.parent))


def test_most_files_are_not_decoded(imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "rgb", None)
    check_dataset(load("imagenet", imagenet.parent))


@pytest.mark.parametrize("split", ["train", "val"])
def test_broken_files_are_counted_and_the_first_is_named(imagenet: Path, split: str) -> None:
    folder = imagenet / split / CLASSES[1]
    for name, reason in write_broken(imagenet.parent / "aside").items():
        shutil.copy(imagenet.parent / "aside" / name, folder)
        assert check_refusal(imagenet) == (
            f"1 of 19 images of imagenet cannot be read, the first is {folder / name} ({reason}); "
            "remove or replace them"
        )
        (folder / name).unlink()
    write_broken(folder)
    assert check_refusal(imagenet) == (
        f"6 of 24 images of imagenet cannot be read, the first is {folder}/cut.jpg (cut off); remove or replace them"
    )


def test_files_pass_exactly_if_they_can_be_decoded(tmp_path: Path) -> None:
    """A JPEG is cut off at many positions."""
    imagenet = write_imagenet(tmp_path)
    path = imagenet / "train" / CLASSES[0] / f"{CLASSES[0]}_0.JPEG"
    whole = path.read_bytes()
    refused = 0
    for end in (*range(0, len(whole), 97), len(whole) - 2, len(whole) - 1, len(whole)):
        path.write_bytes(whole[:end])
        dataset = load("imagenet", tmp_path)
        try:
            check_dataset(dataset)
        except DataError:
            refused += 1
            with pytest.raises(DataError):
                dataset.train_images[:1]
        else:
            assert end == len(whole)
    assert refused > 5
