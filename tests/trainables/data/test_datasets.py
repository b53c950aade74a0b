"""The digits' split is what it always was; CIFAR-10 is read, fetched or refused, never half of it."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from torchvision.datasets import CIFAR10

from tests.cifar_files import pack_cifar10, write_cifar10
from trainables.data.datasets import DataError, load


@pytest.fixture
def cifar_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_cifar10(tmp_path, 3, monkeypatch)
    return tmp_path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CIFAR10, "url", "file:///nowhere/cifar-10-python.tar.gz")


def test_digits_are_the_embedded_images(tmp_path: Path) -> None:
    digits = load("digits", tmp_path / "absent")
    assert digits.train_images.shape == (1260, 1, 8, 8) and digits.test_images.shape == (537, 1, 8, 8)
    assert digits.train_images.dtype == torch.uint8 and digits.train_labels.dtype == torch.int64
    assert digits.train_images.max() == digits.levels == 16
    assert not (tmp_path / "absent").exists()


def test_digits_split_is_stratified_and_loses_nothing(tmp_path: Path) -> None:
    digits = load("digits", tmp_path)
    train, test = digits.train_labels.bincount(), digits.test_labels.bincount()
    assert (train + test).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert ((test / (train + test) - 0.3).abs() < 0.005).all()


def test_digits_split_is_disjoint_and_in_file_order(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    digits = load("digits", tmp_path)
    images, labels = load_digits(return_X_y=True)
    zeros = images[labels == 0]
    test = [position for position in range(len(zeros)) if position % 10 in (2, 5, 8)]
    train = [position for position in range(len(zeros)) if position % 10 not in (2, 5, 8)]
    assert (digits.test_images[digits.test_labels == 0].flatten(1).numpy() == zeros[test]).all()
    assert (digits.train_images[digits.train_labels == 0].flatten(1).numpy() == zeros[train]).all()


def test_digits_split_never_changes(tmp_path: Path) -> None:
    digits = load("digits", tmp_path)
    parts = (digits.train_images, digits.train_labels.byte(), digits.test_images, digits.test_labels.byte())
    checksum = hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()
    assert checksum == "1ea76b6cf9f3b2cdd48de46575279b9cd417827dd4ae2d285e30dea23eea4464"


def test_digits_normalisation_is_that_of_the_training_images(tmp_path: Path) -> None:
    digits = load("digits", tmp_path)
    pixels = digits.train_images / 16
    assert digits.mean[0] == pytest.approx(pixels.mean().item(), abs=1e-5)
    assert digits.std[0] == pytest.approx(pixels.std(correction=0).item(), abs=1e-5)


def test_digits_do_not_import_torchvision(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from trainables.data.datasets import load; load('digits', Path('.'))"
    done = subprocess.run([sys.executable, "-c", f"{code}; sys.exit('torchvision' in sys.modules)"])
    assert done.returncode == 0


def test_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load("cifar-10", tmp_path)
    assert str(error.value) == "no dataset 'cifar-10' (did you mean 'cifar10'?); there are: cifar10, digits"


def test_cifar10_holds_what_the_files_hold(cifar_root: Path) -> None:
    cifar = load("cifar10", cifar_root)
    raw = pickle.loads((cifar_root / "cifar-10-batches-py/data_batch_1").read_bytes(), encoding="latin1")
    assert cifar.train_images.shape == cifar.test_images.shape == (30, 3, 32, 32)
    assert (cifar.train_images[:6].flatten(1).numpy() == raw["data"]).all()
    assert cifar.train_labels[:6].tolist() == raw["labels"]
    assert cifar.train_images.dtype == torch.uint8 and cifar.train_labels.dtype == torch.int64
    assert cifar.classes[0] == "airplane" and len(cifar.classes) == 10


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
    asked: list[str] = []

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            asked.append(self.command)

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """The request that follows redirections is hung up on before its body is sent: that prints a traceback."""

    root = tmp_path / "data"
    server = Server(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:{server.server_port}/served.tar.gz")
    with server, ThreadPoolExecutor(4) as pool:
        pool.submit(server.serve_forever)
        sets = list(pool.map(lambda _: load("cifar10", root), range(3)))
        server.shutdown()
    assert [len(cifar.train_images) for cifar in sets] == [20, 20, 20]
    assert asked == ["GET", "GET"]  # one to follow redirections, one to fetch
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
