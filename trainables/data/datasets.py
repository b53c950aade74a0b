"""Labelled image sets as resident tensors: `load(name, root)`.

A new set is one function here and one entry of DATASETS.
Shapes: N images, C channels, H rows, W columns.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.checks import nearest


class DataError(Exception):
    """A data set cannot be had: one line for the user that says what is wrong, where, and what to do."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images for training and testing, on the CPU."""

    name: str
    """Its name in DATASETS."""

    train_images: Tensor
    """uint8 `[N, C, H, W]`, pixels in 0..levels."""

    train_labels: Tensor
    """int64 `[N]`, indices of `classes`."""

    test_images: Tensor
    """As `train_images`."""

    test_labels: Tensor
    """As `train_labels`."""

    classes: tuple[str, ...]
    """Names of the classes."""

    levels: int
    """The pixel value of white."""

    mean: tuple[float, ...]
    """Mean of each channel over the training images, of pixels scaled to [0, 1]."""

    std: tuple[float, ...]
    """Standard deviation of each channel, likewise."""


def digits(root: Path) -> Dataset:
    """scikit-learn's 1,797 real digits of 8x8 pixels, embedded in the package: `root` is not touched.

    The split is ours and fixed: in file order within each class, every third, sixth and ninth image of ten is tested.
    That makes 1,260 training and 537 test images.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images_NCHW = torch.from_numpy(images.astype(np.uint8)).view(-1, 1, 8, 8)
    labels_N = torch.from_numpy(labels.astype(np.int64))
    one_hot_NK = torch.nn.functional.one_hot(labels_N)
    rank_N = (one_hot_NK.cumsum(0) * one_hot_NK).sum(1) - 1
    test_N = torch.isin(rank_N % 10, torch.tensor([2, 5, 8]))
    return Dataset(
        name="digits",
        train_images=images_NCHW[~test_N],
        train_labels=labels_N[~test_N],
        test_images=images_NCHW[test_N],
        test_labels=labels_N[test_N],
        classes=tuple("0123456789"),
        levels=16,
        mean=(0.305470,),
        std=(0.376049,),
    )


def cifar10(root: Path) -> Dataset:
    """CIFAR-10: 50,000 training and 10,000 test images of 3x32x32, read from `root`, downloaded when absent."""
    from torchvision.datasets import CIFAR10

    return _cifar("cifar10", CIFAR10, root, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))


DATASETS: Mapping[str, Callable[[Path], Dataset]] = {"cifar10": cifar10, "digits": digits}
"""Name -> loader: all the sets there are."""


def load(name: str, root: Path) -> Dataset:
    """The data set `name`, from the folder `root`. DataError if there is none of that name, or if its files are
    corrupt, or absent and not to be downloaded."""
    if name not in DATASETS:
        raise DataError(f"no dataset {name!r}{nearest(name, DATASETS)}; there are: {', '.join(sorted(DATASETS))}")
    return DATASETS[name](root)


def _cifar(name: str, source: Any, root: Path, mean: tuple[float, ...], std: tuple[float, ...]) -> Dataset:
    """A set that torchvision keeps in the format of CIFAR; `source` is its class there."""
    folder = Path(source.base_folder)
    checksums = [*source.train_list, *source.test_list, (source.meta["filename"], source.meta["md5"])]
    _ensure(
        name, root, [(folder / file, md5) for file, md5 in checksums], (source.filename, source.tgz_md5), source.url,
        fetch=lambda staging: source(staging, download=True),
    )  # fmt: skip
    train, test = source(root, train=True), source(root, train=False)
    return Dataset(
        name=name,
        train_images=torch.from_numpy(train.data).permute(0, 3, 1, 2).contiguous(),
        train_labels=torch.tensor(train.targets),
        test_images=torch.from_numpy(test.data).permute(0, 3, 1, 2).contiguous(),
        test_labels=torch.tensor(test.targets),
        classes=tuple(train.classes),
        levels=255,
        mean=mean,
        std=std,
    )


def _ensure(
    name: str,
    root: Path,
    files: Sequence[tuple[Path, str]],
    archive: tuple[str, str],
    url: str,
    fetch: Callable[[Path], object],
) -> None:
    """Make sure that `files` (path below `root`, MD5) are there and intact.

    Absent ones are fetched into a folder of their own, from the archive in `root` if there is one, and renamed into
    place under a lock, so that no process sees a half-written set. What is there is never overwritten.
    """
    from filelock import FileLock

    if not any((root / path).exists() for path, _ in files):
        try:
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f".{name}.lock"):
                if not any((root / path).exists() for path, _ in files):
                    _download(root, {path.parts[0] for path, _ in files}, archive, fetch)
        except (OSError, RuntimeError, HTTPException) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DataError(
                f"{name} is absent from {root} and its download failed ({reason}); put {archive[0]} there, from {url}"
            ) from error
    for path, md5 in files:
        _verify(name, root / path, md5, root / path.parts[0])


def _download(root: Path, entries: set[str], archive: tuple[str, str], fetch: Callable[[Path], object]) -> None:
    """Fetch into a temporary folder and rename `entries` of it into `root`; torchvision's progress bar is hidden."""
    file, md5 = archive
    with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as staging:
        if (root / file).exists():
            _verify("the archive", root / file, md5, root / file)
            Path(staging, file).symlink_to((root / file).resolve())
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            fetch(Path(staging))
        for entry in entries:
            os.replace(Path(staging, entry), root / entry)


def _verify(name: str, path: Path, md5: str, remove: Path) -> None:
    """DataError unless the file at `path` has the checksum `md5`."""
    from torchvision.datasets.utils import check_integrity

    if not check_integrity(path, md5):
        state = "does not have its published checksum" if path.exists() else "is missing"
        raise DataError(f"{name} is corrupt: {path} {state}; remove {remove} to have it downloaded again")
