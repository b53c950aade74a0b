"""Small STL-10 and SVHN on disk in the true formats, which torchvision itself reads and verifies."""

import hashlib
import tarfile
from pathlib import Path

import numpy as np
import pytest


def write_stl10(root: Path, monkeypatch: pytest.MonkeyPatch, labelled: int = 20, unlabelled: int = 30) -> Path:
    """Write `root/stl10_binary` with images of noise and, as many as are labelled, test images; make torchvision expect
    these files' checksums while the test runs. Returns the folder."""
    from torchvision.datasets import STL10

    folder = root / STL10.base_folder
    folder.mkdir(parents=True)
    rng = np.random.RandomState(2)
    sizes = {"train_X.bin": labelled, "unlabeled_X.bin": unlabelled, "test_X.bin": labelled}
    contents = {name: rng.randint(0, 256, (n, 3, 96, 96)).astype(np.uint8) for name, n in sizes.items()}
    contents |= {f"{part}_y.bin": (1 + rng.permutation(labelled) % 10).astype(np.uint8) for part in ("train", "test")}
    for name, content in contents.items():
        content.tofile(folder / name)
    for part in ("train_list", "test_list"):
        sums = [[name, md5(folder / name)] for name, _ in getattr(STL10, part)]
        monkeypatch.setattr(STL10, part, sums)
    return folder


def pack_stl10(folder: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack what `write_stl10` wrote as the archive torchvision downloads; its checksum is expected from then on."""
    from torchvision.datasets import STL10

    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(folder, arcname=STL10.base_folder)
    monkeypatch.setattr(STL10, "tgz_md5", md5(archive))


def write_svhn(root: Path, monkeypatch: pytest.MonkeyPatch, train: int = 20, test: int = 30) -> None:
    """Write SVHN's two files into `root`, with images of noise; make torchvision expect these files' checksums while
    the test runs, and look for them nowhere else."""
    from scipy.io import savemat
    from torchvision.datasets import SVHN

    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.RandomState(3)
    published = dict(SVHN.split_list)
    for split, n in (("train", train), ("test", test)):
        file = SVHN.split_list[split][1]
        labels = 1 + rng.permutation(n)[:, None] % 10
        savemat(root / file, {"X": rng.randint(0, 256, (32, 32, 3, n)).astype(np.uint8), "y": labels.astype(np.uint8)})
        published[split] = [f"file:///nowhere/{file}", file, md5(root / file)]
    monkeypatch.setattr(SVHN, "split_list", published)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()
