"""A small CIFAR-10 on disk in the true format: pickled batches that torchvision itself reads and verifies."""

from __future__ import annotations

import hashlib
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def write_cifar10(root: Path, per_class: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write `root/cifar-10-batches-py` with `per_class` training images of each class, spread over the five batches,
    and as many test images; make torchvision expect these files' checksums while the test runs. Returns the folder.

    Images are noise around a grey level that rises with the class, so that a model can learn something.
    """
    from torchvision.datasets import CIFAR10

    folder = root / CIFAR10.base_folder
    folder.mkdir(parents=True)
    rng = np.random.RandomState(0)
    train = np.array_split(np.arange(10 * per_class), 5)
    contents: dict[str, object] = {f"data_batch_{i + 1}": _batch(rng, part) for i, part in enumerate(train)}
    contents["test_batch"] = _batch(rng, np.arange(10 * per_class))
    contents["batches.meta"] = {"label_names": CLASSES, "num_cases_per_batch": 2 * per_class, "num_vis": 3072}
    sums = {}
    for name, content in contents.items():
        data = pickle.dumps(content, protocol=2)
        (folder / name).write_bytes(data)
        sums[name] = hashlib.md5(data).hexdigest()
    monkeypatch.setattr(CIFAR10, "train_list", [[name, sums[name]] for name, _ in CIFAR10.train_list])
    monkeypatch.setattr(CIFAR10, "test_list", [[name, sums[name]] for name, _ in CIFAR10.test_list])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": sums["batches.meta"]})
    return folder


def pack_cifar10(folder: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack what `write_cifar10` wrote as the archive torchvision downloads; its checksum is expected from then on."""
    from torchvision.datasets import CIFAR10

    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=CIFAR10.base_folder)
    monkeypatch.setattr(CIFAR10, "tgz_md5", hashlib.md5(archive.read_bytes()).hexdigest())


def _batch(rng: np.random.RandomState, indices: np.ndarray) -> dict[str, object]:
    labels = indices % 10
    pixels = rng.normal(20 + 22 * labels[:, None], 15, size=(len(labels), 3072))
    return {"data": pixels.clip(0, 255).astype(np.uint8), "labels": labels.tolist()}
