"""Small data sets on disk in their true formats, with the files and names that torchvision itself reads and verifies:
STL-10, SVHN, CIFAR-10, CIFAR-100, MNIST, Fashion-MNIST and CelebA."""

import gzip
import hashlib
import pickle
import re
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.image_files import picture
from trainables.data.datasets import torchvision_datasets

CIFAR10_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
ATTRIBUTES = re.findall(
    r"\w+",
    "5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose Black_Hair Blond_Hair "
    "Blurry Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee Gray_Hair Heavy_Makeup High_Cheekbones Male "
    "Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard Oval_Face Pale_Skin Pointy_Nose Receding_Hairline Rosy_Cheeks "
    "Sideburns Smiling Straight_Hair Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick Wearing_Necklace "
    "Wearing_Necktie Young",
)
"""The header of CelebA's published file."""
PARTS = (0, 2, 0, 1, 0, 2, 0, 1, 2, 0)
"""The part of each file of `write_celeba`: 0 training, 1 validation, 2 test. Published ones come by part."""


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


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
    contents: dict[str, object] = {f"data_batch_{i + 1}": _cifar_batch(rng, part) for i, part in enumerate(train)}
    contents["test_batch"] = _cifar_batch(rng, np.arange(10 * per_class))
    contents["batches.meta"] = {"label_names": CIFAR10_CLASSES, "num_cases_per_batch": 2 * per_class, "num_vis": 3072}
    _write_pickles(CIFAR10, folder, contents, monkeypatch)
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
    _write_pickles(CIFAR100, folder, contents, monkeypatch)
    return folder


def pack_cifar10(folder: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack what `write_cifar10` wrote as the archive torchvision downloads; its checksum is expected from then on."""
    from torchvision.datasets import CIFAR10

    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=CIFAR10.base_folder)
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5(archive))


def _write_pickles(source: Any, folder: Path, contents: Mapping[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickle the contents of each file; torchvision's class `source` expects their checksums from then on."""
    sums = {}
    for name, content in contents.items():
        data = pickle.dumps(content, protocol=2)
        (folder / name).write_bytes(data)
        sums[name] = md5(folder / name)
    monkeypatch.setattr(source, "train_list", [[name, sums[name]] for name, _ in source.train_list])
    monkeypatch.setattr(source, "test_list", [[name, sums[name]] for name, _ in source.test_list])
    monkeypatch.setattr(source, "meta", {**source.meta, "md5": sums[source.meta["filename"]]})


def _cifar_batch(rng: np.random.RandomState, indices: np.ndarray) -> dict[str, object]:
    labels = indices % 10
    pixels = rng.normal(20 + 22 * labels[:, None], 15, size=(len(labels), 3072))
    return {"data": pixels.clip(0, 255).astype(np.uint8), "labels": labels.tolist()}


def write_mnist(
    root: Path, monkeypatch: pytest.MonkeyPatch, source: Any = None, train: int = 30, test: int = 20
) -> Path:
    """Write `root/MNIST/raw/*.gz` (or those of torchvision's class `source`) with images of noise, of ten classes in a
    random order; make torchvision and ourselves expect these files' checksums while the test runs, and look for them
    nowhere else. Returns the folder."""
    from torchvision.datasets import MNIST

    source = source or MNIST
    folder = root / source.__name__ / "raw"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    for part, n in (("train", train), ("t10k", test)):
        _write_idx(folder / f"{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (n, 28, 28), dtype=np.uint8))
        _write_idx(folder / f"{part}-labels-idx1-ubyte.gz", (rng.permutation(n) % 10).astype(np.uint8))
    monkeypatch.setattr(source, "resources", [(file, md5(folder / file)) for file, _ in source.resources])
    contents = {path.name: hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest() for path in folder.iterdir()}
    name = "mnist" if source is MNIST else "fashion_mnist"
    monkeypatch.setattr(torchvision_datasets, "IDX_SHA256", {**torchvision_datasets.IDX_SHA256, name: contents})
    monkeypatch.setattr(source, "mirrors", ["file:///nowhere/"])
    return folder


def _write_idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes()))


def write_celeba(root: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Write `root/celeba` with ten images of random attributes, men and women in turns within a part; make torchvision
    expect these files' checksums while the test runs. Returns the attributes, 1 or -1, `[10, 40]`."""
    from torchvision.datasets import CelebA

    folder, rng = root / CelebA.base_folder, np.random.default_rng(8)
    (folder / "img_align_celeba").mkdir(parents=True)
    names = [f"{i + 1:06}.jpg" for i in range(len(PARTS))]
    for name in names:
        picture(rng, 218, 178).save(folder / "img_align_celeba" / name, quality=95)
    attributes = rng.choice([-1, 1], (len(PARTS), len(ATTRIBUTES)))
    for i, part in enumerate(PARTS):
        attributes[i, ATTRIBUTES.index("Male")] = 1 if PARTS[:i].count(part) % 2 else -1
    _write_table(folder / "list_attr_celeba.txt", names, attributes, header=f"{len(names)}\n{' '.join(ATTRIBUTES)} \n")
    _write_table(folder / "list_eval_partition.txt", names, np.array(PARTS)[:, None])
    _write_table(folder / "identity_CelebA.txt", names, rng.integers(1, 10178, (len(names), 1)))
    _write_table(
        folder / "list_bbox_celeba.txt", names, rng.integers(0, 178, (len(names), 4)), "10\nx_1 y_1 width height\n"
    )
    landmarks = "10\n" + " ".join(f"{axis}{i}" for i in range(5) for axis in "xy") + "\n"
    _write_table(folder / "list_landmarks_align_celeba.txt", names, rng.integers(0, 178, (len(names), 10)), landmarks)
    sums = [(key, md5(folder / file) if file.endswith(".txt") else sum, file) for key, sum, file in CelebA.file_list]
    monkeypatch.setattr(CelebA, "file_list", sums)
    return attributes


def pack_celeba(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the folder of images by the archive that is published; its checksum is expected from then on."""
    from torchvision.datasets import CelebA

    archive = folder / "img_align_celeba.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted((folder / "img_align_celeba").iterdir()):
            packed.write(path, f"img_align_celeba/{path.name}")
            path.unlink()
    (folder / "img_align_celeba").rmdir()
    sums = [(key, md5(archive) if file == archive.name else sum, file) for key, sum, file in CelebA.file_list]
    monkeypatch.setattr(CelebA, "file_list", sums)


def _write_table(path: Path, names: list[str], values: np.ndarray, header: str = "") -> None:
    """The published files pad their columns with spaces."""
    rows = (f"{name} {' '.join(f'{value:2}' for value in row)}\n" for name, row in zip(names, values, strict=True))
    path.write_text(header + "".join(rows))
