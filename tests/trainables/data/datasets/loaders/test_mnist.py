"""MNIST and Fashion-MNIST hold what torchvision reads, from files that are verified."""

import gzip
import shutil
from pathlib import Path

import pytest
from torchvision.datasets import MNIST, FashionMNIST, utils

from tests.published_files import write_mnist
from trainables.data.datasets.catalog import load
from trainables.data.errors import DataError


@pytest.mark.parametrize(("name", "source"), [("mnist", MNIST), ("fashion_mnist", FashionMNIST)])
def test_images_and_labels_are_as_torchvision_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: type[MNIST]
) -> None:
    folder = write_mnist(tmp_path, monkeypatch, source)
    for path in folder.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    ours, train, test = load(name, tmp_path), source(tmp_path, train=True), source(tmp_path, train=False)
    assert ours.train_images.shape == (30, 1, 28, 28) and ours.test_images.shape == (20, 1, 28, 28)
    for images, labels, theirs in (
        (ours.train_images, ours.train_labels, train),
        (ours.test_images, ours.test_labels, test),
    ):
        assert (images[:][:, 0] == theirs.data).all() and (labels == theirs.targets).all()
    assert [label in full for label, full in zip(ours.classes, source.classes, strict=True)] == [True] * 10


def test_an_absent_file_is_fetched_and_the_others_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served, folder = write_mnist(tmp_path / "made", monkeypatch), tmp_path / "data/MNIST/raw"
    fetched = []

    def fetch(url: str, to: Path, filename: str, md5: str) -> None:
        fetched.append(url)
        shutil.copy(served / filename, to)

    monkeypatch.setattr(utils, "download_url", fetch)
    folder.mkdir(parents=True)
    present = Path(shutil.copy(served / "train-images-idx3-ubyte.gz", folder))
    before = present.stat()
    assert len(load("mnist", tmp_path / "data").test_images) == 20
    assert fetched == [f"file:///nowhere/{file}" for file, _ in MNIST.resources[1:]]
    assert (present.stat().st_mtime_ns, present.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert {path.name for path in folder.iterdir()} <= {*(file for file, _ in MNIST.resources), ".mnist.lock"}


def test_absent_and_no_network_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (write_mnist(tmp_path, monkeypatch) / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError) as error:
        load("mnist", tmp_path)
    assert str(error.value).startswith(f"mnist is absent from {tmp_path}/MNIST/raw and its download failed (")
    assert str(error.value).endswith(
        "; put t10k-labels-idx1-ubyte.gz there, from file:///nowhere/t10k-labels-idx1-ubyte.gz"
    )
    assert "\n" not in str(error.value)


def test_a_truncated_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_mnist(tmp_path, monkeypatch, FashionMNIST) / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match=f"^fashion_mnist is corrupt: {path} does not have its published checksum"):
        load("fashion_mnist", tmp_path)
