"""`sweeper score`: new image files to scores, flags and a sample grid, by the resize that training had."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import sweeper
from sweeper.commands import score
from sweeper.definition import Grid, Metric, Sweep, Table
from tests.cases import for_each
from tests.fake_executor import report_nothing, without_ray
from tests.screws import DEFECTS, screw, write_screws
from trainables.data.datasets import class_folders
from trainables.data.datasets.class_folders import load_folder
from trainables.data.errors import DataError
from trainables.sections import Value
from trainables.training.model_file import unpack_model

AUROC = Metric("auroc_knn1_z", "maximize")
KEYS: dict[str, Value] = {"method": "pixels", "epochs": 0, "batch_size": 8, "one_class_scores": "knn1+gaussian"}
KEYS |= {"dataset": "folder", "image_size": 24, "image_channels": 1, "validation": 0.5}
SWEEP = Sweep(
    "screws",
    {"paper": Grid(KEYS, {"seed": (0,)})},
    figures=(Table("scores", ("method",), (AUROC,)),),
)


@pytest.fixture(scope="module")
def screws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_screws(tmp_path_factory.mktemp("screws") / "screws", good=80, tested_good=20, each=4)


@pytest.fixture(scope="module")
def model(screws: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("score")
    with without_ray(folder), pytest.MonkeyPatch.context() as patched:
        report_nothing(patched)
        sweeper.run(SWEEP, name="screws", store=folder / "store", data=str(screws), set={"normal_class": "good"})
    (file,) = (folder / "store/models/sweep=screws").glob("*.safetensors")
    return file


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve good screws, two without a head in a folder of their own, and what else lies in folders."""
    folder, rng = tmp_path_factory.mktemp("new"), np.random.default_rng(7)
    (folder / "line 2").mkdir()
    for number in range(12):
        screw(rng).save(folder / f"{number}.png")
    for number in range(2):
        screw(rng, DEFECTS[1]).save(folder / f"line 2/headless, {number}.jpg", quality=95)
    (folder / "Thumbs.db").write_bytes(b"thumbnails")
    (folder / "cut.png").write_bytes((folder / "0.png").read_bytes()[:500])
    (folder / "notes.txt").write_text("nothing")
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [*csv.DictReader(file)]


def test_files_are_scored_flagged_and_shown_and_those_that_are_no_images_said(
    model: Path, new: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(model), str(new), "--alarm-rate", "0.05", "--csv", "all.csv", "--flag-to", "flagged"]
    assert score.main(words) == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == "skipped, as no images: Thumbs.db"
    assert [line.split(" (")[0] for line in err.splitlines()[1:]] == [
        f"the image {new}/{name} cannot be decoded" for name in ("cut.png", "notes.txt")
    ]
    rows = rows_of(folder / "all.csv")
    assert len(rows) == 16 and [row["file"] for row in rows if row["error"]] == ["cut.png", "notes.txt"]
    built = sweeper.load_model(model, alarm_rate=0.05)
    known = {row["file"]: float(row["score"]) for row in rows if not row["error"]}
    expected = built.score(built.load_images([new / name for name in known]))
    assert [*known.values()] == expected.tolist() == sorted(known.values(), reverse=True)
    flagged = {row["file"] for row in rows if row["flagged"] == "1"}
    assert flagged == {name for name, value in known.items() if value > built.threshold}
    assert {"line 2/headless, 0.jpg", "line 2/headless, 1.jpg"} <= flagged < {*known}
    copied = {str(path.relative_to("flagged")) for path in Path("flagged").rglob("*.*")}
    assert copied == flagged
    assert Path("flagged/line 2/headless, 1.jpg").read_bytes() == (new / "line 2/headless, 1.jpg").read_bytes()
    assert Image.open("scores.png").width > 800
    lines = out.splitlines()
    assert lines[2].split()[1:] == ["flagged", "line", "2/headless,", f"{rows[0]['file'][-5]}.jpg"]
    assert f"flagged: {len(flagged)} of 14 images, with a score above {built.threshold:.4g}" in lines


def test_scores_are_those_of_training_and_another_filter_changes_them(model: Path, screws: Path) -> None:
    """The same files by nearest neighbour: nearly every good screw is flagged, in place of a twentieth."""
    built = sweeper.load_model(model, alarm_rate=0.05)
    paths = sorted((screws / "test/good").iterdir())
    dataset, images = load_folder(screws, "", 24, 1), built.load_images(paths)
    assert torch.equal(images, dataset.test_images[dataset.test_labels == dataset.classes.index("good")])
    nearest = np.stack([np.asarray(Image.open(path).resize((24, 24), Image.Resampling.NEAREST)) for path in paths])
    flagged = [float((built.score(own) > built.threshold).float().mean()) for own in (images, nearest)]
    assert flagged[0] <= 0.25 and flagged[1] >= 0.9


def test_the_file_of_a_model_says_how_its_images_were_made(
    model: Path, new: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = class_folders.MADE["folder"]
    assert unpack_model(model.read_bytes()).inputs["made"] == made
    built = sweeper.load_model(model)
    with pytest.raises(
        ValueError, match=r"got \[2, 1, 48, 48\]; it was trained on each file upright, as a whole, .*: m"
    ):
        built.score(np.zeros((2, 1, 48, 48), np.float32))
    with pytest.raises(DataError, match=r"cut\.png cannot be decoded \(.*\); remove or replace it"):
        built.load_images([new / "0.png", new / "cut.png"])
    monkeypatch.setitem(class_folders.MADE, "folder", "each file by another filter")
    assert score.main([str(model), str(new)]) == 2
    law = "error: the model was trained on images made so: each file upright, as a whole, resized to a square by "
    assert capsys.readouterr().err.startswith(law)


def test_a_model_without_held_out_images_scores_and_flags_nothing(
    model: Path, new: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = sweeper.load_model(model)
    built.held_out = {}
    monkeypatch.setattr(score, "load_model", lambda *_, **__: built)
    assert score.main([str(model), str(new), "--score", "gaussian_z", "--csv", "all.csv"]) == 1
    assert "flagged: none, as the model has no threshold" in capsys.readouterr().out
    assert {row["flagged"] for row in rows_of(Path("all.csv"))} == {""}
    assert score.main([str(model), str(new), "--alarm-rate", "0.5"]) == 2
    assert "needs at least 1 held-out normal image, but there are none" in capsys.readouterr().err


@for_each(
    ("words", "law"),
    [
        (["{model}", "{new}/none"], "FOLDER must be a folder of image files, but "),
        (["{model}", "{empty}"], "FOLDER must have image files, but "),
        (["{new}/notes.txt", "{new}"], "a trial_id is required, or a file that ends in .safetensors, but got "),
        (["{model}", "{new}", "--flag-to", "{new}/flagged"], "--flag-to must be a folder outside of FOLDER, but "),
        (["{model}", "{new}", "--flag-to", "{new}/../{name}"], "--flag-to must be a folder outside of FOLDER, but "),
        (["{model}", "{new}", "--flag-to", "{new}/notes.txt"], "--flag-to must be a folder outside of FOLDER, but "),
        (["{model}", "{new}", "--csv", "none/all.csv"], "a file to write must be in a folder that exists, but got "),
        (["{model}", "{new}", "--score", "knn9_z"], "no score 'knn9_z'; there are: knn1_z, gaussian_z"),
        (["{model}", "{new}", "--alarm-rate", "0.001"], "a false-alarm rate of 0.001 needs at least 999 held-out "),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(
    model: Path, new: Path, folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], law: str
) -> None:
    (folder / "empty").mkdir(exist_ok=True)
    names = {"model": model, "new": new, "empty": folder / "empty", "name": new.name}
    assert score.main([word.format(**names) for word in words]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: {law}") and not (folder / "scores.png").exists()
