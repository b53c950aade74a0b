"""Trials on a user's own images: planned from the folder's files, a class by its name, an id of their own."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sweeper
from sweeper.commands import run
from sweeper.storage.load import load
from tests.cases import for_each
from tests.fake_executor import without_ray
from tests.image_files import write_own_images
from trainables.config import resolve
from trainables.data.datasets.class_folders import list_folder, load_folder
from trainables.sections import Value
from trainables.training.checks import check_trials, stacking_notes

SMALL = ["--set", "dataset=folder", "--set", "batch_size=4", "--axis", "beta=1"]
ARGUMENTS = ["anomaly_grid", "--preset", "digits", *SMALL]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_own_images(tmp_path_factory.mktemp("images"))


def _plan(images: Path, store: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, object]:
    arguments = [*ARGUMENTS, "--data", str(images), "--store", str(store), "--plan", "--json", *more]
    assert run.main(arguments) == 0
    outline: dict[str, object] = json.loads(capsys.readouterr().out)
    return outline


def test_a_class_is_named_and_its_images_are_counted(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = _plan(images, tmp_path, capsys, "--normal-class", "dog")
    assert named["trials"] == 8 and named["steps"] == [50] and named["unsized"] == []
    assert named == _plan(images, tmp_path, capsys, "--set", "normal_class=dog")
    assert named == _plan(images, tmp_path, capsys, "--set", "normal_class=1")
    fixed = named["fixed"]
    assert isinstance(fixed, dict) and fixed["normal_class"] == 1 and len(fixed["image_digest"]) == 12
    each = _plan(images, tmp_path, capsys, "--axis", "normal_class=cat,fox")
    assert each["trials"] == 16 and not any(tmp_path.iterdir())


def test_the_classes_are_said(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run.main([*ARGUMENTS, "--data", str(images), "--store", str(tmp_path), "--plan", "--normal-class", "fox"]) == 0
    )
    note = f"note: dataset=folder: 18 training and 9 test images in {images}, classes 0 cat, 1 dog, 2 fox\n"
    assert capsys.readouterr().err == note


@for_each(
    ("arguments", "law"),
    [
        (["--normal-class", "dgo"], "no normal_class 'dgo' (did you mean 'dog'?); there are: cat, dog, fox"),
        (["--set", "normal_class=7"], "normal_class must be one of 0..2 (cat, dog, fox) for folder, but got 7"),
        (["--normal-class", "dog", "--set", "normal_class=1"], "--set must be given once per key, but got "),
        (["--normal-class", " "], "--normal-class must name a class, but got ''"),
        (
            ["--normal-class", "bad", "--data", "{good}", "--set", "validation=0"],
            "the normal class must have training images, but bad of ",
        ),
        (
            ["--normal-class", "dog", "--set", "normal_images=20"],
            "normal_images must not exceed the 5 training images of class dog of folder, but got normal_images=20",
        ),
        (
            ["--normal-class", "good", "--data", "{misspelt}"],
            "test images must be of the normal class and of others, but for normal_class=good folder has none of it "
            "(did you mean 'goood'?); there are: bad, goood",
        ),
        (
            ["--normal-class", "goood", "--data", "{misspelt}", "--set", "validation=0"],
            "the normal class must have training images, but goood of folder (normal_class=2) has none (did you mean "
            "'good'?); classes with training images are: bad, good",
        ),
        (
            ["--normal-class", "good", "--data", "{beside}"],
            "test/Good has no training images and is named nearly as the normal class 'good': rename it to test/good "
            "if its images are normal, or to a name that differs more if they are anomalies",
        ),
        (
            ["--normal-class", "good", "--data", "{five}", "--set", "validation=0.4"],
            "batch_size must not exceed the 3 training images of folder with normal_class=1, but got batch_size=4; add "
            "images until the class has 7, or choose --set batch_size=3",
        ),
        (["--normal-class", "2", "--data", "{numbers}"], "a class whose name is a number must have that index, so "),
        (["--set", "normal_class=1", "--data", "{numbers}"], "a class whose name is a number must have that index, "),
        (
            ["--normal-class", "good", "--data", "{good}", "--set", "validation=0", "--set", "contamination=0.2"],
            "contamination needs training images of classes other than good, but folder has none; got ",
        ),
        (
            ["--normal-class", "dog", "--data", "{none}"],
            "dataset=folder lacks the split 'train': there is no folder ",
        ),
        (["--normal-class", "dog", "--alarm-rate", "1.5"], "`0 < alarm-rate < 1` must hold, but got --alarm-rate 1.5"),
        (
            ["--normal-class", "dog", "--alarm-rate", "0.01"],
            "a false-alarm rate of 0.01 needs at least 99 held-out normal images, but there is 1; choose --alarm-rate ",
        ),
        (
            ["--normal-class", "dog", "--alarm-rate", "0.5", "--set", "validation=0"],
            "a false-alarm rate of 0.5 needs at least 1 held-out normal image, but there are none; hold some out with ",
        ),
        (["--normal-class", "dog", "--set", "image_digest=xyz"], "image_digest must be hexadecimal, but got "),
        (["--normal-class", "dog", "--set", "image_channels=2"], "no image_channels '2'; there are: 1, 3"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], law: str
) -> None:
    good = write_own_images(tmp_path / "good", ("bad", "good"))
    shutil.rmtree(good / "train/bad")
    misspelt = write_own_images(tmp_path / "misspelt", ("bad", "good"))
    (misspelt / "test/good").rename(misspelt / "test/goood")
    numbers = write_own_images(tmp_path / "numbers", ("1", "2", "3"))
    beside = write_own_images(tmp_path / "beside", ("bad", "good"))
    shutil.copytree(beside / "test/good", beside / "test/Good")
    five = write_own_images(tmp_path / "five", ("bad", "good"), train=5)
    paths = {
        "{beside}": beside,
        "{five}": five,
        "{good}": good,
        "{none}": tmp_path,
        "{misspelt}": misspelt,
        "{numbers}": numbers,
    }
    data = [] if "--data" in arguments else ["--data", str(images)]
    assert run.main([*ARGUMENTS, *data, *(str(paths.get(word, word)) for word in arguments), "--plan"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {law}") and error.count("\n") == 1


def test_a_number_is_the_class_of_that_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the command line, from Python, and in rows."""
    images = write_own_images(tmp_path / "images", tuple(map(str, range(12))), train=4, test=1)
    outline = _plan(images, tmp_path / "store", capsys, "--normal-class", "11", "--set", "validation=0")
    assert isinstance(outline["fixed"], dict) and outline["fixed"]["normal_class"] == 11
    dataset = load_folder(images, "", 8, 1)
    assert dataset.classes[11] == "11" and dataset.train_labels.tolist() == sorted([*range(12)] * 4)


@for_each(
    ("classes", "words", "note"),
    [
        (("a", "a"), [], "warning: all 12 training images of folder are equal, so they carry no information"),
        (("a", "b"), [], ""),
        (("b", "c"), [], "warning: folder has test images of classes without training images (c), which no classifier"),
        (("b", "c"), ["--normal-class", "b"], ""),
    ],
)
def test_images_that_tell_nothing_are_said(
    tmp_path: Path, classes: tuple[str, str], words: list[str], note: str
) -> None:
    images = write_own_images(tmp_path / "images", tuple(sorted({"a", "b", *classes})))
    if classes == ("a", "a"):
        for path in images.rglob("*.*"):
            Image.new("L", (9, 9), 77).save(path, comment=str(path).encode())
    if "c" in classes:
        shutil.rmtree(images / "train/c")
    listing = list_folder(images)
    keys: dict[str, Value] = {"normal_class": listing.classes.index(words[1])} if words else {}
    trial: dict[str, Value] = {
        "method": "vje",
        "dataset": "folder",
        "image_size": 8,
        "batch_size": 4,
        "image_digest": listing.digest,
    }
    configs = [resolve({**trial, **keys})]
    notes = [stacking_notes(configs, check_trials(configs, data)) for data in (images, None)]
    assert "".join(notes[0]).startswith(note) and bool(notes[0]) == bool(note)
    assert notes[1] == (() if classes == ("a", "a") else notes[0])


def test_keys_of_own_images_need_own_images(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["anomaly_grid", "--preset", "digits", "--set", "image_size=64", "--plan"]) == 2
    assert (
        capsys.readouterr().err
        == "error: image_size needs dataset=folder, but got image_size=64 with dataset=digits (dataset is set by "
        "preset 'digits')\n"
    )
    assert run.main(["anomaly_grid", "--preset", "digits", "--axis", "dataset=digits,folder", "--plan"]) == 2
    assert "must be set for all trials" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_on_normal_images_alone_ends_with_its_model_threshold_and_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing can be chosen on images that are all normal, so the score is the default, which is said."""
    images, store = write_own_images(tmp_path / "images", ("bad", "good"), train=20, test=12), tmp_path / "store"
    shutil.rmtree(images / "train/bad")
    words = ["--set", "image_size=8", "--set", "epochs=2", "--axis", "nu=1", "--axis", "seed=0,1", "--cohort", "2"]
    words += ["--normal-class", "good", "--alarm-rate", "0.25", "--set", "sheets=true"]
    with without_ray(tmp_path):
        assert run.main([*ARGUMENTS, *words, "--data", str(images), "--store", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    loaded, sentence = (
        next(line for line in lines if line.startswith(text)) for text in ("sweeper.load_model", "best ")
    )
    trial = load("anomaly_grid", store).sort_values("auroc_joint")["trial_id"].iloc[-1]
    model = sweeper.load_model(store, trial, alarm_rate=0.25)
    assert loaded == (
        f'sweeper.load_model("{store}", "{trial}", alarm_rate=0.25): score joint (the default): threshold '
        f"{model.threshold:.4g} at a false-alarm rate of 0.25, from 4 held-out normal images"
    )
    assert sentence.startswith("best auroc_joint so far: ")  # of the request, which has other nu as well
    assert sentence.endswith("over 2 seeds); chosen on test images")
    (grid,) = (store / "sheets/anomaly_grid").rglob("folder-anomalies.png")
    assert grid.stat().st_size > 10_000 and len(model.score(np.zeros((3, 8, 8, 3)))) == 3
