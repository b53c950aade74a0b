"""A cached file is made once, shared, verified, and never half-written."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainables.data.datasets.downloads import cached_tensors

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
