"""Splits of a data set: the images for training, validation and testing, and the outliers among them.

Shapes: N images, C channels, H rows, W columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.data.datasets.dataset import UNLABELLED, Attribute, Dataset
from trainables.data.image_files import Images

SPLIT_SEED = 0
"""Seed of the permutation that selects held-out images. Fixed, so that all trials that hold out the same share of a
data set hold out the same images, whatever their own seeds."""


@dataclass(frozen=True, eq=False)
class Split(Dataset):
    """The images of a data set that one trial uses. Classes, mean and standard deviation are those of all images."""

    outlier: Tensor | None = None
    """bool `[N]`, True for test images of a class that is not trained on; None without such images."""
    held_out_images: Images | None = None
    """Test images of the classes that are neither trained on nor tested; None if no class is held out."""

    @cached_property
    def labelled_images(self) -> Images:
        """The labelled training images, from which k-NN and probes learn; `train_images` itself if all have a label."""
        return select_images(self.train_images, self.train_labels != UNLABELLED)

    @cached_property
    def labelled_labels(self) -> Tensor:
        """The labels of `labelled_images`, int64 `[N]`."""
        return self.train_labels[self.train_labels != UNLABELLED]


class TrialSplits(NamedTuple):
    """The images on which a trial is trained and evaluated."""

    test: Split
    validation: Split | None
    """The same training images, with validation images instead of test images. None without held-out images."""


def all_classes_split(dataset: Dataset) -> Split:
    """All training images, all test images, no outliers."""
    return Split(**vars(dataset))


def one_class_split(
    dataset: Dataset, normal_class: int, normal_images: int = 0, contamination: float = 0.0, seed: int = 0
) -> Split:
    """The training images of `normal_class` only, and all test images, of which other classes are outliers.

    Training uses `normal_images` images of the class (0 for all), plus labelled training images of other classes that
    make up the share `contamination` of all images used. A permutation by `seed` chooses both, so a larger selection
    contains every smaller one. Raises ValueError unless `normal_class` is the index of a class, and if there are too
    few images to choose from."""
    _check_class("normal_class", dataset, normal_class)
    trained_N = dataset.train_labels == normal_class
    if normal_images or contamination:
        order_N = torch.randperm(len(trained_N), generator=torch.Generator().manual_seed(seed))
        normal, others = order_N[trained_N[order_N]], order_N[_of_other_classes(dataset, normal_class)[order_N]]
        _check_normal_images(dataset, normal_class, normal_images, len(normal))
        normal = normal[: normal_images or len(normal)]
        anomalies = _count_anomalies(dataset, normal_class, contamination, len(normal), len(others))
        trained_N = torch.zeros_like(trained_N)
        trained_N[torch.cat([normal, others[:anomalies]])] = True
    return replace(_trained_on(dataset, trained_N), outlier=dataset.test_labels != normal_class)


def _of_other_classes(dataset: Dataset, normal_class: int) -> Tensor:
    """bool `[N]`, True for labelled training images that are not normal."""
    return (dataset.train_labels != normal_class) & (dataset.train_labels != UNLABELLED)


def _check_normal_images(dataset: Dataset, normal_class: int, asked: int, available: int) -> None:
    if asked > available:
        raise ValueError(
            f"normal_images must not exceed the {available} training images of class {dataset.classes[normal_class]} "
            f"of {dataset.name}, but got normal_images={asked}"
        )


def _count_anomalies(dataset: Dataset, normal_class: int, share: float, normal: int, available: int) -> int:
    """Number of anomalies that make up this share of the training images in addition to the `normal` images. Raises
    ValueError if a share above 0 is less than one image or more than the available images."""
    count = round(normal * share / (1 - share))
    if share and not available:
        raise ValueError(
            f"contamination needs training images of classes other than {dataset.classes[normal_class]}, but "
            f"{dataset.name} has none; got contamination={share}"
        )
    if count > available or (share and not count):
        raise ValueError(
            f"contamination must add at least one and at most the {available} training images of classes other than "
            f"{dataset.classes[normal_class]} of {dataset.name}, but contamination={share} with {normal} normal images "
            f"adds {count}"
        )
    return count


def held_out_split(dataset: Dataset, classes: tuple[int, ...]) -> Split:
    """Training and test images without `classes`, whose test images become `held_out_images`. Labels do not change.
    Unlabelled images are left out, because they may belong to any class. Raises ValueError unless `classes` are at
    least one distinct class index and at least two classes are left."""
    for index in classes:
        _check_class("each held-out class", dataset, index)
    duplicates = sorted({index for index in classes if classes.count(index) > 1})
    if duplicates:
        raise ValueError(f"a class must be held out once, but got {duplicates[0]} more than once")
    if not 1 <= len(classes) <= len(dataset.classes) - 2:
        raise ValueError(
            f"of the {len(dataset.classes)} classes of {dataset.name} at least one must be held out and two must be "
            f"left, but got {len(classes)} held out"
        )
    train_N = ~torch.isin(dataset.train_labels, torch.tensor([*classes, UNLABELLED]))
    held_N = torch.isin(dataset.test_labels, torch.tensor(classes))
    trained = _trained_on(dataset, train_N)
    return replace(
        trained,
        test_images=select_images(dataset.test_images, ~held_N),
        test_labels=dataset.test_labels[~held_N],
        attributes={
            name: replace(attribute, test_labels=attribute.test_labels[~held_N])
            for name, attribute in trained.attributes.items()
        },
        held_out_images=select_images(dataset.test_images, held_N),
    )


def select_images(images: Images, mask_N: Tensor) -> Images:
    """The images where `mask` (bool `[N]`) is True; `images` itself if it is True everywhere."""
    if mask_N.all():
        return images
    return images[mask_N] if isinstance(images, Tensor) else images.select(mask_N)


def _trained_on(dataset: Dataset, mask_N: Tensor) -> Split:
    """The training images where `mask` (bool `[N]`) is True, and all test images."""
    return replace(
        all_classes_split(dataset),
        train_images=select_images(dataset.train_images, mask_N),
        train_labels=dataset.train_labels[mask_N],
        attributes=_attributes_of(dataset, mask_N),
        groups=None if dataset.groups is None else dataset.groups[mask_N],
    )


def _attributes_of(dataset: Dataset, mask_N: Tensor) -> Mapping[str, Attribute]:
    """The attributes of the training images where `mask` (bool `[N]`) is True, and of all test images."""
    return {
        name: replace(attribute, train_labels=attribute.train_labels[mask_N])
        for name, attribute in dataset.attributes.items()
    }


def _check_class(name: str, dataset: Dataset, index: object) -> None:
    last = len(dataset.classes) - 1
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= last:
        named = "" if all(map(str.isdecimal, dataset.classes)) else f" ({', '.join(dataset.classes)})"
        raise ValueError(f"{name} must be one of 0..{last}{named} for {dataset.name}, but got {index!r}")


@lru_cache(maxsize=1)
def hold_out_validation(dataset: Dataset, share: float) -> tuple[Dataset, Dataset]:
    """Return the data set without its validation images, and the same with the validation images as test images.

    A `share` in (0, 1) of each class's labelled training images, rounded, becomes validation images; a larger share
    contains every smaller one. Unlabelled images stay training images, unless no image has a label; then the share
    applies to all images. If images have groups, whole groups are held out, as many as come nearest to the share of
    each class, and unlabelled images of these groups are left out. Mean and standard deviation of the channels remain
    those of all training images. The latest result is cached, so that the members of a cohort share the images. Raises
    ValueError unless each class keeps and holds out at least one image.
    """
    held_N = _held_out(dataset, share)
    kept_N = ~held_N
    if dataset.groups is not None:
        kept_N = ~torch.isin(dataset.groups, dataset.groups[held_N])
    trained = replace(
        dataset,
        train_images=select_images(dataset.train_images, kept_N),
        train_labels=dataset.train_labels[kept_N],
        attributes=_attributes_of(dataset, kept_N),
        groups=None if dataset.groups is None else dataset.groups[kept_N],
    )
    validated = replace(
        trained,
        test_images=select_images(dataset.train_images, held_N),
        test_labels=dataset.train_labels[held_N],
        attributes={
            name: replace(attribute, test_labels=dataset.attributes[name].train_labels[held_N])
            for name, attribute in trained.attributes.items()
        },
    )
    return trained, validated


def _held_out(dataset: Dataset, share: float) -> Tensor:
    """bool `[N]`, True for held-out images."""
    labels_N = dataset.train_labels
    if not dataset.classes:
        labels_N = torch.zeros_like(labels_N)  # without labels all images form one class
    order_N = torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(SPLIT_SEED))
    held_N = torch.zeros(len(labels_N), dtype=torch.bool)
    for label in labels_N[labels_N != UNLABELLED].unique().tolist():
        members = order_N[labels_N[order_N] == label]
        held_N[members[: round(share * len(members))]] = True
    if dataset.groups is not None:
        held_N = _in_whole_groups(dataset.groups[order_N], labels_N[order_N], share)[order_N.argsort()]
    for label in labels_N[labels_N != UNLABELLED].unique().tolist():
        count, held_count = int((labels_N == label).sum()), int(held_N[labels_N == label].sum())
        if not 1 <= held_count < count:
            of_class = f" of class {dataset.classes[label]}" if dataset.classes else ""
            groups = "" if dataset.groups is None else ", because groups are held out whole"
            raise ValueError(
                f"validation must leave and hold out at least one image of each class, but of the {count} training "
                f"images{of_class} of {dataset.name} validation={share} holds out {held_count}{groups}"
            )
    return held_N


def _in_whole_groups(groups_N: Tensor, labels_N: Tensor, share: float) -> Tensor:
    """bool `[N]`, True for labelled images of held-out groups, for images in a random order: the first groups of each
    class, at least one, whose total comes nearest to `share` of the class."""
    names, group_N, sizes = groups_N.unique(return_inverse=True, return_counts=True)
    first = torch.full(sizes.shape, len(groups_N)).scatter_reduce_(0, group_N, torch.arange(len(groups_N)), "amin")
    held = torch.zeros(len(names), dtype=torch.bool)
    for label in labels_N[labels_N != UNLABELLED].unique().tolist():
        count = group_N[labels_N == label].bincount(minlength=len(names))
        order = first.argsort()
        order = order[count[order] > 0]
        nearest = (count[order].cumsum(0) - share * int(count.sum())).abs().argmin()
        held[order[: max(1, min(int(nearest) + 1, len(order) - 1))]] = True
    return held[group_N] & (labels_N != UNLABELLED)
