"""A data set: its images, labels and attributes, and the properties declared without its files.

Shapes: N images, C channels, H rows, W columns, K classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from trainables.data.image_files import Images

UNLABELLED = -1
"""The label of training images of unknown class, and of images for which an attribute is not defined."""


@dataclass(frozen=True, eq=False)
class Attribute:
    """A second label of every image besides its class, such as the hair colour of a face."""

    train_labels: Tensor
    """int64 `[N]`, in 0..classes-1, or UNLABELLED; in the order of the training images."""
    test_labels: Tensor
    """Labels of the test images, in the same form."""
    classes: int
    """Number of values of the attribute."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images for training and testing, on the CPU."""

    name: str
    """Its name in DATASETS."""
    train_images: Images
    """`[N, C, H, W]`: uint8, pixels in 0..levels, or float32, pixels in [0, 1]."""
    train_labels: Tensor
    """int64 `[N]`, indices of `classes`, or UNLABELLED."""
    test_images: Images
    """Like `train_images`."""
    test_labels: Tensor
    """int64 `[N]`, indices of `classes`."""
    classes: tuple[str, ...]
    """Names of the classes."""
    levels: int
    """The pixel value of white."""
    mean: tuple[float, ...]
    """Mean of each channel over the training images, for pixels scaled to [0, 1]."""
    std: tuple[float, ...]
    """Standard deviation of each channel over the training images, for pixels scaled to [0, 1]."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """Name -> attribute of the images. Most data sets have none."""
    groups: Tensor | None = None
    """int64 `[N]`, the group of each training image, such as its patient; a validation split never divides a group.
    None without groups."""


@dataclass(frozen=True)
class Declaration:
    """The properties of a published data set."""

    shape: tuple[int, int, int]
    """(C, H, W) of an image as models see it."""
    classes: int
    """Number of classes K. For image folders, the number in the published data set; the existing folders may differ."""
    train: tuple[int, ...] | None
    """Number of labelled training images per class, `[K]`; None if known only from the files."""
    test: tuple[int, ...] | None
    """Number of test images per class, `[K]`; None if known only from the files."""
    levels: int = 255
    """The pixel value of white."""
    unlabelled: int = 0
    """Number of training images of unknown class."""
    attributes: Mapping[str, int] = field(default_factory=dict)
    """Name of each attribute of the images -> its number of classes."""

    @property
    def files(self) -> bool:
        """Whether the images are files in class folders, which are decoded during training."""
        return self.train is None


@dataclass(frozen=True)
class ImageListing:
    """Properties of the user's own images that this process has listed, without the images themselves."""

    classes: tuple[str, ...]
    """Names of the classes; empty for images without labels."""
    digest: str
    """Hash of the contents: equal images have equal digests, wherever they are stored."""
    train: tuple[int, ...]
    """Number of training images per class; 0 for a class with test images only."""
    test: tuple[int, ...]
    """Number of test images per class."""
    repeated: int
    """Number of test images that are also training images; 0 if not counted."""
    paths: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    """Paths of the images of each split, class by class, for files in class folders."""
    shape: tuple[int, int, int] = (0, 0, 0)
    """`(C, H, W)` of an image, if the images determine it."""
    outline: Dataset | None = field(default=None, repr=False)
    """The data set with labels, groups and empty images, if the images determine their shape."""
    about: str = ""
    """One line for the user on images that determine their shape."""
    remarks: tuple[str, ...] = ()
    """Further remarks on the images for the user."""

    def declaration(self, shape: tuple[int, int, int]) -> Declaration:
        """The declaration for a trial on images of this shape, before it loads them."""
        attributes = self.outline.attributes if self.outline else {}
        classes = {name: attribute.classes for name, attribute in attributes.items()}
        return Declaration(shape, len(self.classes), self.train, self.test, attributes=classes)


_by_digest: dict[str, ImageListing] = {}


def remember(listing: ImageListing) -> ImageListing:
    """Return a listing and store it for `listed`."""
    _by_digest[listing.digest] = listing
    return listing


def listed(digest: str) -> ImageListing | None:
    """The listing with this digest; None if this process has not stored one."""
    return _by_digest.get(digest)


@dataclass(frozen=True)
class Source:
    """A data set that trials can name: how it is read, and its declared properties."""

    load: Callable[[Path], Dataset]
    """Read it from the folder of all data sets. Its docstring describes the data set to users. Raises DataError for
    files that are corrupt, or absent and not downloadable."""
    declaration: Declaration
    files: str
    """Where the files are expected; DATA stands for the folder of all data sets."""

    @property
    def about(self) -> str:
        """The description of the data set for users."""
        return inspect.getdoc(self.load) or ""


def placeholder(name: str, declared: Declaration, classes: Sequence[str] = ()) -> Dataset | None:
    """A data set with the declared labels, class by class, and empty images `[N, C, 0, 0]`, which take no memory. It
    can be split like the real data set. Labels of attributes are placeholders. Without `classes`, class names are
    indices. None if the number of images is not declared."""
    if declared.train is None or declared.test is None:
        return None
    channels = declared.shape[0]
    train_N, test_N = _labels(declared.train, declared.unlabelled), _labels(declared.test)
    return Dataset(
        name=name,
        train_images=torch.empty((len(train_N), channels, 0, 0), dtype=torch.uint8),
        train_labels=train_N,
        test_images=torch.empty((len(test_N), channels, 0, 0), dtype=torch.uint8),
        test_labels=test_N,
        classes=tuple(classes or map(str, range(declared.classes))),
        levels=declared.levels,
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
        attributes={
            attribute: Attribute(torch.arange(len(train_N)) % classes, torch.arange(len(test_N)) % classes, classes)
            for attribute, classes in declared.attributes.items()
        },
    )


def _labels(counts: tuple[int, ...], unlabelled: int = 0) -> Tensor:
    """Labels, int64 `[N]`, with label k repeated `counts[k]` times; unlabelled images come last."""
    labelled_N = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return torch.cat([labelled_N, torch.full((unlabelled,), UNLABELLED)])


def channel_statistics(images_NCHW: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation per channel, float64 `[C]`, of uint8 images with pixels in 0..255 scaled to [0, 1].
    Exact, computed from counts."""
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images_NCHW.unbind(1)])
    share = counts.double() / counts.sum(dim=1, keepdim=True)
    value = torch.arange(256, dtype=torch.float64) / 255
    mean = share @ value
    return mean, (share @ value.square() - mean.square()).clamp(min=0).sqrt()
