"""Folders give the same pixels as torchvision, and errors name the file that cannot be decoded."""

import gc
import os
import pickle
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tv
from PIL import Image
from PIL.ImageFile import ImageFile
from torch import Tensor
from torchvision.datasets.folder import pil_loader
from torchvision.transforms import CenterCrop, Compose, PILToTensor, Resize
from torchvision.transforms.functional import InterpolationMode

from tests.image_files import picture, write_broken, write_imagenet, write_modes
from trainables.data import image_files
from trainables.data.augmentation import draw_boxes
from trainables.data.errors import DataError
from trainables.data.image_files import ImageFiles

SIDE = 28


def folder_of(root: Path, side: int = SIDE, threads: int = 0) -> ImageFiles:
    """All files of a folder, by name."""
    return ImageFiles(root, np.array(sorted(map(os.fsencode, os.listdir(root)))), side, threads)


def generators(n: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(100 + i) for i in range(n)]


@pytest.fixture
def folder(tmp_path: Path) -> ImageFiles:
    """Ten images of different shapes, smaller and larger than the side they are resized to."""
    rng = np.random.default_rng(0)
    for i, shape in enumerate([(60, 80), (81, 57), (33, 33), (20, 90), (90, 20), (20, 21), (50, 51), (64, 47)] * 2):
        picture(rng, *shape).save(tmp_path / f"{i:02}.jpg")
    return folder_of(tmp_path)


def test_a_folder_has_the_shape_of_a_tensor(folder: ImageFiles) -> None:
    assert folder.shape == (16, 3, SIDE, SIDE) and len(folder) == 16
    images = folder[:]
    assert images.shape == folder.shape and images.dtype == torch.uint8 and images.is_contiguous()


@pytest.mark.parametrize("side", [28, 33])
def test_evaluation_is_torchvisions_resize_and_central_crop(folder: ImageFiles, side: int) -> None:
    theirs = Compose([Resize(round(side * 256 / 224)), CenterCrop(side), PILToTensor()])
    actual = replace(folder, side=side)[:]
    for image, path in zip(actual, folder.paths(), strict=True):
        assert (image == theirs(pil_loader(path))).all()


def test_indices_are_those_of_a_tensor(folder: ImageFiles) -> None:
    everything = folder[:]
    indices = torch.tensor([5, 0, 5, -1])
    assert (folder[indices] == everything[indices]).all()
    assert (folder[3:9:2] == everything[3:9:2]).all()
    assert folder[16:].shape == (0, 3, SIDE, SIDE)
    with pytest.raises(IndexError):
        folder[torch.tensor([16])]


def test_only_keeps_what_the_mask_keeps(folder: ImageFiles) -> None:
    mask = torch.arange(16) % 3 == 1
    assert (folder.select(mask)[:] == folder[:][mask]).all() and len(folder) == 16


def test_crops_are_torchvisions_of_boxes_from_each_images_own_generator(folder: ImageFiles) -> None:
    indices = torch.tensor([3, 1, 7, 7])
    views = folder.crops(indices, generators(4), 3, 0.2, 4 / 3)()
    assert [view.shape for view in views] == [(4, 3, SIDE, SIDE)] * 3
    for position, (index, generator) in enumerate(zip(indices.tolist(), generators(4), strict=True)):
        image = pil_loader(folder.paths()[index])
        boxes = draw_boxes(generator, 3, image.height, image.width, 0.2, 4 / 3)
        for view, *box in zip(views, *boxes, strict=True):
            expected = tv.resized_crop(image, *map(int, box), [SIDE, SIDE], InterpolationMode.BILINEAR)
            assert (view[position] == tv.pil_to_tensor(expected)).all()


def test_crops_depend_neither_on_threads_nor_on_the_rest_of_the_batch(folder: ImageFiles) -> None:
    def crops(threads: int, positions: list[int]) -> Tensor:
        drawn = [generators(16)[position] for position in positions]
        other = replace(folder, threads=threads)
        return torch.stack(other.crops(torch.tensor(positions), drawn, 2, 0.1, 2.0)())

    together = crops(1, list(range(16)))
    assert (crops(5, list(range(16))) == together).all()
    assert (crops(2, [9, 4]) == together[:, [9, 4]]).all()


def test_no_crop_is_the_central_one_and_draws_nothing(folder: ImageFiles) -> None:
    own = generators(16)
    first, second = folder.crops(torch.arange(16), own, 2, 1.0, 4 / 3)()
    assert (first == folder[:]).all() and (second == first).all()
    assert first.data_ptr() != second.data_ptr()
    for used, fresh in zip(own, generators(16), strict=True):
        assert (used.get_state() == fresh.get_state()).all()


def test_each_file_is_decoded_once_for_all_crops(folder: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str | bytes] = []

    def counted(image: ImageFile) -> Image.Image:
        opened.append(image.filename)
        return image.convert("RGB")

    monkeypatch.setattr(image_files, "rgb", counted)
    folder.crops(torch.arange(16), generators(16), 4, 0.5, 4 / 3)()
    assert sorted(opened) == folder.paths()


def test_crops_are_made_while_the_caller_goes_on(folder: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """More batches may be requested than there are threads."""
    all_requested = threading.Event()
    monkeypatch.setattr(image_files, "rgb", lambda image: all_requested.wait(60) and image.convert("RGB"))
    one_thread = replace(folder, threads=1)
    decodings = [one_thread.crops(torch.arange(3), generators(3), 1, 0.5, 4 / 3) for _ in range(3)]
    all_requested.set()
    first, *rest = (wait()[0] for wait in decodings)
    assert all((other == first).all() for other in rest)


def test_images_are_freed_with_their_last_user(folder: ImageFiles) -> None:
    """They are freed at once, without waiting for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        image = weakref.ref(folder.crops(torch.arange(16), generators(16), 1, 0.5, 4 / 3)()[0])
        until = time.monotonic() + 60
        while image() is not None and time.monotonic() < until:  # a thread may still be returning
            time.sleep(0.01)
        assert image() is None
    finally:
        gc.enable()


def test_an_empty_batch_is_empty(folder: ImageFiles) -> None:
    (view,) = folder.crops(torch.arange(0), [], 1, 0.5, 4 / 3)()
    assert view.shape == (0, 3, SIDE, SIDE)


def test_generators_must_not_be_shared(folder: ImageFiles) -> None:
    with pytest.raises(ValueError, match="each of the 2 images needs a generator of its own, but got 1"):
        folder.crops(torch.arange(2), generators(1), 1, 0.5, 4 / 3)
    with pytest.raises(ValueError, match="needs a generator of its own"):
        folder.crops(torch.arange(2), generators(1) * 2, 1, 0.5, 4 / 3)


@pytest.mark.filterwarnings("error")
def test_files_of_every_mode_become_red_green_and_blue(tmp_path: Path) -> None:
    paths = write_modes(tmp_path)
    folder = folder_of(tmp_path)
    theirs = Compose([Resize(32), CenterCrop(SIDE), PILToTensor()])
    for actual, path in zip(folder[:], paths, strict=True):
        with Image.open(path) as image:
            plain = image.convert("RGBA") if image.mode == "P" else image
            assert (actual == theirs(plain.convert("RGB"))).all(), path.name
    grey = folder[:][[path.name for path in paths].index("grey.jpg")]
    assert (grey[0] == grey[1]).all() and (grey[0] == grey[2]).all()


def test_a_file_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    write_modes(tmp_path)
    for name in write_broken(tmp_path):
        folder = folder_of(tmp_path)
        index = folder.names.tolist().index(name.encode())
        for ask in (
            lambda: folder[torch.tensor([0, index])],  # noqa: B023
            lambda: folder.crops(torch.tensor([index, 0]), generators(2), 2, 0.5, 2.0)(),  # noqa: B023
        ):
            with pytest.raises(DataError) as error:
                ask()
            assert str(error.value).startswith(f"the image {tmp_path / name} cannot be decoded (")
            assert "\n" not in str(error.value)


def test_the_first_of_a_batch_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    write_modes(tmp_path)
    write_broken(tmp_path)
    folder = folder_of(tmp_path)
    indices = [folder.names.tolist().index(name) for name in (b"grey.jpg", b"text.jpg", b"cut.jpg", b"nothing.jpg")]
    for _ in range(5):
        with pytest.raises(DataError, match=r"text\.jpg"):
            folder[torch.tensor(indices)]


def test_a_folder_can_be_pickled(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    folder = folder_of(tmp_path / "imagenet/val/n01440764")
    assert (folder[:] == pickle.loads(pickle.dumps(folder))[:]).all()


def test_names_need_not_be_ascii(tmp_path: Path) -> None:
    picture(np.random.default_rng(0), 30, 30).save(tmp_path / "Käfer 甲虫.jpg")
    assert folder_of(tmp_path)[:].shape == (1, 3, SIDE, SIDE)
