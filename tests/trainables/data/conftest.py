from pathlib import Path

import pytest

from tests.image_files import write_imagenet
from tests.published_files import write_celeba, write_cifar10, write_cifar100, write_mnist, write_stl10, write_svhn


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small version of every set."""
    from torchvision.datasets import FashionMNIST

    write_celeba(tmp_path, monkeypatch)
    write_cifar10(tmp_path, 2, monkeypatch)
    write_cifar100(tmp_path, 1, monkeypatch)
    write_stl10(tmp_path, monkeypatch)
    write_svhn(tmp_path, monkeypatch)
    write_mnist(tmp_path, monkeypatch)
    write_mnist(tmp_path, monkeypatch, FashionMNIST)
    write_imagenet(tmp_path)
    return tmp_path


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """Small files in ImageNet's folders."""
    return write_imagenet(tmp_path)
