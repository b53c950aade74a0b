"""All data sets by name: `load(name, root)` loads one, `check(dataset)` checks its image files before training.

A new data set is one function in `loaders/` and one entry here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.loaders.celeba import celeba
from trainables.data.datasets.loaders.digits import digits, digits32, digits_tint
from trainables.data.datasets.loaders.imagenet import imagenet
from trainables.data.datasets.loaders.mnist import fashion_mnist, mnist, mnist32
from trainables.data.datasets.loaders.torchvision_datasets import cifar10, cifar100, stl10, svhn
from trainables.data.errors import DataError
from trainables.data.image_files.decoding import ImageFiles
from trainables.data.image_files.integrity import check_image_files
from trainables.validation import unknown

Loader = Callable[[Path], Dataset]

IN_MEMORY: Mapping[str, Loader] = {
    "celeba": celeba,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "digits": digits,
    "digits32": digits32,
    "digits_tint": digits_tint,
    "fashion_mnist": fashion_mnist,
    "mnist": mnist,
    "mnist32": mnist32,
    "stl10": stl10,
    "svhn": svhn,
}
"""Name -> loader of the data sets whose images are tensors."""

DATASETS: Mapping[str, Loader] = {**IN_MEMORY, "imagenet": imagenet}
"""Name -> loader of all data sets."""


def load(name: str, root: Path) -> Dataset:
    """Load the data set `name` from the folder `root`. Raises DataError for an unknown name, and if files are corrupt,
    or absent and cannot be downloaded."""
    if name not in DATASETS:
        raise DataError(unknown("dataset", name, sorted(DATASETS), "--describe datasets lists all"))
    return DATASETS[name](root)


def check_dataset(dataset: Dataset) -> None:
    """Raises DataError if an image file of the data set cannot be read. Tensors were read when they were loaded."""
    parts = (dataset.train_images, dataset.test_images)
    paths = [path for part in parts if isinstance(part, ImageFiles) for path in part.paths()]
    check_image_files(dataset.name, paths)
