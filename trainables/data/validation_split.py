"""Validation images: labelled training images that are held out, so that nothing is chosen on test images.

Shapes: N training images.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from trainables.data.datasets.dataset import UNLABELLED, Dataset
from trainables.data.splits import select_images

SPLIT_SEED = 0
"""Seed of the permutation that selects the images held out. It is fixed, so that all trials on a data set that hold out
the same share hold out the same images, whatever their own seeds."""


@lru_cache(maxsize=1)
def hold_out_validation(dataset: Dataset, share: float) -> tuple[Dataset, Dataset]:
    """Return the data set without its validation images, and the same with the validation images as test images.

    Of each class, `share` (in (0, 1)) of the labelled training images, rounded, become validation images; a larger
    share holds out the same images and more. Unlabelled images remain training images. Mean and standard deviation of
    the channels remain those of all training images. The latest result is cached, so that the members of a cohort share
    the images. Raises ValueError unless each class keeps and holds out at least one image.
    """
    held_N = _held_out(dataset, share)
    images, labels_N = select_images(dataset.train_images, ~held_N), dataset.train_labels[~held_N]
    trained = replace(dataset, train_images=images, train_labels=labels_N)
    validation_images, validation_labels = select_images(dataset.train_images, held_N), dataset.train_labels[held_N]
    return trained, replace(trained, test_images=validation_images, test_labels=validation_labels)


def _held_out(dataset: Dataset, share: float) -> Tensor:
    """bool `[N]`, True for the images that are held out."""
    labels_N = dataset.train_labels
    order_N = torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(SPLIT_SEED))
    held_N = torch.zeros(len(labels_N), dtype=torch.bool)
    for label in labels_N[labels_N != UNLABELLED].unique().tolist():
        members = order_N[labels_N[order_N] == label]
        count = round(share * len(members))
        if not 1 <= count < len(members):
            raise ValueError(
                f"validation must leave and hold out at least one image of each class, but of the {len(members)} "
                f"training images of class {dataset.classes[label]} of {dataset.name} validation={share} holds out "
                f"{count}"
            )
        held_N[members[:count]] = True
    return held_N
