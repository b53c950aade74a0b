"""CelebA is what torchvision reads, decoded once, or refused in one line; its attributes are the published ones."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import CelebA

from tests.cases import for_each
from tests.published_files import ATTRIBUTES, PARTS, pack_celeba, write_celeba
from trainables.data.datasets import celeba as module
from trainables.data.datasets.catalog import load
from trainables.data.datasets.celeba import BINARY, CONTENT, HAIR, hair_colour
from trainables.data.datasets.dataset import UNLABELLED
from trainables.data.errors import DataError

TRAIN, TEST = ([i for i, part in enumerate(PARTS) if part == split] for split in (0, 2))


@pytest.fixture
def attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """The attributes, 1 or -1, `[10, 40]`, of a small CelebA in `tmp_path`."""
    return write_celeba(tmp_path, monkeypatch)


def refusal(root: Path) -> str:
    with pytest.raises(DataError) as error:
        load("celeba", root)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("block", [1, 3, 256])
def test_images_are_the_central_square_reduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attributes: np.ndarray, block: int
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    celeba = load("celeba", tmp_path)
    for images, indices in ((celeba.train_images, TRAIN), (celeba.test_images, TEST)):
        assert images.shape == (len(indices), 3, 64, 64)
        for image, i in zip(images[:], indices, strict=True):
            with Image.open(tmp_path / f"celeba/img_align_celeba/{i + 1:06}.jpg") as file:
                assert file.size == (178, 218)
                square = file.crop((0, 20, 178, 198)).resize((64, 64), Image.Resampling.BILINEAR)
            assert (image.permute(1, 2, 0).numpy() == np.asarray(square)).all()


def test_classes_are_the_sexes_and_attributes_those_of_the_file(tmp_path: Path, attributes: np.ndarray) -> None:
    celeba, positive = load("celeba", tmp_path), attributes == 1
    assert celeba.classes == ("female", "male")
    assert (celeba.train_labels.numpy() == positive[TRAIN, 20]).all()
    assert (celeba.test_labels.numpy() == positive[TEST, 20]).all()
    columns = {name.lower(): positive[:, i] for i, name in enumerate(ATTRIBUTES)}
    for name in BINARY:
        assert (celeba.attributes[name].train_labels.numpy() == columns[name][TRAIN]).all()
        assert (celeba.attributes[name].test_labels.numpy() == columns[name][TEST]).all()
    for labels, indices in (
        (celeba.attributes["hair"].train_labels, TRAIN),
        (celeba.attributes["hair"].test_labels, TEST),
    ):
        for label, i in zip(labels.tolist(), indices, strict=True):
            colours = [name for name in HAIR if columns[name][i]]
            assert label == (HAIR.index(colours[0]) if len(colours) == 1 else UNLABELLED)


def test_statistics_are_those_of_the_training_images(tmp_path: Path, attributes: np.ndarray) -> None:
    celeba = load("celeba", tmp_path)
    pixels = celeba.train_images[:].double() / 255
    assert celeba.mean == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist(), abs=1e-12)
    assert celeba.std == pytest.approx(pixels.std(dim=(0, 2, 3), correction=0).tolist(), abs=1e-12)


def test_images_are_decoded_once(tmp_path: Path, attributes: np.ndarray) -> None:
    first = load("celeba", tmp_path)
    for path in (tmp_path / "celeba/img_align_celeba").iterdir():
        path.unlink()
    again = load("celeba", tmp_path)
    assert torch.equal(first.train_images[:], again.train_images[:])
    assert torch.equal(first.attributes["hair"].test_labels, again.attributes["hair"].test_labels)
    assert (first.mean, first.std) == (again.mean, again.std)


def test_the_archive_is_unpacked_where_torchvision_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attributes: np.ndarray
) -> None:
    pack_celeba(tmp_path / "celeba", monkeypatch)
    assert len(load("celeba", tmp_path).train_images) == len(TRAIN)
    assert len(CelebA(tmp_path, "train")) == len(TRAIN)
    assert not [path for path in (tmp_path / "celeba").iterdir() if path.name.startswith(".")]


def test_absent_files_are_named(tmp_path: Path, attributes: np.ndarray) -> None:
    assert refusal(tmp_path / "empty") == (
        "celeba is incomplete and is not downloaded; put img_align_celeba.zip, list_attr_celeba.txt, "
        "identity_CelebA.txt, list_bbox_celeba.txt, list_landmarks_align_celeba.txt, list_eval_partition.txt into "
        f"{tmp_path}/empty/celeba, from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
    )
    (tmp_path / "celeba/identity_CelebA.txt").unlink()
    assert "put identity_CelebA.txt into" in refusal(tmp_path)


def test_a_changed_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attributes: np.ndarray) -> None:
    path = tmp_path / "celeba/list_attr_celeba.txt"
    path.write_text(path.read_text().replace("-1", " 1", 1))
    assert refusal(tmp_path).startswith(f"celeba is corrupt: {path} does not have its published checksum; replace it")
    pack_celeba(tmp_path / "celeba", monkeypatch)
    (tmp_path / "celeba/img_align_celeba.zip").write_bytes(b"half")
    assert "img_align_celeba.zip does not have its published checksum" in refusal(tmp_path)


def test_an_image_that_cannot_be_decoded_is_named(tmp_path: Path, attributes: np.ndarray) -> None:
    path = tmp_path / "celeba/img_align_celeba/000003.jpg"
    path.write_bytes(path.read_bytes()[:500])
    assert refusal(tmp_path).startswith(f"the image {path} cannot be decoded (")
    path.unlink()
    assert refusal(tmp_path).endswith("; replace it") and not list((tmp_path / "celeba").glob("*.pt"))


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attributes: np.ndarray
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    assert refusal(tmp_path) == (
        f"celeba cannot be decoded into {tmp_path}/celeba ([Errno 28] No space left on device); it must be writable "
        "and have 4 GB free"
    )


PUBLISHED = [name.lower() for name in ATTRIBUTES]


@for_each(
    ("positive", "colour"),
    [
        ([0, 0, 0, 0, 0], UNLABELLED),
        ([1, 0, 0, 0, 0], 0),
        ([0, 0, 1, 0, 0], 2),
        ([0, 0, 0, 0, 1], 4),
        ([0, 1, 0, 1, 0], UNLABELLED),
        ([1, 0, 0, 0, 1], UNLABELLED),
        ([1, 1, 1, 1, 1], UNLABELLED),
    ],
)
def test_hair_colour_is_the_only_positive_one(positive: list[int], colour: int) -> None:
    assert hair_colour(torch.tensor([positive], dtype=torch.uint8)).tolist() == [colour]


def test_attributes_have_the_published_indices() -> None:
    assert [PUBLISHED.index(name) for name in HAIR] == [4, 8, 9, 11, 17] and PUBLISHED.index(CONTENT) == 20
    assert [PUBLISHED.index(name) for name in BINARY] == [
        *(0, 3, 5, 6, 7, 12, 15, 18, 19, 20, 21, 24, 25, 27, 31, 32, 33, 34, 36, 39)
    ]
