"""List the image files in class folders, `FOLDER/SPLIT/CLASS/*`, with their labels.

Shapes: N images.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.data.errors import DataError

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of the names of image files, in upper or lower case."""
MAX_NAMED = 20
"""Most foreign files that an error names."""


def list_images(name: str, folder: Path, split: str) -> tuple[NDArray[np.bytes_], Tensor, tuple[str, ...]]:
    """List a split of the data set `name`: paths `[N]` below `folder`, labels (int64 `[N]`), class names; all sorted.
    Names that begin with a dot are ignored. Raises DataError, with a one-line message, if the split is absent or has no
    classes, if a class has no images, or if there is any other file."""
    if not (folder / split).is_dir():
        raise DataError(
            f"{name} is without the split '{split}': there is no folder {folder / split}; images belong in "
            f"{folder}/{split}/CLASS/"
        )
    entries = _entries(folder / split)
    if file := next((entry.path for entry in entries if not entry.is_dir()), None):
        raise DataError(f"a split of {name} must hold nothing but a folder for each class, but {file} is a file")
    classes = [entry.name for entry in entries]
    if not classes:
        raise DataError(f"{name} has no images: {folder / split} is empty; images belong in {folder}/{split}/CLASS/")
    with ThreadPoolExecutor(8) as pool:
        listed = list(pool.map(partial(_images, name), (folder / split / class_ for class_ in classes)))
    if foreign := [path for _, paths in listed for path in paths]:
        more = f" and {len(foreign) - MAX_NAMED} more" if len(foreign) > MAX_NAMED else ""
        raise DataError(
            f"class folders of {name} must hold nothing but images ({' '.join(ENDINGS)}), but got "
            f"{', '.join(foreign[:MAX_NAMED])}{more}"
        )
    files_by_class = [names for names, _ in listed]
    files = [
        os.path.join(split, class_, file)
        for class_, names in zip(classes, files_by_class, strict=True)
        for file in names
    ]
    labels_N = torch.repeat_interleave(torch.arange(len(classes)), torch.tensor([*map(len, files_by_class)]))
    return np.array([os.fsencode(file) for file in files]), labels_N, tuple(classes)


def same_classes(name: str, folder: Path, train: tuple[str, ...], val: tuple[str, ...]) -> None:
    """Raises DataError unless both splits have the same classes."""
    for class_ in sorted(set(train) ^ set(val)):
        present, absent = ("train", "val") if class_ in train else ("val", "train")
        raise DataError(
            f"the classes of {name} must be the same in train and val, but {folder / present / class_} has no "
            f"counterpart in {folder / absent}"
        )


def _images(name: str, folder: Path) -> tuple[list[str], list[str]]:
    """The names of the images in the folder of one class, and the paths of everything else there."""
    entries = _entries(folder)
    if not entries:
        raise DataError(f"every class of {name} must have images, but {folder} is empty")
    foreign = [entry.path for entry in entries if not entry.name.lower().endswith(ENDINGS) or entry.is_dir()]
    return [entry.name for entry in entries], foreign


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, sorted by name, without those that begin with a dot."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{folder} cannot be read ({error.strerror})") from error
