"""Splits of a data set: which images are trained on, which are tested, and which of these are outliers.

Shapes: N images, C channels, H rows, W columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainables.data.datasets.dataset import UNLABELLED, Dataset
from trainables.data.image_files.decoding import ImageFiles, Images


@dataclass(frozen=True, eq=False)
class Split:
    """The images of a data set that one trial uses."""

    train_images: Images
    """uint8 `[N, C, H, W]`, pixels in 0..levels."""

    train_labels: Tensor
    """int64 `[N]`, indices of `classes`, or UNLABELLED."""

    labelled_images: Images
    """The training images with a label, which k-NN and probes learn from; `train_images` itself if all have one."""

    labelled_labels: Tensor
    """int64 `[N]`, indices of `classes`."""

    test_images: Images
    """Like `train_images`."""

    test_labels: Tensor
    """int64 `[N]`, indices of `classes`."""

    outlier: Tensor | None
    """bool `[N]`, True for test images of a class that is not trained on; None if there are no such images."""

    classes: tuple[str, ...]
    """Names of all classes of the data set."""

    levels: int
    """The pixel value of white."""

    mean: tuple[float, ...]
    """Mean of each channel over all training images of the data set (whatever the split), for pixels in [0, 1]."""

    std: tuple[float, ...]
    """Standard deviation of each channel over the same images, for pixels in [0, 1]."""

    held_out_images: Images | None = None
    """Test images of the classes that are neither trained on nor tested; None if no class is held out."""


def all_classes_split(dataset: Dataset) -> Split:
    """All training images, all test images, no outliers."""
    labelled_N = dataset.train_labels != UNLABELLED
    return replace(
        _trained_on(dataset, labelled_N), train_images=dataset.train_images, train_labels=dataset.train_labels
    )


def one_class_split(dataset: Dataset, normal_class: int) -> Split:
    """The training images of `normal_class` only, and all test images, where those of other classes are outliers.

    Raises ValueError unless `normal_class` is the index of a class.
    """
    _check_class("normal_class", dataset, normal_class)
    return replace(
        _trained_on(dataset, dataset.train_labels == normal_class), outlier=dataset.test_labels != normal_class
    )


def held_out_split(dataset: Dataset, classes: tuple[int, ...]) -> Split:
    """Training and test images without those of `classes`, whose test images become `held_out_images`. Labels do not
    change.

    Unlabelled images are left out because they may be of any class. Raises ValueError unless `classes` are distinct
    indices of classes, at least one, and at least two classes are left.
    """
    for index in classes:
        _check_class("each held-out class", dataset, index)
    duplicates = sorted({index for index in classes if classes.count(index) > 1})
    if duplicates:
        raise ValueError(f"a class must be held out once, but got {duplicates[0]} more than once")
    if not 1 <= len(classes) <= len(dataset.classes) - 2:
        raise ValueError(
            f"at least one class must be held out and two be left of the {len(dataset.classes)} of {dataset.name}, "
            f"but got {len(classes)} held out"
        )
    train_N = ~torch.isin(dataset.train_labels, torch.tensor([*classes, UNLABELLED]))
    held_N = torch.isin(dataset.test_labels, torch.tensor(classes))
    return replace(
        _trained_on(dataset, train_N),
        test_images=select_images(dataset.test_images, ~held_N),
        test_labels=dataset.test_labels[~held_N],
        held_out_images=select_images(dataset.test_images, held_N),
    )


def select_images(images: Images, mask_N: Tensor) -> Images:
    """The images where `mask` (bool `[N]`) is True; `images` itself if it is True everywhere."""
    if mask_N.all():
        return images
    return images.select(mask_N) if isinstance(images, ImageFiles) else images[mask_N]


def _trained_on(dataset: Dataset, mask_N: Tensor) -> Split:
    """The training images where `mask` (bool `[N]`) is True, all of them labelled, and all test images."""
    images, labels_N = select_images(dataset.train_images, mask_N), dataset.train_labels[mask_N]
    return Split(
        train_images=images,
        train_labels=labels_N,
        labelled_images=images,
        labelled_labels=labels_N,
        test_images=dataset.test_images,
        test_labels=dataset.test_labels,
        outlier=None,
        classes=dataset.classes,
        levels=dataset.levels,
        mean=dataset.mean,
        std=dataset.std,
    )


def _check_class(name: str, dataset: Dataset, index: object) -> None:
    last = len(dataset.classes) - 1
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= last:
        raise ValueError(f"{name} must be one of 0..{last} for {dataset.name}, but got {index!r}")
