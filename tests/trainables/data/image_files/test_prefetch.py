"""Images come part by part: of a tensor as they are, of files with one part decoded ahead."""

import threading
from pathlib import Path

import pytest
import torch

from tests.image_files import write_imagenet
from trainables.data.datasets.catalog import load
from trainables.data.errors import DataError
from trainables.data.image_files import ImageFiles, prefetched, to_device

PARTS = [slice(0, 5), slice(5, 10), slice(10, 12)]


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    write_imagenet(tmp_path)
    images = load("imagenet", tmp_path).train_images
    assert isinstance(images, ImageFiles)
    return images


def test_the_parts_of_files_are_all_images_in_order(files: ImageFiles) -> None:
    assert torch.equal(torch.cat([*prefetched(files, PARTS)]), files[:])
    assert [*prefetched(files, [])] == []


def test_the_parts_of_a_tensor_are_views_of_it() -> None:
    images = torch.arange(12)
    parts = [*prefetched(images, PARTS)]
    assert [len(part) for part in parts] == [5, 5, 2]
    assert all(part.untyped_storage().data_ptr() == images.untyped_storage().data_ptr() for part in parts)


def test_the_next_part_is_decoded_while_the_caller_has_this_one(
    files: ImageFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[slice] = []
    second_requested = threading.Event()

    def recorded(self: ImageFiles, part: slice) -> torch.Tensor:
        requested.append(part)
        if len(requested) == 2:
            second_requested.set()
        return torch.zeros(part.stop - part.start)

    monkeypatch.setattr(ImageFiles, "__getitem__", recorded)
    parts = prefetched(files, PARTS)
    assert len(next(parts)) == 5 and second_requested.wait(60)
    assert [len(part) for part in parts] == [5, 2] and requested == PARTS


def test_a_file_that_cannot_be_decoded_ends_the_iteration(files: ImageFiles) -> None:
    Path(files.paths()[7]).write_bytes(b"")
    parts = prefetched(files, PARTS)
    assert len(next(parts)) == 5
    with pytest.raises(DataError, match="cannot be decoded"):
        next(parts)


def test_only_tensors_move_to_a_device(files: ImageFiles) -> None:
    assert to_device(files, torch.device("meta")) is files
    moved = to_device(torch.zeros(2), torch.device("meta"))
    assert isinstance(moved, torch.Tensor) and moved.is_meta
