"""Small MNIST and Fashion-MNIST on disk in the true format: compressed IDX files, with torchvision's names."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.published_files import md5


def write_mnist(
    root: Path, monkeypatch: pytest.MonkeyPatch, source: Any = None, train: int = 30, test: int = 20
) -> Path:
    """Write `root/MNIST/raw/*.gz` (or those of torchvision's class `source`) with images of noise, of ten classes in a
    random order; make torchvision expect these files' checksums while the test runs, and look for them nowhere else.
    Returns the folder."""
    from torchvision.datasets import MNIST

    source = source or MNIST
    folder = root / source.__name__ / "raw"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    for part, n in (("train", train), ("t10k", test)):
        _write_idx(folder / f"{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (n, 28, 28), dtype=np.uint8))
        _write_idx(folder / f"{part}-labels-idx1-ubyte.gz", (rng.permutation(n) % 10).astype(np.uint8))
    monkeypatch.setattr(source, "resources", [(file, md5(folder / file)) for file, _ in source.resources])
    monkeypatch.setattr(source, "mirrors", ["file:///nowhere/"])
    return folder


def _write_idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes()))
