"""`sweeper evaluate`: the kept models of a sweep on other data."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

import sweeper
from sweeper.commands import conclusion, evaluate
from sweeper.definition import Grid, Metric, Sweep, Table, Value
from sweeper.report import publish
from sweeper.storage.evaluations import remove_evaluations
from sweeper.storage.files import Files
from sweeper.storage.inventory import inventory_of
from sweeper.storage.load import load
from sweeper.storage.removal import plan_removal, remove
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import TINY
from tests.user_files import CELLS, user_folder

__all__ = ["user_folder"]

KEYS: dict[str, Value] = {
    "method": "random", "dataset": "digits", "epochs": 0, "knn": 1, "encoder": "mlp", "width": 16, "features": 8,
}  # fmt: skip
SWEEP = Sweep(
    "three seeds of one setting",
    {"digits": Grid(KEYS, {"seed": (0, 1, 2)})},
    figures=(Table("knn", ("seed",), (Metric("knn_z", "maximize"),)),),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models of representations, a trial whose model is not kept, and four models of one class."""
    folder = tmp_path_factory.mktemp("evaluate")
    with without_ray(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish, "write", lambda *_, **__: "")
        patch.setattr(conclusion, "write_claims", lambda *_: None)
        sweeper.run(SWEEP, name="knn", store=folder / "store", cohort=2, keep="all")
        sweeper.run(TINY, name="tiny", store=folder / "store", cohort=2, keep="all")
        sweeper.run(SWEEP, name="none", store=folder / "store", axis={"seed": [0]}, cohort=1, keep="none")
    return folder / "store"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A folder of arrays: digits in another order, darker, in six classes."""
    rng, (images, labels) = np.random.default_rng(0), load_digits(return_X_y=True)
    order = rng.permutation(np.flatnonzero(labels < 6))[:500]
    images = (0.7 * images[order].reshape(-1, 8, 8) / 16).astype(np.float32)
    folder = tmp_path / "other"
    folder.mkdir()
    for split, part in {"train": slice(0, 300), "test": slice(300, None)}.items():
        np.save(folder / f"{split}_images.npy", images[part])
        np.save(folder / f"{split}_labels.npy", labels[order][part])
    return folder


def knn(model: object, folder: Path) -> float:
    """The share of test images whose nearest neighbour, by cosine, has their class: by scikit-learn."""
    images, labels = (
        {split: np.load(folder / f"{split}_{what}.npy") for split in ("train", "test")} for what in ("images", "labels")
    )
    z = {split: model.embed(images[split])["z"].numpy() for split in images}  # type: ignore[attr-defined]
    return float(
        KNeighborsClassifier(1, metric="cosine").fit(z["train"], labels["train"]).score(z["test"], labels["test"])
    )


@pytest.mark.slow
def test_models_are_evaluated_as_scikit_learn_judges_their_representations_and_once(
    store: Path, other: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(other.parent)
    before = load("knn", store)
    trials = sorted(before["trial_id"])
    words = ["knn", "--store", str(store), "--dataset", "arrays", "--data", str(other)]
    assert evaluate.main([*words, "--trial", trials[1]]) == 0
    assert "1 trials, 1 of them evaluated now" in capsys.readouterr().out
    assert evaluate.main(words) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    (path,) = (store / "evaluations/sweep=knn").iterdir()
    assert last == f"{path}: 3 trials, 2 of them evaluated now" and path.name.startswith("arrays-")
    rows = pd.read_parquet(store / "evaluations/sweep=knn").set_index("trial_id")
    assert list(rows.index) == trials and set(rows["dataset"]) == {"arrays"}
    original = before.set_index("trial_id")["knn_z"]
    for trial, line in zip(trials, lines[2:], strict=True):
        model = sweeper.load_model(store, trial, sweep="knn")
        assert rows["knn_z"][trial] == pytest.approx(knn(model, other)) != original[trial]
        assert line.split() == [trial, f"{original[trial]:.4g}", f"{rows['knn_z'][trial]:.4g}"]
    pd.testing.assert_frame_equal(load("knn", store), before)
    written = path.read_bytes()
    assert evaluate.main(words) == 0 and "3 trials, 0 of them" in capsys.readouterr().out
    assert evaluate.main([*words, "--fresh"]) == 0 and "3 trials, 3 of them" in capsys.readouterr().out
    assert path.read_bytes() == written, "the same models on the same data have the same values"


def test_the_training_data_give_the_values_of_the_rows_and_a_removed_sweep_leaves_nothing(
    store: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(store, tmp_path / "copy", ignore=shutil.ignore_patterns("evaluations"))
    words = ["--store", str(copy)]
    for name, metric in (("knn", "knn_z"), ("tiny", "auroc_joint")):
        assert evaluate.main([name, "--dataset", "digits", *words]) == 0
        both = load(name, copy).merge(pd.read_parquet(copy / f"evaluations/sweep={name}"), on="trial_id")
        assert both[f"{metric}_x"].tolist() == pytest.approx(both[f"{metric}_y"].tolist(), abs=1e-6)
    assert evaluate.main(["knn", "--dataset", "arrays", "--data", str(other), *words]) == 0
    rows = pd.read_parquet(copy / "evaluations/sweep=knn")
    assert len(rows) == 6 and rows["knn_z"].notna().all(), "a reader of all data sets finds the metrics of each"
    files = Files(copy)
    assert sum(inventory_of(files, "knn").sizes["evaluations"].values()) > 0
    remove_evaluations(files, "knn", [*rows["trial_id"][:1]])
    assert len(pd.read_parquet(copy / "evaluations/sweep=knn")) == 4
    remove(files, plan_removal(files, "knn"))
    assert files.list("evaluations") == ["sweep=tiny"]


def test_what_cannot_be_evaluated_is_said_in_one_line(
    store: Path, other: Path, user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (user_folder / "my_data.py").write_text(CELLS)
    unlabelled = shutil.copytree(other, other.parent / "unlabelled")
    for split in ("train", "test"):
        (unlabelled / f"{split}_labels.npy").unlink()
    arrays = ["--dataset", "arrays", "--data"]
    for words, line in {
        ("none", "--dataset", "digits"): "no model of sweep 'none' is kept in .*; its run with --keep all --fresh ",
        ("knn", "--dataset", "digit"): r"no dataset 'digit' \(did you mean .digits",
        ("knn", "--dataset", "digits", "--metric", "knn_y"): "no metric 'knn_y'",
        ("knn", "--dataset", "digits", "--trial", "x"): "no trial with a model 'x'",
        ("knn", "--dataset", "my_data:Cells"): "the model's images, 1 x 8 x 8, but have 4 x 12 x 12",
        ("knn", *arrays, str(unlabelled)): "knn needs labels, but the images of arrays have none",
        (
            "tiny",
            *arrays,
            str(other),
        ): "normal_class=0 refers to the 10 classes on which the model was trained, .* has 6$",
    }.items():
        assert evaluate.main([*words, "--store", str(store)]) == 2, words
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("error: ") and re.search(line, error), error
