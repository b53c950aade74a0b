"""Class folders of image files -> their names and labels: `FOLDER/SPLIT/CLASS/*`.

Shapes: N images.
"""

from __future__ import annotations

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
"""Of the names of image files, in either case."""

Listing = tuple[NDArray[np.bytes_], Tensor, tuple[str, ...]]


def list_images(name: str, folder: Path, split: str) -> Listing:
    """Paths below `folder` `[N]`, labels (int64 `[N]`) and class names, all sorted, of a split of the set `name`.

    DataError, one line, where the split is absent or without classes, a class is empty, or a file is stray. Names that
    begin with a dot are passed over.
    """
    if not (folder / split).is_dir():
        raise DataError(
            f"{name} is without the split '{split}': there is no folder {folder / split}; images belong in "
            f"{folder}/{split}/CLASS/"
        )
    classes = [entry.name for entry in _entries(folder / split) if _is_class(name, entry)]
    if not classes:
        raise DataError(f"{name} has no images: {folder / split} is empty; images belong in {folder}/{split}/CLASS/")
    with ThreadPoolExecutor(8) as pool:
        files = list(pool.map(partial(_images, name), (folder / split / one for one in classes)))
    names = [os.path.join(split, one, file) for one, found in zip(classes, files, strict=True) for file in found]
    counts = torch.tensor([len(found) for found in files])
    labels_N = torch.repeat_interleave(torch.arange(len(classes)), counts)
    return np.array([os.fsencode(one) for one in names]), labels_N, tuple(classes)


def same_classes(name: str, folder: Path, train: tuple[str, ...], val: tuple[str, ...]) -> None:
    """DataError unless both splits have the same classes."""
    for one in sorted(set(train) ^ set(val)):
        there, absent = ("train", "val") if one in train else ("val", "train")
        raise DataError(
            f"the classes of {name} must be the same in train and val, but {folder / there / one} has no counterpart "
            f"in {folder / absent}"
        )


def _is_class(name: str, entry: os.DirEntry[str]) -> bool:
    if not entry.is_dir():
        raise DataError(f"{name} must hold nothing but a folder for each class beside {entry.path}, which is a file")
    return True


def _images(name: str, folder: Path) -> list[str]:
    """The file names in the folder of one class."""
    found = []
    for entry in _entries(folder):
        if not entry.name.lower().endswith(ENDINGS) or entry.is_dir():
            raise DataError(
                f"class folders of {name} must hold nothing but images ({' '.join(ENDINGS)}), but got {entry.path}"
            )
        found.append(entry.name)
    if not found:
        raise DataError(f"every class of {name} must have images, but {folder} is empty")
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((one for one in entries if not one.name.startswith(".")), key=lambda one: one.name)
    except OSError as error:
        raise DataError(f"{folder} cannot be read ({error.strerror})") from error
