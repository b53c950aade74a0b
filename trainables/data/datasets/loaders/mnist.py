"""MNIST and Fashion-MNIST, read from their published compressed files, which are verified by their checksums.

torchvision would read the uncompressed files beside them, for which no checksums are published.
Shapes: N images, C channels, H rows, W columns.
"""

import gzip
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.downloads import ensure_downloaded


def mnist(root: Path) -> Dataset:
    """MNIST: 60,000 training and 10,000 test images of handwritten digits, 1x28x28, grey. Each file is downloaded if
    absent."""
    from torchvision.datasets import MNIST

    return _load("mnist", MNIST, root, tuple("0123456789"), mean=0.1307, std=0.3081)


def mnist32(root: Path) -> Dataset:
    """MNIST with two black pixels on each side, 1x32x32. Normalised pixels are in [-1, 1], as in GMJE."""
    grey = mnist(root)
    train_images, test_images = (
        torch.nn.functional.pad(images[:], (2, 2, 2, 2)) for images in (grey.train_images, grey.test_images)
    )
    return replace(grey, name="mnist32", train_images=train_images, test_images=test_images, mean=(0.5,), std=(0.5,))


def fashion_mnist(root: Path) -> Dataset:
    """Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 1x28x28, grey. Each file is downloaded if
    absent."""
    from torchvision.datasets import FashionMNIST

    return _load("fashion_mnist", FashionMNIST, root, tuple(FashionMNIST.classes), mean=0.2860, std=0.3530)


def _load(name: str, source: Any, root: Path, classes: tuple[str, ...], mean: float, std: float) -> Dataset:
    """A data set in the format of MNIST, in the folder where torchvision's class `source` for it keeps the files."""
    from torchvision.datasets.utils import download_url

    folder = root / source.__name__ / "raw"
    parts = []
    for file, md5 in source.resources:
        url = source.mirrors[0] + file
        fetch = partial(download_url, url, filename=file, md5=md5)
        ensure_downloaded(name, folder, [(Path(file), md5)], (file, md5), url, fetch)
        parts.append(_read_idx(folder / file))
    train_NHW, train_N, test_NHW, test_N = parts
    return Dataset(
        name=name,
        train_images=train_NHW[:, None],
        train_labels=train_N.long(),
        test_images=test_NHW[:, None],
        test_labels=test_N.long(),
        classes=classes,
        levels=255,
        mean=(mean,),
        std=(std,),
    )


def _read_idx(path: Path) -> Tensor:
    """A compressed file of bytes in the IDX format: two zeros, the type, the number of dimensions, each dimension as a
    big-endian integer of four bytes, and the values."""
    with gzip.open(path) as file:
        content = bytearray(file.read())
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape))
