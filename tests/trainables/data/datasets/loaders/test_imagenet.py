"""ImageNet's files are listed as torchvision lists them, without opening one."""

from pathlib import Path

import pytest
import torch
from torchvision.datasets import ImageFolder

from tests.image_files import CLASSES
from tests.trainables.data.refusals import imagenet_refusal
from trainables.data.datasets.catalog import load
from trainables.data.image_files import ImageFiles


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


def test_an_absent_data_set_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "imagenet"
    assert imagenet_refusal(folder) == (
        f"imagenet is absent from {tmp_path} and not to be downloaded; put its images into {folder}/train/CLASS/ and "
        f"{folder}/val/CLASS/, from https://image-net.org"
    )
