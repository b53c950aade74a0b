"""Small CIFAR-10 and CIFAR-100 on disk in the true format: pickles that torchvision itself reads and verifies."""

import hashlib
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    _write(CIFAR10, folder, contents, monkeypatch)
    return folder


def write_cifar100(root: Path, per_class: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write `root/cifar-100-python`, likewise: noise, with `per_class` training and test images of each of 100 classes
    in a random order, and 20 coarse classes beside them."""
    from torchvision.datasets import CIFAR100

    folder = root / CIFAR100.base_folder
    folder.mkdir(parents=True)
    rng = np.random.RandomState(1)
    contents: dict[str, object] = {}
    for name in ("train", "test"):
        labels = rng.permutation(np.repeat(np.arange(100), per_class))
        contents[name] = {
            "data": rng.randint(0, 256, (len(labels), 3072)).astype(np.uint8),
            "fine_labels": labels.tolist(),
            "coarse_labels": (labels // 5).tolist(),
        }
    contents["meta"] = {
        "fine_label_names": [f"fine{i:02}" for i in range(100)], "coarse_label_names": [f"coarse{i}" for i in range(20)]
    }  # fmt: skip
    _write(CIFAR100, folder, contents, monkeypatch)
    return folder


def pack_cifar10(folder: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack what `write_cifar10` wrote as the archive torchvision downloads; its checksum is expected from then on."""
    from torchvision.datasets import CIFAR10

    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=CIFAR10.base_folder)
    monkeypatch.setattr(CIFAR10, "tgz_md5", hashlib.md5(archive.read_bytes()).hexdigest())


def _write(source: Any, folder: Path, contents: Mapping[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickle the contents of each file; torchvision's class `source` expects their checksums from then on."""
    sums = {}
    for name, content in contents.items():
        data = pickle.dumps(content, protocol=2)
        (folder / name).write_bytes(data)
        sums[name] = hashlib.md5(data).hexdigest()
    monkeypatch.setattr(source, "train_list", [[name, sums[name]] for name, _ in source.train_list])
    monkeypatch.setattr(source, "test_list", [[name, sums[name]] for name, _ in source.test_list])
    monkeypatch.setattr(source, "meta", {**source.meta, "md5": sums[source.meta["filename"]]})


def _batch(rng: np.random.RandomState, indices: np.ndarray) -> dict[str, object]:
    labels = indices % 10
    pixels = rng.normal(20 + 22 * labels[:, None], 15, size=(len(labels), 3072))
    return {"data": pixels.clip(0, 255).astype(np.uint8), "labels": labels.tolist()}
