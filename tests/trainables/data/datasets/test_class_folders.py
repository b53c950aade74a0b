"""Images in class folders, ImageNet's and the user's own, are listed and read as they are, or refused by name."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder

from tests.cases import for_each
from tests.image_files import CLASSES, write_huge, write_own_images
from trainables.data.datasets import class_folders
from trainables.data.datasets.catalog import load
from trainables.data.datasets.class_folders import list_folder, load_folder
from trainables.data.datasets.dataset import listed, placeholder
from trainables.data.errors import DataError
from trainables.data.image_files import ImageFiles


def test_hidden_files_are_ignored(imagenet: Path) -> None:
    for folder in ("train", "val", f"train/{CLASSES[0]}"):
        (imagenet / folder / ".DS_Store").write_bytes(b"x")
    assert len(load("imagenet", imagenet.parent).train_images) == 12


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_missing_or_empty_split_is_refused(imagenet: Path, split: str) -> None:
    shutil.rmtree(imagenet / split)
    assert imagenet_refusal(imagenet) == (
        f"imagenet lacks the split '{split}': there is no folder {imagenet / split}; images belong in "
        f"{imagenet}/{split}/CLASS/"
    )
    (imagenet / split).mkdir()
    assert imagenet_refusal(imagenet) == (
        f"imagenet has no images: {imagenet / split} is empty; images belong in {imagenet}/{split}/CLASS/"
    )


@pytest.mark.parametrize(("present", "absent"), [("train", "val"), ("val", "train")])
def test_a_class_in_one_split_only_is_refused(imagenet: Path, present: str, absent: str) -> None:
    shutil.rmtree(imagenet / absent / CLASSES[1])
    assert imagenet_refusal(imagenet) == (
        f"the classes of imagenet must be the same in train and val, but {imagenet / present / CLASSES[1]} has no "
        f"counterpart in {imagenet / absent}"
    )


def test_a_class_without_images_is_refused(imagenet: Path) -> None:
    for file in (imagenet / "val" / CLASSES[2]).iterdir():
        file.unlink()
    assert (
        imagenet_refusal(imagenet)
        == f"every class of imagenet must have images, but {imagenet / 'val' / CLASSES[2]} is empty"
    )


def test_images_outside_class_folders_are_refused(imagenet: Path) -> None:
    """ImageNet's validation images are distributed like this."""
    stray = imagenet / "val/ILSVRC2012_val_00000001.JPEG"
    stray.write_bytes(b"")
    assert (
        imagenet_refusal(imagenet)
        == f"a split of imagenet must contain only a folder for each class, but {stray} is a file"
    )


@pytest.mark.parametrize("stray", ["readme.txt", "more/", "folder.jpg/"])
def test_other_files_in_a_class_folder_are_refused(imagenet: Path, stray: str) -> None:
    path = imagenet / "train" / CLASSES[0] / stray
    path.mkdir() if stray.endswith("/") else path.write_text("hello")
    assert imagenet_refusal(imagenet).startswith("class folders of imagenet must contain only images (.jpg ")
    assert imagenet_refusal(imagenet).endswith(f"), but got {path}")


def test_files_are_listed_like_torchvision_lists_them(imagenet: Path) -> None:
    (imagenet / "train" / CLASSES[0] / f"{CLASSES[0]}_0.JPEG").unlink()
    ours = load("imagenet", imagenet.parent)
    parts = ((ours.train_images, ours.train_labels, "train"), (ours.test_images, ours.test_labels, "val"))
    for images, labels, split in parts:
        theirs = ImageFolder(str(imagenet / split))
        assert isinstance(images, ImageFiles) and labels.dtype == torch.int64
        assert list(zip(images.paths(), labels.tolist(), strict=True)) == theirs.samples
        assert images.shape == (len(theirs), 3, 224, 224)
        assert list(ours.classes) == theirs.classes == list(CLASSES)


def test_listing_opens_no_image(imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.Image.open", None)
    assert len(load("imagenet", imagenet.parent).train_images) == 12


def test_an_absent_data_set_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "imagenet"
    assert imagenet_refusal(folder) == (
        f"imagenet is absent from {tmp_path} and is not downloaded; put its images into {folder}/train/CLASS/ and "
        f"{folder}/val/CLASS/, from https://image-net.org"
    )


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_own_images(tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize(("size", "channels"), [(16, 3), (7, 1)])
def test_all_files_become_squares_of_one_size(images: Path, size: int, channels: int) -> None:
    dataset = load_folder(images, list_folder(images).digest, size, channels)
    assert dataset.train_images.shape == (18, channels, size, size) and dataset.test_images.shape[0] == 9
    assert dataset.classes == ("cat", "dog", "fox") and dataset.levels == 255
    assert dataset.train_labels.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    train = dataset.train_images
    assert isinstance(train, torch.Tensor) and train.dtype == torch.uint8
    pixels = train.double() / 255
    assert dataset.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    assert dataset.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist())
    brightness = [pixels[dataset.train_labels == label].mean().item() for label in range(3)]
    assert brightness == sorted(brightness) and brightness[2] > brightness[0] + 0.4


def test_an_image_is_resized_as_a_whole_and_upright(tmp_path: Path) -> None:
    """A white left half stays the left half of the square. A camera that was held upright says so in the file."""
    write_own_images(tmp_path, ("a",), train=1, test=1)
    half = np.zeros((20, 60), np.uint8)
    half[:, :30] = 255
    image = Image.fromarray(half)
    image.save(tmp_path / "train/a/0.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees to the left: the left edge of the file is the top of the picture
    image.save(tmp_path / "test/a/0.jpg", exif=exif)
    (tmp_path / "test/a/0.png").unlink()
    dataset = load_folder(tmp_path, "", 8, 1)
    assert isinstance(dataset.train_images, torch.Tensor) and isinstance(dataset.test_images, torch.Tensor)
    assert dataset.train_images[0, 0, :, :3].min() > 200 > 50 > dataset.train_images[0, 0, :, 5:].max()
    assert dataset.test_images[0, 0, :3].min() > 200 > 50 > dataset.test_images[0, 0, 5:].max()


def test_test_images_that_are_training_images_are_counted(images: Path, tmp_path: Path) -> None:
    shutil.copytree(images, tmp_path / "copy")
    assert list_folder(tmp_path / "copy").repeated == 0
    for index in range(2):  # of another class, too, and under another name
        shutil.copy(images / "train/cat/0.png", tmp_path / f"copy/test/dog/again{index}.png")
    assert list_folder(tmp_path / "copy").repeated == 2


def test_the_digest_is_that_of_names_and_contents_wherever_they_are(images: Path, tmp_path: Path) -> None:
    digest = list_folder(images).digest
    copy = tmp_path / "copy"
    shutil.copytree(images, copy)
    (copy / "train/cat/.DS_Store").write_text("ignored")
    assert list_folder(copy).digest == digest and len(digest) == 12
    file = copy / "train/cat/4.bmp"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)  # another image of equal name and size
    changed = list_folder(copy).digest
    file.rename(file.with_name("5.bmp"))
    assert len({digest, changed, list_folder(copy).digest}) == 3


def test_a_listing_is_known_by_its_digest_and_makes_a_placeholder(images: Path) -> None:
    listing = list_folder(images)
    assert listed(listing.digest) == listing and listed("0" * 12) is None
    declared = listing.declaration((1, 16, 16))
    empty = placeholder("folder", declared, listing.classes)
    dataset = load_folder(images, listing.digest, 16, 1)
    assert declared.shape == (1, 16, 16) and empty and empty.classes == dataset.classes
    assert torch.equal(empty.train_labels, dataset.train_labels)
    assert torch.equal(empty.test_labels, dataset.test_labels)


def test_a_class_may_be_tested_only(tmp_path: Path) -> None:
    write_own_images(tmp_path, ("bad", "good"))
    shutil.rmtree(tmp_path / "train/bad")
    dataset = load_folder(tmp_path, "", 8, 3)
    assert dataset.classes == ("bad", "good")
    assert dataset.train_labels.tolist() == [1] * 6 and dataset.test_labels.tolist() == [0] * 3 + [1] * 3


def test_classes_that_are_numbers_are_in_their_order(tmp_path: Path) -> None:
    """So that the number of a class is its name. With other names, too, they are in the order of text."""
    numbers = tuple(map(str, range(12)))
    write_own_images(tmp_path, numbers, train=1, test=1)
    listing, dataset = list_folder(tmp_path), load_folder(tmp_path, "", 8, 1)
    assert listing.classes == numbers == dataset.classes and dataset.train_labels.tolist() == [*range(12)]
    for label, path in enumerate(listing.paths[0]):
        assert path == str(tmp_path / f"train/{label}/0.png")
        with Image.open(path) as image:
            expected = np.asarray(image.convert("L").resize((8, 8), Image.Resampling.BILINEAR))
        assert np.array_equal(dataset.train_images[label : label + 1][0, 0], expected)
    for split in ("train", "test"):
        (tmp_path / split / "11").rename(tmp_path / split / "other")
    assert list_folder(tmp_path).classes == (*sorted(map(str, range(11))), "other")
    assert list_folder(tmp_path).digest != listing.digest


@for_each("name", ["Thumbs.db", "desktop.ini", ".DS_Store", "__MACOSX/", "Icon\r"])
def test_what_file_managers_leave_is_ignored(images: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(images, tmp_path / "copy")
    for folder in ("train", "train/cat", "test", "test/dog"):
        path = tmp_path / "copy" / folder / name
        path.mkdir() if name.endswith("/") else path.write_bytes(b"x")
    left = name.strip("/")
    assert list_folder(tmp_path / "copy") == replace(
        list_folder(images),
        paths=list_folder(tmp_path / "copy").paths,
        digest=list_folder(images).digest,
        remarks=(f"skipped, as no images: test/{left}, train/{left}, test/dog/{left} and 1 more",),
    )


def test_what_is_not_shown_of_images_is_said(tmp_path: Path) -> None:
    write_own_images(tmp_path, ("a", "b"))
    assert list_folder(tmp_path).remarks == ()
    (page, *_) = pages = [Image.new("RGB", (9, 9), (value, 0, 0)) for value in (0, 50, 99)]
    for index in range(4):
        page.save(tmp_path / f"train/b/pages{index}.tif", save_all=True, append_images=pages[1:])
    Image.new("RGBA", (9, 9)).save(tmp_path / "test/a/clear.png")
    assert list_folder(tmp_path).remarks == (
        "warning: 4 of them have several pages or frames, of which only the first is used: "
        "train/b/pages0.tif, train/b/pages1.tif, train/b/pages2.tif and 1 more",
        "1 of them have transparent pixels, which are placed on white",
    )


def test_a_huge_image_is_named_by_a_plan(tmp_path: Path) -> None:
    write_own_images(tmp_path, ("a", "b"))
    write_huge(tmp_path / "train/a/huge.png")
    with pytest.raises(DataError, match=r"the image .*/train/a/huge\.png cannot be decoded \(Image size \(1600000000"):
        list_folder(tmp_path)


def test_images_that_changed_since_the_plan_are_refused(images: Path) -> None:
    with pytest.raises(DataError, match=r"must be the ones that the trials were planned with \(image_digest=00\), but"):
        load_folder(images, "00", 8, 3)


def test_images_that_do_not_fit_into_memory_are_refused(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_folders, "MAX_BYTES", 27 * 3 * 64)
    assert len(load_folder(images, "", 8, 3).train_images) == 18
    with pytest.raises(DataError, match=r"must not exceed 0 GiB in memory, but need .* choose a smaller image_size"):
        load_folder(images, "", 9, 3)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def _sixteen_bits(file: Path) -> None:
    Image.fromarray(np.full((9, 9), 30000, np.uint16)).save(file)


@for_each(
    ("damage", "law"),
    [
        (lambda root: _cut(root / "test/dog/0.png"), r"the image .*/test/dog/0\.png cannot be decoded \(.*\); remove"),
        (
            lambda root: _cut(root / "train/cat/1.jpg"),
            r"the image .*/train/cat/1\.jpg cannot be decoded \(.*\); remove",
        ),
        (lambda root: _sixteen_bits(root / "train/cat/0.png"), r"0\.png cannot be decoded \(its mode is I.*8 bits"),
        (lambda root: (root / "train/cat/notes.txt").write_text("x"), r"must contain only images .*notes\.txt"),
        (lambda root: shutil.rmtree(root / "test"), r"dataset=folder lacks the split 'test': there is no folder"),
        (lambda root: (root / "train/new").mkdir(), r"every class of dataset=folder must have images, but .*train/new"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, damage: object, law: str) -> None:
    write_own_images(tmp_path, train=2, test=2)
    assert callable(damage)
    damage(tmp_path)
    with pytest.raises(DataError, match=law) as refused:
        load_folder(tmp_path, "", 8, 3)
    assert "\n" not in str(refused.value)


def imagenet_refusal(folder: Path) -> str:
    with pytest.raises(DataError) as error:
        load("imagenet", folder.parent)
    assert "\n" not in str(error.value)
    return str(error.value)
