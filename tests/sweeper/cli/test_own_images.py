"""Trials on a user's own images: planned from the folder's files, a class by its name, an id of their own."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import sweeper
import sweeper.run as run
from sweeper.storage.load import load
from tests.cases import for_each
from tests.fake_executor import without_ray
from tests.image_files import write_own_images

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
            ["--normal-class", "good", "--data", "{good}", "--set", "validation=0", "--set", "contamination=0.2"],
            "contamination needs training images of other classes than good, but folder has none, and got ",
        ),
        (
            ["--normal-class", "dog", "--data", "{none}"],
            "dataset=folder is without the split 'train': there is no folder ",
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
    paths = {"{good}": str(good), "{none}": str(tmp_path)}
    data = [] if "--data" in arguments else ["--data", str(images)]
    assert run.main([*ARGUMENTS, *data, *(paths.get(word, word) for word in arguments), "--plan"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {law}") and error.count("\n") == 1


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
    *lines, sentence = capsys.readouterr().out.splitlines()
    loaded = next(line for line in lines if line.startswith("sweeper.load_model"))
    trial = load("anomaly_grid", store).sort_values("auroc_joint")["trial_id"].iloc[-1]
    model = sweeper.load_model(store, trial, alarm_rate=0.25)
    assert loaded == (
        f'sweeper.load_model("{store}", "{trial}", alarm_rate=0.25): score joint (the default): threshold '
        f"{model.threshold:.4g} at a false-alarm rate of 0.25, from 4 held-out normal images"
    )
    assert sentence.startswith("best auroc_joint so far: ")  # of the request, which has other nu as well
    assert sentence.endswith("over 2 seeds); chosen on test images")
    (sheet,) = (store / "sheets/anomaly_grid").rglob("folder-anomalies.png")
    assert sheet.stat().st_size > 10_000 and len(model.score(np.zeros((3, 8, 8, 3)))) == 3
