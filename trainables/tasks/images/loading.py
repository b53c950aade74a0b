"""The data set of a trial on images: loaded by its name, or from the user's own folder."""

from functools import lru_cache
from pathlib import Path

from trainables.data.datasets.catalog import load
from trainables.data.datasets.class_folders import FOLDER, listed, load_folder
from trainables.data.datasets.dataset import Dataset, placeholder
from trainables.tasks.images.config import Folder, ImageTrial


def dataset_of(config: ImageTrial, data: Path) -> Dataset:
    """Load a data set and keep it: one process trains many cohorts on the same data set."""
    return _kept(config.data.dataset, config.folder, data)


def load_dataset(name: str, folder: Folder, data: Path) -> Dataset:
    """Load the data set with this name; `folder` is about the user's own images."""
    if name == FOLDER:
        return load_folder(data, folder.image_digest, folder.image_size, folder.image_channels)
    return load(name, data)


_kept = lru_cache(maxsize=1)(load_dataset)


def placeholder_for(config: ImageTrial) -> Dataset | None:
    """The data set with empty images; None if the number of its images is not known without its files."""
    if config.data.dataset != FOLDER:
        return placeholder(config.data.dataset, config.declaration)
    listing = listed(config.folder.image_digest)
    return placeholder(FOLDER, config.declaration, listing.classes) if listing else None
