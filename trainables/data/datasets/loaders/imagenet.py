"""ImageNet, or any other images in the same folders, decoded on demand."""

from pathlib import Path

from trainables.data.datasets.dataset import Dataset
from trainables.data.errors import DataError
from trainables.data.image_files.class_folders import list_images, same_classes
from trainables.data.image_files.decoding import ImageFiles

SIDE = 224
"""Pixels along each side of an image as models see it."""


def imagenet(root: Path) -> Dataset:
    """ImageNet's training and validation images as 3x224x224, each decoded when it is needed. Other images in the same
    folders are read likewise."""
    folder = root / "imagenet"
    if not folder.is_dir():
        raise DataError(
            f"imagenet is absent from {root} and not to be downloaded; put its images into {folder}/train/CLASS/ and "
            f"{folder}/val/CLASS/, from https://image-net.org"
        )
    train_names, train_labels, classes = list_images("imagenet", folder, "train")
    val_names, val_labels, val_classes = list_images("imagenet", folder, "val")
    same_classes("imagenet", folder, classes, val_classes)
    return Dataset(
        name="imagenet",
        train_images=ImageFiles(folder, train_names, SIDE),
        train_labels=train_labels,
        test_images=ImageFiles(folder, val_names, SIDE),
        test_labels=val_labels,
        classes=classes,
        levels=255,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    )
