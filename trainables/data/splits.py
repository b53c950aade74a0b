"""Which images of a data set are trained on, and which test images count as outliers.

Shapes: N images, C channels, H rows, W columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from trainables.data.datasets import Dataset


@dataclass(frozen=True, eq=False)
class Split:
    """What one trial sees of a data set."""

    train_images: Tensor
    """uint8 `[N, C, H, W]`, pixels in 0..levels."""

    train_labels: Tensor
    """int64 `[N]`, indices of `classes`."""

    test_images: Tensor
    """As `train_images`."""

    test_labels: Tensor
    """As `train_labels`."""

    outlier: Tensor | None
    """bool `[N]`, True where a test image is of a class not trained on; None if all classes are."""

    classes: tuple[str, ...]
    """Names of all classes of the data set."""

    levels: int
    """The pixel value of white."""

    mean: tuple[float, ...]
    """Mean of each channel over all training images of the data set (not of one class), of pixels in [0, 1]."""

    std: tuple[float, ...]
    """Standard deviation of each channel, likewise."""


def whole(dataset: Dataset) -> Split:
    """All training images, all test images, no outliers."""
    return Split(
        train_images=dataset.train_images,
        train_labels=dataset.train_labels,
        test_images=dataset.test_images,
        test_labels=dataset.test_labels,
        outlier=None,
        classes=dataset.classes,
        levels=dataset.levels,
        mean=dataset.mean,
        std=dataset.std,
    )


def one_class(dataset: Dataset, normal_class: int) -> Split:
    """The training images of `normal_class` alone and the whole test set, where every other class is an outlier.

    ValueError unless `normal_class` is an index of the data set's classes.
    """
    last = len(dataset.classes) - 1
    if isinstance(normal_class, bool) or not isinstance(normal_class, int) or not 0 <= normal_class <= last:
        raise ValueError(f"normal_class must be one of 0..{last} for {dataset.name}, but got {normal_class!r}")
    normal_N = dataset.train_labels == normal_class
    return replace(
        whole(dataset),
        train_images=dataset.train_images[normal_N],
        train_labels=dataset.train_labels[normal_N],
        outlier=dataset.test_labels != normal_class,
    )
