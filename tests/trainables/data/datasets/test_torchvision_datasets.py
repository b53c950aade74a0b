"""Published data sets hold what torchvision reads from their files, in the same order, and these are verified."""

import gzip
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from torchvision.datasets import CIFAR100, MNIST, STL10, SVHN, FashionMNIST, utils

from tests.published_files import write_cifar10, write_cifar100, write_mnist, write_stl10, write_svhn
from trainables.data.datasets import torchvision_datasets
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import UNLABELLED, channel_statistics
from trainables.data.errors import DataError


def test_cifar10_holds_what_the_files_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path, 3, monkeypatch)
    cifar = load("cifar10", tmp_path)
    raw = pickle.loads((tmp_path / "cifar-10-batches-py/data_batch_1").read_bytes(), encoding="latin1")
    assert cifar.train_images.shape == cifar.test_images.shape == (30, 3, 32, 32)
    assert (cifar.train_images[:6].flatten(1).numpy() == raw["data"]).all()
    assert cifar.train_labels[:6].tolist() == raw["labels"]
    assert cifar.train_images[:].dtype == torch.uint8 and cifar.train_labels.dtype == torch.int64
    assert cifar.classes[0] == "airplane" and len(cifar.classes) == 10


def test_cifar100_has_the_fine_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_cifar100(tmp_path, 2, monkeypatch)
    cifar, theirs = load("cifar100", tmp_path), CIFAR100(tmp_path, train=False)
    raw = pickle.loads((folder / "train").read_bytes(), encoding="latin1")
    assert (cifar.train_images[:].flatten(1).numpy() == raw["data"]).all()
    assert cifar.train_labels.tolist() == raw["fine_labels"] and len(cifar.classes) == 100
    assert (cifar.test_images[:].permute(0, 2, 3, 1).numpy() == theirs.data).all()
    assert cifar.test_labels.tolist() == theirs.targets


@pytest.mark.parametrize("block", [7, 20, 1000])
def test_stl10_is_as_torchvision_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(torchvision_datasets, "STL10_BLOCK", block)
    write_stl10(tmp_path, monkeypatch)
    stl, train, test = load("stl10", tmp_path), STL10(tmp_path, "train+unlabeled"), STL10(tmp_path, "test")
    assert train.labels is not None and test.labels is not None
    assert stl.train_images.shape == (50, 3, 96, 96) and stl.test_images.shape == (20, 3, 96, 96)
    assert (stl.train_images[:].numpy() == train.data).all() and (stl.test_images[:].numpy() == test.data).all()
    assert stl.train_labels.tolist() == train.labels.tolist()  # theirs are 255 or -1, by numpy's version
    assert stl.test_labels.tolist() == test.labels.tolist()
    assert stl.train_images[:].is_contiguous() and stl.train_labels.dtype == torch.int64


def test_stl10_has_unlabelled_images_after_the_labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stl10(tmp_path, monkeypatch, labelled=20, unlabelled=30)
    stl = load("stl10", tmp_path)
    assert (stl.train_labels == UNLABELLED).tolist() == [False] * 20 + [True] * 30
    assert stl.train_labels[:20].unique().tolist() == stl.test_labels.unique().tolist() == list(range(10))


def test_stl10_pixel_is_where_it_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files run through channels, then columns, then rows."""
    folder = write_stl10(tmp_path, monkeypatch)
    raw = (folder / "unlabeled_X.bin").read_bytes()
    image, channel, row, column = 3, 2, 5, 70
    pixel = raw[((image * 3 + channel) * 96 + column) * 96 + row]
    assert load("stl10", tmp_path).train_images[20:][image, channel, row, column] == pixel


def test_svhn_is_as_torchvision_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_svhn(tmp_path, monkeypatch)
    svhn = load("svhn", tmp_path)
    parts = ((svhn.train_images, svhn.train_labels, "train"), (svhn.test_images, svhn.test_labels, "test"))
    for images, labels, split in parts:
        theirs = SVHN(tmp_path, split)
        assert (images[:].numpy() == theirs.data).all() and labels.tolist() == theirs.labels.tolist()
        assert images[:].is_contiguous() and labels.dtype == torch.int64
        assert labels.unique().tolist() == list(range(10))


def test_svhn_calls_a_zero_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the files the label of a zero is 10."""
    from scipy.io import loadmat

    write_svhn(tmp_path, monkeypatch)
    raw = loadmat(tmp_path / "test_32x32.mat")
    svhn = load("svhn", tmp_path)
    assert (svhn.test_labels.numpy() == raw["y"][:, 0] % 10).all() and 10 in raw["y"]
    assert svhn.test_images[:][4, 1, 2, 3] == raw["X"][2, 3, 1, 4]


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


def test_what_a_file_holds_counts_and_not_how_it_is_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_mnist(tmp_path, monkeypatch, FashionMNIST) / "train-labels-idx1-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content, compresslevel=0))
    assert load("fashion_mnist", tmp_path).train_labels.tolist() == list(content[8:])
    path.write_bytes(gzip.compress(content[:-1] + bytes([(content[-1] + 1) % 10])))
    with pytest.raises(DataError, match=f"^fashion_mnist is corrupt: {path} does not contain the published data"):
        load("fashion_mnist", tmp_path)


def test_a_truncated_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_mnist(tmp_path, monkeypatch, FashionMNIST) / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match=f"^fashion_mnist is corrupt: {path} does not contain the published data"):
        load("fashion_mnist", tmp_path)


def test_the_files_may_lie_in_a_folder_of_their_own_that_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_mnist(tmp_path, monkeypatch, FashionMNIST).rename(tmp_path / "fashion-mnist")
    expected = load("fashion_mnist", folder).train_images[:]
    folder.chmod(0o555)
    before = sorted(folder.iterdir())
    assert torch.equal(load("fashion_mnist", folder).train_images[:], expected)
    assert sorted(folder.iterdir()) == before
    folder.chmod(0o755)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=f"^fashion_mnist is incomplete: {folder} lacks t10k-labels-idx1-ubyte.gz;"):
        load("fashion_mnist", folder)


def test_the_package_is_named_where_fashion_mnist_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FashionMNIST, "mirrors", ["file:///nowhere/"])
    with pytest.raises(DataError) as error:
        load("fashion_mnist", tmp_path)
    assert "apt install dataset-fashion-mnist" in str(error.value) and "\n" not in str(error.value)
    assert str(error.value).endswith("use --data /usr/share/datasets/fashion-mnist")


@pytest.mark.skipif(
    not torchvision_datasets.FASHION_FOLDER.exists(), reason="needs `apt install dataset-fashion-mnist`"
)
def test_the_package_holds_the_published_images() -> None:
    fashion = load("fashion_mnist", torchvision_datasets.FASHION_FOLDER)
    assert fashion.train_images.shape == (60_000, 1, 28, 28) and fashion.test_images.shape == (10_000, 1, 28, 28)
    assert fashion.train_labels.bincount().tolist() == [6000] * 10
    assert fashion.test_labels.bincount().tolist() == [1000] * 10
    mean, std = channel_statistics(fashion.train_images[:])
    assert [mean.item(), std.item()] == pytest.approx([fashion.mean[0], fashion.std[0]], abs=1e-4)
