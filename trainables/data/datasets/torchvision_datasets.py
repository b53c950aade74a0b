"""Data sets that torchvision downloads and reads, verified by published checksums.

MNIST and Fashion-MNIST are read from their compressed files and verified by the uncompressed content, so that
recompressed files, such as those in Debian's package, are accepted. Shapes: N images, C channels, H rows, W columns.
"""

import gzip
import hashlib
import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.data.datasets.dataset import UNLABELLED, Dataset, Declaration, Source
from trainables.data.datasets.downloads import ensure_downloaded
from trainables.data.errors import DataError

STL10_CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
STL10_SHAPE = (3, 96, 96)
STL10_BLOCK = 1000
"""Images read at a time, which limits the memory needed besides the images themselves."""
IDX_SHA256: Mapping[str, Mapping[str, str]] = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
}
"""Data set -> file -> SHA-256 of its uncompressed content."""
FASHION_PACKAGE = "dataset-fashion-mnist"
"""Debian and Ubuntu package with the files of Fashion-MNIST."""
FASHION_FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Folder in which the package installs them."""
PACKAGE_ADVICE = f"or `apt install {FASHION_PACKAGE}` and use --data {FASHION_FOLDER}"


def cifar10(root: Path) -> Dataset:
    """CIFAR-10: 50,000 training and 10,000 test images of 3x32x32, downloaded if absent."""
    from torchvision.datasets import CIFAR10

    return _cifar("cifar10", CIFAR10, root, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))


def cifar100(root: Path) -> Dataset:
    """CIFAR-100: like CIFAR-10, with 100 classes (the fine labels)."""
    from torchvision.datasets import CIFAR100

    return _cifar("cifar100", CIFAR100, root, mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))


def mnist(root: Path) -> Dataset:
    """MNIST: 60,000 training and 10,000 test images of handwritten digits, 1x28x28, grey. Each file is downloaded if
    absent."""
    from torchvision.datasets import MNIST

    return _mnist("mnist", MNIST, root, tuple("0123456789"), mean=0.1307, std=0.3081)


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

    classes = tuple(FashionMNIST.classes)
    return _mnist("fashion_mnist", FashionMNIST, root, classes, mean=0.2860, std=0.3530, package=PACKAGE_ADVICE)


def stl10(root: Path) -> Dataset:
    """STL-10: 5,000 labelled, then 100,000 unlabelled training images, and 8,000 test images of 3x96x96. The files are
    read in blocks, because torchvision would hold the training images (2.9 GB) in memory twice."""
    from torchvision.datasets import STL10

    folder = Path(STL10.base_folder)
    ensure_downloaded(
        "stl10", root, [(folder / file, md5) for file, md5 in (*STL10.train_list, *STL10.test_list)],
        (STL10.filename, STL10.tgz_md5), STL10.url, fetch=lambda staging: STL10(staging, download=True),
    )  # fmt: skip
    images, labels, unlabelled = (root / folder / file for file, _ in STL10.train_list)
    test_images, test_labels = (root / folder / file for file, _ in STL10.test_list)
    train_NCHW, labels_N = _stl10_images(images, unlabelled), _stl10_labels(labels)
    unlabelled_N = torch.full((len(train_NCHW) - len(labels_N),), UNLABELLED)
    return Dataset(
        name="stl10",
        train_images=train_NCHW,
        train_labels=torch.cat([labels_N, unlabelled_N]),
        test_images=_stl10_images(test_images),
        test_labels=_stl10_labels(test_labels),
        classes=STL10_CLASSES,
        levels=255,
        mean=(0.4467, 0.4398, 0.4066),
        std=(0.2603, 0.2566, 0.2713),
    )


def svhn(root: Path) -> Dataset:
    """SVHN's cropped digits: 73,257 training and 26,032 test images of 3x32x32. Each file is downloaded if absent."""
    from torchvision.datasets import SVHN

    def read(split: str) -> tuple[Tensor, Tensor]:
        url, file, md5 = SVHN.split_list[split]
        ensure_downloaded(
            "svhn", root, [(Path(file), md5)], (file, md5), url, partial(SVHN, split=split, download=True)
        )
        part = SVHN(root, split)
        return torch.from_numpy(part.data).contiguous(), torch.from_numpy(part.labels)

    (train_NCHW, train_N), (test_NCHW, test_N) = read("train"), read("test")
    return Dataset(
        name="svhn",
        train_images=train_NCHW,
        train_labels=train_N,
        test_images=test_NCHW,
        test_labels=test_N,
        classes=tuple("0123456789"),
        levels=255,
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
    )


def _cifar(name: str, source: Any, root: Path, mean: tuple[float, ...], std: tuple[float, ...]) -> Dataset:
    """A data set in the format of CIFAR; `source` is torchvision's class for it."""
    folder = Path(source.base_folder)
    checksums = [*source.train_list, *source.test_list, (source.meta["filename"], source.meta["md5"])]
    ensure_downloaded(
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


def _mnist(
    name: str, source: Any, root: Path, classes: tuple[str, ...], mean: float, std: float, package: str = ""
) -> Dataset:
    """A data set in the format of MNIST. Its files are in the folder below `root` that torchvision's class `source`
    uses or, if that folder does not exist, in `root` itself, where nothing is written. If a download fails, the error
    advises to install the `package` with the files."""
    from torchvision.datasets.utils import download_url

    files = [file for file, _ in source.resources]
    folder = root / source.__name__ / "raw"
    if flat := not folder.exists() and any((root / file).exists() for file in files):
        folder = root
    if flat and (absent := [file for file in files if not (root / file).exists()]):
        raise DataError(f"{name} is incomplete: {folder} lacks {', '.join(absent)}; put all four files there, or none")
    parts = []
    for file, md5 in source.resources:
        url = source.mirrors[0] + file
        fetch = partial(download_url, url, filename=file, md5=md5)
        ensure_downloaded(name, folder, [(Path(file), "")], (file, md5), url, fetch, advice=package)
        parts.append(_read_idx(name, folder / file))
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


def _read_idx(name: str, path: Path) -> Tensor:
    """Read a compressed file of bytes in the IDX format: two zeros, the type, the number of dimensions, each dimension
    as a big-endian integer of four bytes, and the values. Raises DataError unless its content matches `IDX_SHA256`."""
    try:
        with gzip.open(path) as file:
            content = bytearray(file.read())
    except (EOFError, gzip.BadGzipFile, zlib.error):
        content = bytearray()
    if hashlib.sha256(content).hexdigest() != IDX_SHA256[name][path.name]:
        raise DataError(
            f"{name} is corrupt: {path} does not contain the published data (SHA-256 {IDX_SHA256[name][path.name]} "
            "when uncompressed); replace it, or remove it to have it downloaded again"
        )
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape))


def _stl10_images(*paths: Path) -> Tensor:
    """The images of all files, uint8 `[N, 3, 96, 96]`. In the files columns come before rows."""
    size = math.prod(STL10_SHAPE)
    images_NCHW = np.empty((sum(path.stat().st_size for path in paths) // size, *STL10_SHAPE), dtype=np.uint8)
    done = 0
    for path in paths:
        with path.open("rb") as file:
            while len(block := np.fromfile(file, dtype=np.uint8, count=STL10_BLOCK * size)):
                block_BCWH = block.reshape(-1, *STL10_SHAPE)
                images_NCHW[done : done + len(block_BCWH)] = block_BCWH.transpose(0, 1, 3, 2)
                done += len(block_BCWH)
    return torch.from_numpy(images_NCHW)


def _stl10_labels(path: Path) -> Tensor:
    """The labels of a file, int64 `[N]`, counted from 0; the file counts from 1."""
    return torch.from_numpy(np.fromfile(path, dtype=np.uint8).astype(np.int64)) - 1


MNIST_DECLARATION = Declaration(
    (1, 28, 28),
    10,
    train=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    test=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)
DATASETS = {
    "cifar10": Source(
        cifar10,
        Declaration((3, 32, 32), 10, train=(5000,) * 10, test=(1000,) * 10),
        "DATA/cifar-10-batches-py/, fetched if absent, from DATA/cifar-10-python.tar.gz if that is there",
    ),
    "cifar100": Source(
        cifar100,
        Declaration((3, 32, 32), 100, train=(500,) * 100, test=(100,) * 100),
        "DATA/cifar-100-python/, fetched if absent, from DATA/cifar-100-python.tar.gz if that is there",
    ),
    "fashion_mnist": Source(
        fashion_mnist,
        Declaration((1, 28, 28), 10, train=(6000,) * 10, test=(1000,) * 10),
        "DATA/*.gz or DATA/FashionMNIST/raw/*.gz, fetched if absent; DATA may be "
        f"{FASHION_FOLDER} of the package {FASHION_PACKAGE}",
    ),
    "mnist": Source(mnist, MNIST_DECLARATION, "DATA/*.gz or DATA/MNIST/raw/*.gz, fetched if absent"),
    "mnist32": Source(
        mnist32, replace(MNIST_DECLARATION, shape=(1, 32, 32)), "DATA/*.gz or DATA/MNIST/raw/*.gz, fetched if absent"
    ),
    "stl10": Source(
        stl10,
        Declaration(STL10_SHAPE, 10, train=(500,) * 10, test=(800,) * 10, unlabelled=100_000),
        "DATA/stl10_binary/, fetched if absent, from DATA/stl10_binary.tar.gz if that is there",
    ),
    "svhn": Source(
        svhn,
        Declaration(
            (3, 32, 32),
            10,
            train=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
            test=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
        ),
        "DATA/train_32x32.mat and DATA/test_32x32.mat, fetched if absent",
    ),
}
