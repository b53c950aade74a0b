"""Files that cannot be read are counted and the first is named, before training."""

import shutil
from pathlib import Path

import pytest

from tests.image_files import CLASSES, write_broken, write_imagenet, write_modes
from trainables.data import image_files
from trainables.data.datasets.catalog import check_dataset, load
from trainables.data.errors import DataError


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
