"""The user's own images, in class folders: `DATA/{train,test}/CLASS/*`, of any size, resized when they are loaded.

Shapes: N images, C channels, S the length of a side.
"""

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from trainables.data.datasets.channel_statistics import channel_statistics
from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.declarations import Declaration
from trainables.data.errors import DataError
from trainables.data.image_files.class_folders import list_images
from trainables.data.image_files.decoding import decode_file

FOLDER = "folder"
"""Name of the data set."""
SPLITS = ("train", "test")
MAX_BYTES = 4 << 30
"""Largest size of all decoded images together, which every training process keeps in memory."""


@dataclass(frozen=True)
class Listing:
    """The image files of a folder, which are not decoded."""

    classes: tuple[str, ...]
    """Names of the classes of both splits, sorted."""
    digest: str
    """Hash of the paths and contents of all files: equal folders have equal digests, wherever they are."""
    train: tuple[int, ...]
    """Number of training images of each class; 0 for a class that is only tested."""
    test: tuple[int, ...]
    """Number of test images of each class."""
    repeated: int
    """Number of test images whose files are those of training images."""
    paths: tuple[tuple[str, ...], ...] = field(repr=False)
    """Paths of the images of each split, class by class."""

    def declaration(self, size: int, channels: int) -> Declaration:
        """What a trial knows of the images before it loads them."""
        return Declaration((channels, size, size), len(self.classes), self.train, self.test)


def list_folder(root: Path) -> Listing:
    """List the folder `root`. Names that begin with a dot are ignored. Raises DataError, with one line, if it is not
    laid out as `list_images` requires. A class may be absent from one of the splits."""
    found = [list_images(f"dataset={FOLDER}", root, split) for split in SPLITS]
    classes = tuple(sorted({class_ for _, _, names in found for class_ in names}))
    counts = []
    for _, labels_N, names in found:
        count_of = dict(zip(names, torch.bincount(labels_N, minlength=len(names)).tolist(), strict=True))
        counts.append(tuple(count_of.get(class_, 0) for class_ in classes))
    paths = [tuple(os.path.join(root, os.fsdecode(file)) for file in files) for files, _, _ in found]
    train, test = counts
    digest, contents = _digests(root, [*paths[0], *paths[1]])
    known = set(contents[: len(paths[0])])
    repeated = sum(content in known for content in contents[len(paths[0]) :])
    listing = Listing(classes, digest, train, test, repeated, tuple(paths))
    _by_digest[listing.digest] = listing
    return listing


_by_digest: dict[str, Listing] = {}


def listed(digest: str) -> Listing | None:
    """The listing with this digest; None if this process has not listed its folder."""
    return _by_digest.get(digest)


def load_folder(root: Path, digest: str, size: int, channels: int) -> Dataset:
    """Images of your own, each resized as a whole to a square.

    Returns the images of `root` as `[N, channels, size, size]`. Raises DataError, with one line, if a file cannot be
    decoded, if they are not the images of this `digest` (unless that is empty), or if they need too much memory."""
    listing = list_folder(root)
    if digest and digest != listing.digest:
        raise DataError(
            f"the images in {root} must be those that the trials were planned with (image_digest={digest}), but have "
            f"changed (image_digest={listing.digest}); run the command again for trials on the new ones"
        )
    need = sum(map(len, listing.paths)) * channels * size * size
    if need > MAX_BYTES:
        raise DataError(
            f"the images in {root} must not exceed {MAX_BYTES >> 30} GiB in memory, but need {need / 2**30:.1f} GiB "
            f"with image_size={size}; choose a smaller image_size, or dataset=imagenet, which decodes during training"
        )
    train_NCSS, test_NCSS = (_decoded(paths, size, channels) for paths in listing.paths)
    mean, std = channel_statistics(train_NCSS)
    train_N, test_N = (
        torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        for counts in (listing.train, listing.test)
    )
    return Dataset(
        name=FOLDER,
        train_images=train_NCSS,
        train_labels=train_N,
        test_images=test_NCSS,
        test_labels=test_N,
        classes=listing.classes,
        levels=255,
        mean=tuple(mean.tolist()),
        std=tuple(std.clamp(min=1 / 255).tolist()),  # images of one value have none
    )


def _digests(root: Path, paths: list[str]) -> tuple[str, list[bytes]]:
    """The digest of a listing, 12 hexadecimal digits, and that of the content of each file. Raises DataError if a file
    cannot be read."""

    def hashed(path: str) -> bytes:
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise DataError(f"the image {path} must be a file, but is a named pipe, device or socket")
            with open(path, "rb") as file:
                return hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise DataError(f"the image {path} cannot be read ({error.strerror})") from error

    with ThreadPoolExecutor() as pool:
        contents = list(pool.map(hashed, paths))
    named = zip((os.fsencode(os.path.relpath(path, root)) for path in paths), contents, strict=True)
    return hashlib.sha256(b"".join(name + b"\0" + content for name, content in named)).hexdigest()[:12], contents


def _decoded(paths: tuple[str, ...], size: int, channels: int) -> Tensor:
    """uint8 `[N, C, S, S]`."""
    images_NCSS = np.empty((len(paths), channels, size, size), dtype=np.uint8)

    def fill(row: int) -> None:
        (image,) = decode_file(paths[row], partial(_resized, size=size, mode="L" if channels == 1 else "RGB"))
        pixels = np.asarray(image)
        images_NCSS[row] = pixels if channels == 1 else pixels.transpose(2, 0, 1)

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(len(paths))))
    return torch.from_numpy(images_NCSS)


def _resized(image: Image.Image, size: int, mode: str) -> list[Image.Image]:
    """The whole image, upright as its camera was held, as a square."""
    upright = ImageOps.exif_transpose(image)
    return [upright.convert(mode).resize((size, size), Image.Resampling.BILINEAR)]
