"""Properties of each data set that are known without its files: image shape, number of classes, number of images.

Shapes: N images, C channels, H rows, W columns, K classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from trainables.data.datasets.dataset import UNLABELLED, Attribute, Dataset
from trainables.data.datasets.loaders.celeba_attributes import ATTRIBUTES as CELEBA_ATTRIBUTES


@dataclass(frozen=True)
class Declaration:
    """The properties of a published data set."""

    shape: tuple[int, int, int]
    """(C, H, W) of an image as models see it."""
    classes: int
    """Number of classes K. For image folders that of the published data set; the folders that exist may differ."""
    train: tuple[int, ...] | None
    """Number of labelled training images of each class, `[K]`; None if only the files tell."""
    test: tuple[int, ...] | None
    """Number of test images of each class, `[K]`; None if only the files tell."""
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


DIGITS = Declaration(
    (1, 8, 8),
    10,
    train=(125, 128, 124, 128, 127, 128, 127, 125, 122, 126),
    test=(53, 54, 53, 55, 54, 54, 54, 54, 52, 54),
    levels=16,
    attributes={"ink": 5, "slant": 5},
)
MNIST = Declaration(
    (1, 28, 28),
    10,
    train=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    test=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)
DECLARATIONS: Mapping[str, Declaration] = {
    "celeba": Declaration(
        (3, 64, 64),
        2,
        train=(94_509, 68_261),
        test=(12_247, 7_715),
        attributes=CELEBA_ATTRIBUTES,
    ),
    "cifar10": Declaration((3, 32, 32), 10, train=(5000,) * 10, test=(1000,) * 10),
    "cifar100": Declaration((3, 32, 32), 100, train=(500,) * 100, test=(100,) * 100),
    "digits": DIGITS,
    "digits32": replace(DIGITS, shape=(3, 32, 32), levels=255),
    "digits_tint": replace(DIGITS, shape=(3, 8, 8), levels=80, attributes={**DIGITS.attributes, "hue": 5}),
    "fashion_mnist": Declaration((1, 28, 28), 10, train=(6000,) * 10, test=(1000,) * 10),
    "imagenet": Declaration((3, 224, 224), 1000, train=None, test=None),
    "mnist": MNIST,
    "mnist32": replace(MNIST, shape=(1, 32, 32)),
    "stl10": Declaration((3, 96, 96), 10, train=(500,) * 10, test=(800,) * 10, unlabelled=100_000),
    "svhn": Declaration(
        (3, 32, 32),
        10,
        train=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
        test=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
    ),
}
"""Name of a data set in DATASETS -> its declaration."""


def placeholder(name: str) -> Dataset | None:
    """A data set with the declared labels, class by class, and empty images `[N, C, 0, 0]`, which take no memory. It
    can be split like the real one. Its attributes' labels are made up. None if the number of images is not declared."""
    declared = DECLARATIONS.get(name)
    return placeholder_of(name, declared, tuple(map(str, range(declared.classes)))) if declared else None


def placeholder_of(name: str, declared: Declaration, classes: tuple[str, ...]) -> Dataset | None:
    """As `placeholder`, of a declaration, with the names of its classes."""
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
        classes=classes,
        levels=declared.levels,
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
        attributes={
            attribute: Attribute(torch.arange(len(train_N)) % classes, torch.arange(len(test_N)) % classes, classes)
            for attribute, classes in declared.attributes.items()
        },
    )


def _labels(counts: tuple[int, ...], unlabelled: int = 0) -> Tensor:
    """Labels, int64 `[N]`, with `counts[k]` times the label k; unlabelled images come last."""
    labelled_N = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return torch.cat([labelled_N, torch.full((unlabelled,), UNLABELLED)])
