"""Images in class folders, `FOLDER/SPLIT/CLASS/*`: ImageNet, or other images in its folders, decoded on demand; and the
user's own images of any size, resized on loading.

Shapes: N images, C channels, S pixels along a side.
"""

import hashlib
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from trainables.data.datasets.dataset import (
    Dataset,
    Declaration,
    ImageListing,
    Source,
    channel_statistics,
    remember,
)
from trainables.data.errors import DataError
from trainables.data.image_files import ImageFiles, decode_file, read_header

SIDE = 224
"""Height and width of an ImageNet image, in pixels, as models see it."""
FOLDER = "folder"
"""Name of the data set of the user's own images."""
SPLITS = ("train", "test")
MAX_BYTES = 4 << 30
"""Maximum size of all decoded images together, which every training process keeps in memory."""
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of the names of image files, in upper or lower case."""
IGNORED = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "__macosx", "@eadir"})
"""Names, in lower case, of files that file managers and archives leave in folders."""
MADE = {
    FOLDER: "each file upright, as a whole, resized to a square by Pillow's bilinear filter",
    "imagenet": "each file resized to 256/224 of the side by Pillow's bilinear filter, then its central square",
}
"""Data set of image files -> how its files become arrays, as the file of a model has it. A change of how they do must
change this text, too, so that a model refuses files that it would see otherwise than in training."""
MAX_NAMED = 20
"""Maximum number of foreign files that an error names."""
MAX_PAGED, MAX_IGNORED = 3, 3
"""Maximum numbers of multi-page files and of ignored files that a line for the user names."""


def imagenet(root: Path) -> Dataset:
    """ImageNet's training and validation images as 3x224x224, each decoded on demand. Other images in the same folders
    are read in the same way."""
    folder = root / "imagenet"
    if not folder.is_dir():
        raise DataError(
            f"imagenet is absent from {root} and is not downloaded; put its images into {folder}/train/CLASS/ and "
            f"{folder}/val/CLASS/, from https://image-net.org"
        )
    train_names, train_labels, classes = list_images("imagenet", folder, "train")
    val_names, val_labels, val_classes = list_images("imagenet", folder, "val")
    same_classes("imagenet", folder, classes, val_classes)
    return Dataset(
        name="imagenet",
        train_images=ImageFiles(folder, train_names, SIDE),
        train_labels=train_labels,
        test_images=ImageFiles(folder, val_names, SIDE),
        test_labels=val_labels,
        classes=classes,
        levels=255,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    )


def list_folder(root: Path) -> ImageListing:
    """List the folder `root`, with remarks on its images. Raises DataError, with one line, if its layout differs from
    the one that `list_images` requires, or if a file is not an image of a legal size. A class may be absent from one of
    the splits. Classes are sorted numerically if all names are numbers, otherwise as text."""
    listing = _listing(root)
    paths = [path for split in listing.paths for path in split]
    with ThreadPoolExecutor() as pool:
        headers = list(pool.map(read_header, paths))
    remarks = []
    if ignored := ignored_files(root):
        named = ", ".join(ignored[:MAX_IGNORED])
        more = f" and {len(ignored) - MAX_IGNORED} more" if len(ignored) > MAX_IGNORED else ""
        remarks.append(f"skipped, as no images: {named}{more}")
    if paged := [path for path, header in zip(paths, headers, strict=True) if header.paged]:
        named = ", ".join(os.path.relpath(path, root) for path in paged[:MAX_PAGED])
        more = f" and {len(paged) - MAX_PAGED} more" if len(paged) > MAX_PAGED else ""
        remarks.append(
            f"warning: {len(paged)} of them have several pages or frames, of which only the first is used: "
            f"{named}{more}"
        )
    if transparent := sum(header.transparent for header in headers):
        remarks.append(f"{transparent} of them have transparent pixels, which are placed on white")
    return remember(replace(listing, remarks=tuple(remarks)))


def _listing(root: Path) -> ImageListing:
    """As `list_folder`, without the remarks."""
    by_class = [_by_class(*list_images(f"dataset={FOLDER}", root, split)) for split in SPLITS]
    names = {name for files_of in by_class for name in files_of}
    numbers = all(map(str.isdecimal, names))
    classes = tuple(sorted(names, key=lambda name: (int(name), name) if numbers else (0, name)))
    train, test = (tuple(len(files_of.get(name, ())) for name in classes) for files_of in by_class)
    paths = [
        tuple(os.path.join(root, os.fsdecode(file)) for name in classes for file in files_of.get(name, ()))
        for files_of in by_class
    ]
    digest, contents = _digests(root, [*paths[0], *paths[1]])
    known = set(contents[: len(paths[0])])
    repeated = sum(content in known for content in contents[len(paths[0]) :])
    return remember(ImageListing(classes, digest, train, test, repeated, tuple(paths)))


def _by_class(files: NDArray[np.bytes_], labels_N: Tensor, names: tuple[str, ...]) -> dict[str, NDArray[np.bytes_]]:
    """Name of a class -> its files, as `list_images` returns them."""
    ends = torch.bincount(labels_N, minlength=len(names)).cumsum(0)
    return dict(zip(names, np.split(files, ends[:-1].numpy()), strict=True))


def load_folder(root: Path, digest: str, size: int, channels: int) -> Dataset:
    """Your own images, each resized as a whole to a square.

    Returns the images of `root` as `[N, channels, size, size]`. Raises DataError, with one line, if a file cannot be
    decoded, if the images do not match this `digest` (unless it is empty), or if they need too much memory."""
    listing = _listing(root)
    if digest and digest != listing.digest:
        raise DataError(
            f"the images in {root} must be the ones that the trials were planned with (image_digest={digest}), but "
            f"have changed (image_digest={listing.digest}); run the command again for trials on the new images"
        )
    need = sum(map(len, listing.paths)) * channels * size * size
    if need > MAX_BYTES:
        raise DataError(
            f"the images in {root} must not exceed {MAX_BYTES >> 30} GiB in memory, but need {need / 2**30:.1f} GiB "
            f"with image_size={size}; choose a smaller image_size, or dataset=imagenet, which decodes during training"
        )
    train_NCSS, test_NCSS = (read_images(paths, size, channels) for paths in listing.paths)
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
        std=tuple(std.clamp(min=1 / 255).tolist()),  # constant images have a deviation of 0
    )


def _digests(root: Path, paths: list[str]) -> tuple[str, list[bytes]]:
    """The digest of a listing (12 hexadecimal digits) and the digest of each file's content. Raises DataError if a file
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


def read_images(paths: Sequence[str], size: int, channels: int) -> Tensor:
    """Image files as `dataset=folder` has them, uint8 `[N, C, S, S]`: see `MADE`. Raises DataError for a file that
    cannot be decoded."""
    images_NCSS = np.empty((len(paths), channels, size, size), dtype=np.uint8)

    def fill(row: int) -> None:
        (image,) = decode_file(paths[row], partial(_resized, size=size, mode="L" if channels == 1 else "RGB"))
        pixels = np.asarray(image)
        images_NCSS[row] = pixels if channels == 1 else pixels.transpose(2, 0, 1)

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(len(paths))))
    return torch.from_numpy(images_NCSS)


def _resized(image: Image.Image, size: int, mode: str) -> list[Image.Image]:
    """The whole image, upright according to its camera's orientation, as a square."""
    upright = ImageOps.exif_transpose(image)
    return [upright.convert(mode).resize((size, size), Image.Resampling.BILINEAR)]


def list_images(name: str, folder: Path, split: str) -> tuple[NDArray[np.bytes_], Tensor, tuple[str, ...]]:
    """List a split of the data set `name`: paths `[N]` below `folder`, labels (int64 `[N]`) and class names, all
    sorted. Names that begin with a dot and `IGNORED` names are skipped. Raises DataError, with a one-line message, if
    the split is absent or has no classes, if a class has no images, or if there is any other file."""
    if not (folder / split).is_dir():
        raise DataError(
            f"{name} lacks the split '{split}': there is no folder {folder / split}; images belong in "
            f"{folder}/{split}/CLASS/"
        )
    entries = _entries(folder / split)
    if file := next((entry.path for entry in entries if not entry.is_dir()), None):
        raise DataError(f"a split of {name} must contain only a folder for each class, but {file} is a file")
    classes = [entry.name for entry in entries]
    if not classes:
        raise DataError(f"{name} has no images: {folder / split} is empty; images belong in {folder}/{split}/CLASS/")
    with ThreadPoolExecutor(8) as pool:
        listed = list(pool.map(partial(_images, name), (folder / split / class_ for class_ in classes)))
    if foreign := [path for _, paths in listed for path in paths]:
        more = f" and {len(foreign) - MAX_NAMED} more" if len(foreign) > MAX_NAMED else ""
        raise DataError(
            f"class folders of {name} must contain only images ({' '.join(ENDINGS)}), but got "
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
    """The names of the images in the folder of one class, and the paths of all other entries."""
    entries = _entries(folder)
    if not entries:
        raise DataError(f"every class of {name} must have images, but {folder} is empty")
    foreign = [entry.path for entry in entries if not entry.name.lower().endswith(ENDINGS) or entry.is_dir()]
    return [entry.name for entry in entries], foreign


def is_ignored(name: str) -> bool:
    """Whether a file or a folder of this name is left out: one of the `IGNORED`, or one that is hidden."""
    return name[0] == "." or name.lower() in IGNORED


def ignored_files(root: Path) -> list[str]:
    """The files and folders below the splits of `root` that are left out, sorted, those of the splits first."""
    folders = [root / split for split in SPLITS]
    folders += [Path(entry.path) for folder in folders for entry in _entries(folder)]
    found = (os.path.relpath(path, root) for folder in folders for path in folder.iterdir() if is_ignored(path.name))
    return sorted(found, key=lambda path: (path.count(os.sep), path))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, sorted by name, without ignored ones."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not is_ignored(entry.name)), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{folder} cannot be read ({error.strerror})") from error


DATASETS = {
    "imagenet": Source(
        imagenet,
        Declaration((3, SIDE, SIDE), 1000, train=None, test=None),
        "DATA/imagenet/train/CLASS/ and DATA/imagenet/val/CLASS/, never fetched",
    )
}
