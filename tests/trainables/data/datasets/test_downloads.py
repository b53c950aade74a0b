"""A file is downloaded or made once, shared, verified and never half-written; a damaged data set is refused."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchvision.datasets import CIFAR10, STL10, svhn

from tests.cases import for_each
from tests.published_files import pack_cifar10, pack_stl10, write_cifar10, write_stl10, write_svhn
from trainables.data.datasets.catalog import load
from trainables.data.datasets.downloads import cached_tensors
from trainables.data.datasets.own_data import arrays
from trainables.data.errors import DataError


@pytest.fixture
def cifar_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_cifar10(tmp_path, 3, monkeypatch)
    return tmp_path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CIFAR10, "url", "file:///nowhere/cifar-10-python.tar.gz")


@for_each(
    ("name", "path"),
    [
        ("cifar10", "cifar-10-batches-py/test_batch"),
        ("cifar10", "cifar-10-python.tar.gz"),
        ("cifar100", "cifar-100-python/train"),
        ("mnist", "MNIST/raw/train-images-idx3-ubyte.gz"),
        ("fashion_mnist", "FashionMNIST/raw/train-images-idx3-ubyte.gz"),
        ("stl10", "stl10_binary/train_X.bin"),
        ("svhn", "train_32x32.mat"),
        ("arrays", "train_labels.npy"),
    ],
)
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path, name: str, path: str) -> None:
    pipe = tmp_path / path
    pipe.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(DataError) as refused:
        arrays(tmp_path) if name == "arrays" else load(name, tmp_path)
    assert str(refused.value) == f"{pipe} must be a file, but is a folder, named pipe, device or socket; remove it"


@pytest.mark.parametrize("file", ["data_batch_3", "test_batch", "batches.meta"])
def test_truncated_file_is_named_and_left_alone(cifar_root: Path, no_network: None, file: str) -> None:
    path = cifar_root / "cifar-10-batches-py" / file
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match=f"{file} does not have its published checksum") as error:
        load("cifar10", cifar_root)
    assert "\n" not in str(error.value)
    assert len(path.read_bytes()) == 50


def test_missing_file_is_named(cifar_root: Path, no_network: None) -> None:
    (cifar_root / "cifar-10-batches-py/data_batch_2").unlink()
    with pytest.raises(DataError, match="data_batch_2 is missing"):
        load("cifar10", cifar_root)


def test_absent_and_no_network_says_what_to_put_where(tmp_path: Path, no_network: None) -> None:
    with pytest.raises(DataError, match=r"cifar10 is absent from .* put cifar-10-python.tar.gz there") as error:
        load("cifar10", tmp_path / "data")
    assert "\n" not in str(error.value) and str(tmp_path / "data") in str(error.value)


def test_absent_is_downloaded_once_by_all_who_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write_cifar10(tmp_path / "made", 2, monkeypatch)
    pack_cifar10(folder, tmp_path / "served.tar.gz", monkeypatch)
    requests: list[str] = []

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            requests.append(self.command)

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Do not print the error of the first request, which the client closes before the body is sent."""

    root = tmp_path / "data"
    server = Server(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:{server.server_port}/served.tar.gz")
    with server, ThreadPoolExecutor(4) as pool:
        pool.submit(server.serve_forever)
        sets = list(pool.map(lambda _: load("cifar10", root), range(3)))
        server.shutdown()
    assert [len(cifar.train_images) for cifar in sets] == [20, 20, 20]
    assert requests == ["GET", "GET"]  # one to follow redirections, one to fetch
    assert {path.name for path in root.iterdir()} <= {"cifar-10-batches-py", ".cifar10.lock"}
    assert capfd.readouterr() == ("", "")


def test_archive_beside_is_unpacked_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_cifar10(tmp_path, 2, monkeypatch)
    pack_cifar10(folder, tmp_path / "cifar-10-python.tar.gz", monkeypatch)
    monkeypatch.setattr(CIFAR10, "url", "file:///nowhere.tar.gz")
    shutil.rmtree(folder)
    assert len(load("cifar10", tmp_path).train_images) == 20


def test_corrupt_archive_beside_is_named_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None
) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"half")
    with pytest.raises(DataError, match=r"cifar-10-python.tar.gz does not have its published checksum"):
        load("cifar10", tmp_path)
    assert (tmp_path / "cifar-10-python.tar.gz").read_bytes() == b"half"


def test_stl10_comes_from_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_stl10(tmp_path, monkeypatch, labelled=10, unlabelled=5)
    pack_stl10(folder, tmp_path / "stl10_binary.tar.gz", monkeypatch)
    monkeypatch.setattr(STL10, "url", "file:///nowhere.tar.gz")
    shutil.rmtree(folder)
    assert len(load("stl10", tmp_path).train_images) == 15


def test_stl10_without_its_unlabelled_images_is_corrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_stl10(tmp_path, monkeypatch)
    (folder / "unlabeled_X.bin").unlink()
    with pytest.raises(DataError) as error:
        load("stl10", tmp_path)
    assert str(error.value) == (
        f"stl10 is corrupt: {folder}/unlabeled_X.bin is missing; remove {folder} to have it downloaded again"
    )


def test_svhn_fetches_the_file_that_is_absent_and_leaves_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_svhn(tmp_path / "served", monkeypatch)
    root, present = tmp_path / "data", tmp_path / "data/train_32x32.mat"
    root.mkdir()
    shutil.copy(tmp_path / "served/train_32x32.mat", present)
    before = present.stat()
    monkeypatch.setattr(svhn, "download_url", lambda url, to, file, md5: shutil.copy(tmp_path / "served" / file, to))
    assert len(load("svhn", root).test_images) == 30
    assert (present.stat().st_mtime_ns, present.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert {path.name for path in root.iterdir()} <= {"train_32x32.mat", "test_32x32.mat", ".svhn.lock"}


def test_svhn_that_cannot_be_fetched_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_svhn(tmp_path, monkeypatch)
    (tmp_path / "test_32x32.mat").unlink()
    with pytest.raises(DataError, match=r"put test_32x32.mat there, from file:///nowhere/test_32x32.mat$") as error:
        load("svhn", tmp_path)
    assert "\n" not in str(error.value)


def test_svhn_that_is_corrupt_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_svhn(tmp_path, monkeypatch)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError) as error:
        load("svhn", tmp_path)
    assert str(error.value) == (
        f"svhn is corrupt: {path} does not have its published checksum; remove {path} to have it downloaded again"
    )


TENSORS = {
    "images": torch.arange(3 * 4 * 1000).byte().view(1000, 3, 4),
    "mean": torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64),
    "columns": torch.arange(20).view(5, 4)[:, 1],
}


class Maker:
    """Makes the tensors and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, Tensor]:
        self.calls += 1
        return TENSORS


def cached(folder: Path, make: Maker) -> dict[str, Tensor]:
    tensors = cached_tensors(folder / "cache.pt", folder / "lock", make)
    assert list(tensors) == list(TENSORS)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert {path.name for path in folder.iterdir()} == {"cache.pt", "lock"}
    return dict(tensors)


def test_tensors_are_made_once_by_all_who_need_them(tmp_path: Path) -> None:
    make = Maker()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: cached_tensors(tmp_path / "cache.pt", tmp_path / "lock", make), range(4)))
    cached(tmp_path, make)
    assert make.calls == 1


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "foreign"])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: str) -> None:
    make, path = Maker(), tmp_path / "cache.pt"
    cached(tmp_path, make)
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[content.index(bytes(range(100, 150))) + 7] ^= 1
        path.write_bytes(content)
    elif damage == "foreign":
        torch.save({"other": torch.zeros(3)}, path)
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "truncated" else b"")
    cached(tmp_path, make)
    cached(tmp_path, make)
    assert make.calls == 2


def test_who_has_the_old_file_keeps_its_tensors(tmp_path: Path) -> None:
    make = Maker()
    cached(tmp_path, make)
    mapped = cached(tmp_path, make)
    os.replace(tmp_path / "cache.pt", tmp_path / "old")
    (tmp_path / "old").unlink()
    mapped["images"][0] = 0  # a private copy of the page
    assert torch.equal(mapped["images"][1:], TENSORS["images"][1:])
    cached(tmp_path, make)
    assert make.calls == 2


def test_a_maker_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> dict[str, Tensor]:
        raise KeyError("no such image")

    with pytest.raises(KeyError, match="no such image"):
        cached_tensors(tmp_path / "cache.pt", tmp_path / "lock", fail)
    assert not (tmp_path / "cache.pt").exists()
    cached(tmp_path, Maker())
