"""Image files give the pixels that torchvision gives, part by part, and are refused by name if they cannot be read."""

import gc
import os
import pickle
import shutil
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

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

from tests.cases import for_each
from tests.image_files import CLASSES, picture, write_broken, write_huge, write_imagenet, write_modes
from trainables.data import image_files
from trainables.data.augmentation import draw_boxes
from trainables.data.datasets.catalog import check_dataset, load
from trainables.data.errors import DataError
from trainables.data.image_files import ImageFiles, decode_file, prefetched, read_header, to_device

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
    with pytest.raises(ValueError, match="each of the 2 images needs its own generator, but got 1"):
        folder.crops(torch.arange(2), generators(1), 1, 0.5, 4 / 3)
    with pytest.raises(ValueError, match="needs its own generator"):
        folder.crops(torch.arange(2), generators(1) * 2, 1, 0.5, 4 / 3)


@pytest.mark.filterwarnings("error")
def test_files_of_every_mode_become_red_green_and_blue(tmp_path: Path) -> None:
    paths = write_modes(tmp_path)
    folder = folder_of(tmp_path)
    theirs = Compose([Resize(32), CenterCrop(SIDE), PILToTensor()])
    for actual, path in zip(folder[:], paths, strict=True):
        with Image.open(path) as image:
            plain = image.convert("RGB") if path.name != "transparent.png" else on_white(image)
            assert (actual == theirs(plain)).all(), path.name
    grey = folder[:][[path.name for path in paths].index("grey.jpg")]
    assert (grey[0] == grey[1]).all() and (grey[0] == grey[2]).all()


def on_white(image: Image.Image) -> Image.Image:
    """Each pixel as the mean of its colour and white, weighted by its opacity."""
    pixels = np.asarray(image.convert("RGBA")).astype(float)
    share = pixels[..., 3:] / 255
    return Image.fromarray((share * pixels[..., :3] + (1 - share) * 255).round().astype(np.uint8))


@for_each(
    ("mode", "ending", "options"),
    [
        ("RGBA", "png", {}),
        ("LA", "png", {}),
        ("RGBA", "tif", {}),
        ("RGBA", "gif", {}),
        ("RGBA", "webp", {"lossless": True}),
        ("L", "png", {"transparency": 0}),
        ("RGB", "png", {"transparency": (0, 0, 0)}),
        ("P", "png", {"transparency": 0}),
    ],
)
def test_transparent_images_are_on_white(tmp_path: Path, mode: str, ending: str, options: dict[str, Any]) -> None:
    """Black on transparent black would be a black image."""
    opaque = np.random.default_rng(0).random((20, 30)) < 0.5
    layers = np.stack([90 * opaque] * 3 + [255 * opaque], -1).astype(np.uint8)
    image = Image.fromarray(opaque.astype(np.uint8)) if mode == "P" else Image.fromarray(layers).convert(mode)
    if mode == "P":
        image.putpalette([0, 0, 0, 90, 90, 90])
    path = str(tmp_path / f"image.{ending}")
    image.save(path, **options)
    (decoded,) = decode_file(path, lambda image: [image])
    assert read_header(path).transparent and decoded.mode == "RGB"
    assert np.array_equal(np.asarray(decoded), np.where(opaque, 90, 255)[..., None].repeat(3, 2))


@for_each("ending", ["gif", "tif", "png", "webp"])
def test_several_pages_are_known_before_an_image_is_decoded(tmp_path: Path, ending: str) -> None:
    first, *others = (picture(np.random.default_rng(seed), 20, 30) for seed in range(3))
    first.save(tmp_path / f"one.{ending}")
    first.save(tmp_path / f"three.{ending}", save_all=True, append_images=others)
    assert [read_header(str(tmp_path / f"{name}.{ending}")).paged for name in ("one", "three")] == [False, True]


def test_a_huge_image_is_named_before_it_is_decoded(imagenet: Path) -> None:
    """The file ends as it should."""
    path = imagenet / "train" / CLASSES[0] / "huge.png"
    write_huge(path)
    assert check_refusal(imagenet).startswith(f"1 of 19 images of imagenet cannot be read, the first is {path} (")
    with pytest.raises(DataError, match=r"huge\.png cannot be decoded \(.*1600000000 pixels") as refused:
        read_header(str(path))
    assert "\n" not in str(refused.value)


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


def check_refusal(folder: Path) -> str:
    with pytest.raises(DataError) as error:
        check_dataset(load("imagenet", folder.parent))
    return str(error.value)


def test_whole_files_pass(imagenet: Path) -> None:
    write_modes(imagenet / "train" / CLASSES[0])
    check_dataset(load("imagenet", imagenet.parent))


def test_most_files_are_not_decoded(imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "rgb", None)
    check_dataset(load("imagenet", imagenet.parent))


@pytest.mark.parametrize("split", ["train", "val"])
def test_broken_files_are_counted_and_the_first_is_named(imagenet: Path, split: str) -> None:
    folder = imagenet / split / CLASSES[1]
    for name, reason in write_broken(imagenet.parent / "aside").items():
        shutil.copy(imagenet.parent / "aside" / name, folder)
        assert check_refusal(imagenet) == (
            f"1 of 19 images of imagenet cannot be read, the first is {folder / name} ({reason}); "
            "remove or replace them"
        )
        (folder / name).unlink()
    write_broken(folder)
    assert check_refusal(imagenet) == (
        f"6 of 24 images of imagenet cannot be read, the first is {folder}/cut.jpg (cut off); remove or replace them"
    )


def test_files_pass_exactly_if_they_can_be_decoded(tmp_path: Path) -> None:
    """A JPEG is cut off at many positions."""
    imagenet = write_imagenet(tmp_path)
    path = imagenet / "train" / CLASSES[0] / f"{CLASSES[0]}_0.JPEG"
    whole = path.read_bytes()
    refused = 0
    for end in (*range(0, len(whole), 97), len(whole) - 2, len(whole) - 1, len(whole)):
        path.write_bytes(whole[:end])
        dataset = load("imagenet", tmp_path)
        try:
            check_dataset(dataset)
        except DataError:
            refused += 1
            with pytest.raises(DataError):
                dataset.train_images[:1]
        else:
            assert end == len(whole)
    assert refused > 5


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
