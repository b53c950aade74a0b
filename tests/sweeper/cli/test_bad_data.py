"""Data that are missing, damaged or too few, and requests that do not fit them, are refused in one line."""

import urllib.request
from pathlib import Path
from typing import Never
from urllib.error import URLError

import pytest

from tests.image_files import write_imagenet
from tests.published_files import write_cifar10
from tests.sweeper.cli.refusals import CommandLine, command_line_of


@pytest.fixture
def command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return command_line_of(tmp_path, capsys, monkeypatch)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Never:
        raise URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


@pytest.mark.usefixtures("offline")
def test_data_that_are_missing(command_line: CommandLine) -> None:
    error = command_line.refuse("--data", str(command_line.folder / "data"), preset="paper").error
    assert error.startswith(f"cifar10 is absent from {command_line.folder / 'data'} and its download failed (")
    assert error.endswith(
        "put cifar-10-python.tar.gz there, from https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    )


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        ("--set normal_class=10", "normal_class must be one of 0..9 for cifar10, but got 10"),
        ("--set batch_size=6000", "batch_size must not exceed the 5000 training images of cifar10 with normal_class=0"),
        ("ood_detection --set outliers=digits", "outliers must have as many channels as the images of cifar10, 3, but"),
        ("nu_ablation --axis dataset=stl10 --set knn=5001", "knn must not exceed the 5000 labelled training images of"),
    ],
)
def test_a_wrong_value_is_refused_before_data_are_looked_for(
    command_line: CommandLine, arguments: str, law: str
) -> None:
    name, *options = (arguments if arguments[0] != "-" else f"anomaly_grid {arguments}").split()
    assert command_line.refuse(*options, "--data", "/nowhere", name=name, preset="paper").error.startswith(law)


@pytest.mark.usefixtures("offline")
def test_data_that_are_truncated(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_cifar10(command_line.folder / "data", 80, monkeypatch)
    file = folder / "data_batch_3"
    file.write_bytes(file.read_bytes()[:-1])
    error = command_line.refuse("--data", str(command_line.folder / "data"), preset="paper").error
    assert error == (
        f"cifar10 is corrupt: {file} does not have its published checksum; remove {folder} to have it downloaded again"
    )
    file.unlink()
    error = command_line.refuse("--data", str(command_line.folder / "data"), preset="paper").error
    assert "data_batch_3 is missing" in error


def test_images_in_folders_that_are_missing_or_broken(command_line: CommandLine) -> None:
    data, folder = str(command_line.folder / "data"), command_line.folder / "data/imagenet"

    def error() -> str:
        return command_line.refuse("--data", data, name="imagenet_linear", preset="paper").error

    assert error().startswith(f"imagenet is absent from {data} and not to be downloaded; put its images into {folder}/")
    write_imagenet(command_line.folder / "data")
    (broken := folder / "train/n01440764/n01440764_0.JPEG").write_bytes(b"\xff\xd8\xff")
    message = f"1 of 18 images of imagenet cannot be read, the first is {broken} (not an image); remove or replace them"
    assert error() == message
    (folder / "val").rename(folder / "validation")
    assert error().startswith(f"imagenet is without the split 'val': there is no folder {folder / 'val'}; ")


def test_a_class_smaller_than_the_batch(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(command_line.folder / "data", 10, monkeypatch)
    error = command_line.refuse("--data", str(command_line.folder / "data"), preset="paper").error
    assert error == (
        "batch_size must not exceed the 10 training images of cifar10 with normal_class=0, but got batch_size=64 "
        "(batch_size and normal_class are set by preset 'paper')"
    )
