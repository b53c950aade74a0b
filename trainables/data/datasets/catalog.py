"""All data sets by name: `load(name, root)` loads one, `check_dataset(dataset)` checks its image files before training.

A data set is one entry of the `DATASETS` of the file that reads it.
"""

from collections.abc import Mapping
from pathlib import Path

from trainables.data.datasets import celeba, class_folders, digits, torchvision_datasets
from trainables.data.datasets.dataset import Dataset, Source
from trainables.data.errors import DataError
from trainables.data.image_files import ImageFiles, check_image_files
from trainables.validation import unknown

DATASETS: Mapping[str, Source] = dict(
    sorted((celeba.DATASETS | class_folders.DATASETS | digits.DATASETS | torchvision_datasets.DATASETS).items())
)
"""Name of a data set -> where it comes from."""


def load(name: str, root: Path) -> Dataset:
    """Load the data set `name` from the folder `root`. Raises DataError for an unknown name, and for files that are
    corrupt, or absent and not downloadable."""
    if name not in DATASETS:
        raise DataError(unknown("dataset", name, sorted(DATASETS), "--describe datasets lists all"))
    return DATASETS[name].load(root)


def check_dataset(dataset: Dataset) -> None:
    """Raises DataError if an image file of the data set cannot be read. Tensors were already read on loading."""
    parts = (dataset.train_images, dataset.test_images)
    paths = [path for part in parts if isinstance(part, ImageFiles) for path in part.paths()]
    check_image_files(dataset.name, paths)
