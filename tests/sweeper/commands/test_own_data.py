"""Trials on a data set of the user's own: planned without training, identified by content, told by one line."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sweeper
from sweeper.commands import run
from tests.cases import for_each
from tests.fake_executor import without_ray
from tests.user_files import CELLS, forget_modules, user_folder
from trainables.data.datasets.own_data import forget_own_data

__all__ = ["user_folder"]

SWEEP = """
from sweeper import Grid, Heatmap, Metric, Sweep

KEYS = {"method": "simclr", "encoder": "convnet", "width": 4, "features": 8, "projector_width": 8, "projection": 4}
KEYS |= {"epochs": 1, "batch_size": 20, "lr": 0.01}
FIGURES = (Heatmap(Metric("loss", "minimize"), rows="lr", columns="tau"),)
SWEEP = Sweep(about="cells", presets={"all": Grid(KEYS, {"tau": (0.5,)})}, figures=FIGURES)
"""
OWN = ["my_sweep.py"]
CLASS = ["--set", "dataset=my_cells:Cells"]


@pytest.fixture(autouse=True)
def cells(user_folder: Path) -> Path:
    """The file of a data set."""
    forget_own_data()
    file = user_folder / "my_cells.py"
    file.write_text(CELLS)
    (user_folder / "my_sweep.py").write_text(SWEEP)
    return file


def _plan(store: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[dict[str, object], str]:
    assert run.main([*OWN, *more, "--store", str(store), "--plan", "--json"]) == 0
    out, err = capsys.readouterr()
    outline: dict[str, object] = json.loads(out)
    return outline, err


def test_a_plan_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outline, note = _plan(tmp_path, capsys, *CLASS)
    fixed = outline["fixed"]
    assert isinstance(fixed, dict) and (fixed["image_channels"], fixed["image_size"]) == (4, 12)
    assert len(fixed["image_digest"]) == 12 and outline["steps"] == [3] and outline["unsized"] == []
    assert note == (
        "note: dataset=my_cells:Cells: 60 training and 30 test images of 4x12x12, uint8, classes 0 round, 1 long, "
        "2 split, 10 groups\n"
    )


def test_it_is_described_by_its_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--describe", "my_cells:Cells"]) == 0
    described = capsys.readouterr().out
    assert described.startswith("my_cells:Cells: a data set of your own\n\n  Images of 12 x 12 pixels")
    assert described.endswith("--set dataset=my_cells:Cells\n")


def test_other_data_are_other_trials(cells: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digests = []
    for seed in (0, 17):  # of another length, so that a compiled module is not taken for it
        cells.write_text(CELLS.replace("default_rng(0", f"default_rng({seed}"))
        outline, _ = _plan(tmp_path, capsys, *CLASS)
        fixed = outline["fixed"]
        assert isinstance(fixed, dict)
        digests.append(fixed["image_digest"])
        forget_modules(cells.parent)
        forget_own_data()
    assert len({*digests}) == 2


@for_each(
    ("arguments", "law"),
    [
        (["--set", "dataset=my_cels:Cells"], "the data set my_cels:Cells cannot be imported: ModuleNotFoundError: "),
        (["--set", "dataset=my_cells:Cell"], "the data set my_cells:Cell cannot be imported: AttributeError: "),
        (
            ["--set", "dataset=cifar11"],
            "no dataset 'cifar11' (did you mean 'cifar10'?); --describe datasets lists all;",
        ),
        (["--axis", "dataset=digits,my_cells:Cells"], "dataset=my_cells:Cells must be set for all trials, but is one"),
        ([*CLASS, "--set", "image_size=24"], "image_channels, image_size and image_width must match the images"),
        ([*CLASS, "--set", "greyscale=0.2"], "greyscale needs images of 1 or 3 channels, but those of my_cells:Cells"),
        ([*CLASS, "--set", "knn=61"], "knn must not exceed the 60 labelled training images of my_cells:Cells, but got"),
        (["--set", "dataset=arrays", "--data", "."], "dataset=arrays needs train_images.npy and test_images.npy in "),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], law: str
) -> None:
    assert run.main([*OWN, *arguments, "--store", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {law}") and error.count("\n") == 1


def test_images_without_labels_need_what_needs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split, count in (("train", 30), ("test", 20)):
        np.save(f"{split}_images.npy", np.random.default_rng(count).random((count, 9, 10)).astype(np.float32))
    arrays = [*OWN, "--set", "dataset=arrays", "--data", ".", "--store", str(tmp_path), "--plan"]
    assert run.main([*arrays, "--set", "knn=5"]) == 2
    law = "error: knn needs labels, but the images of arrays have none; got knn=5\n"
    assert capsys.readouterr().err == law
    assert run.main([*arrays, "--set", "validation=0.2"]) == 0
    out, err = capsys.readouterr()
    assert "image_width=10" in out and err == (
        "note: dataset=arrays: 30 training and 20 test images of 1x9x10, floats, no labels\n"
    )


@pytest.mark.slow
def test_a_class_of_own_images_is_trained_and_its_model_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    arguments = [*OWN, *CLASS, "--set", "validation=0.2", "--set", "knn=5", "--keep", "all", "--store", str(store)]
    with without_ray(tmp_path):
        assert run.main(arguments) == 0
        assert "1 finished of 1 trials" in capsys.readouterr().out
        assert run.main(arguments) == 0
    (row,) = pd.read_parquet(store / "trials/sweep=my_sweep").to_dict("records")
    assert row["dataset"] == "my_cells:Cells" and row["image_channels"] == 4 and row["knn_z"] > 0.6
    model = sweeper.load_model(store, row["trial_id"])
    assert model.classes == ("round", "long", "split")
    assert len(model.embed(np.zeros((3, 12, 12, 4), dtype=np.uint8))["z"]) == 3
