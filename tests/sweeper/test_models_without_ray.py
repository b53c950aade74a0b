"""Trained models from the workers of a sweep to the store: which are kept, and that kills change nothing."""

import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeper.commands import restore, run
from sweeper.definition import registry
from sweeper.errors import SpecError, StoreError
from sweeper.models import config_of, load_model
from sweeper.storage.files import Files
from sweeper.storage.load import load, load_history
from sweeper.storage.rows import PROVENANCE
from sweeper.storage.store import Store
from sweeper.storage.worker_files import ModelStorage
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import TINY
from trainables.worker.messages import CohortTask

pytestmark = pytest.mark.usefixtures("unreported")


@pytest.fixture(autouse=True)
def sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find", lambda name: TINY)


class Killed(BaseException):
    """Ends the driver as kill -9 does: nothing is cleaned up."""


def train(folder: Path, *words: str, store: str = "store", kill_at: int | None = None) -> int:
    """Run the sweep's two cohorts. `kill_at`: index of the cohort before which the driver is killed."""
    attempts = 0

    def before(task: CohortTask) -> None:
        nonlocal attempts
        attempts += 1
        if attempts - 1 == kill_at:
            raise Killed

    with without_ray(folder, before):
        return run.main(["tiny", "--store", str(folder / store), "--cohort", "2", *words])


def contents(folder: Path, store: str = "store") -> dict[str, bytes]:
    """Id of a trial -> its model."""
    return {path.stem: path.read_bytes() for path in (folder / store / "models/sweep=tiny").glob("*")}


def best_of_rows(rows: pd.DataFrame) -> set[str]:
    """The best trial of each row of the table, chosen on validation images."""
    return set(rows.loc[rows.groupby("beta")["val_auroc_joint"].idxmax(), "trial_id"])


@pytest.mark.slow
def test_the_best_of_each_cell_stay_and_a_killed_sweep_that_continues_has_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(tmp_path) == 0
    whole, rows = contents(tmp_path), load("tiny", tmp_path / "store")
    assert len(rows) == 4 and whole.keys() == best_of_rows(rows) and len(whole) == 2
    assert f"models: {tmp_path}/store/models/sweep=tiny (of 2 trials)\n" in capsys.readouterr().out
    with pytest.raises(Killed):
        train(tmp_path, store="killed", kill_at=1)
    assert len(contents(tmp_path, "killed")) == 2

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Store, "write", kill)
        train(tmp_path, store="killed")
    assert whole.keys() <= contents(tmp_path, "killed").keys(), "rows are written after models"
    assert train(tmp_path, store="killed") == 0 and contents(tmp_path, "killed") == whole


def test_all_are_kept_on_request_also_by_a_later_run_that_keeps_the_best(tmp_path: Path) -> None:
    assert train(tmp_path, "--keep", "all", "--axis", "seed=0") == 0
    first = contents(tmp_path)
    assert len(first) == 2
    assert train(tmp_path) == 0
    assert contents(tmp_path).keys() == first.keys() | best_of_rows(load("tiny", tmp_path / "store"))


@pytest.mark.slow
def test_none_are_kept_on_request_and_a_trial_is_then_trained_again_alone(tmp_path: Path) -> None:
    assert train(tmp_path, "--keep", "none") == 0 and not contents(tmp_path)
    assert train(tmp_path, "--keep", "all", store="all") == 0
    row, lines = load("tiny", tmp_path / "store").iloc[1], list[str]()
    again, kept = (load_model(tmp_path / store, row["trial_id"], log=lines.append) for store in ("store", "all"))
    assert lines == [f"trial {row['trial_id']} has no model in the store; training it again alone, 1 epochs"]
    assert again.config == kept.config == config_of(row) and again.config.flat()["beta"] == row["beta"]
    parameters = dict(kept.named_parameters())
    assert parameters
    for name, parameter in again.named_parameters():
        assert (parameter - parameters[name]).abs().max() < 1e-5, name


@pytest.mark.slow
def test_models_that_a_fresh_run_replaces_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    epochs = ("--set", "epochs=2")
    assert train(tmp_path, *epochs) == 0
    before = contents(tmp_path)
    capsys.readouterr()
    assert train(tmp_path, "--fresh", "--keep", "none", *epochs) == 0 and not contents(tmp_path)
    words = shlex.split(capsys.readouterr().out.split("sweeper restore ")[1].splitlines()[0])
    assert restore.main(words) == 0 and len(before) == 2 and contents(tmp_path) == before


@pytest.mark.slow
def test_a_model_that_cannot_be_written_costs_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = Files.write

    def refuse(files: Files, path: str, data: bytes) -> None:
        if path.startswith("models/sweep="):
            raise StoreError("store full: cannot write a model")
        write(files, path, data)

    with monkeypatch.context() as full:
        full.setattr(Files, "write", refuse)
        assert train(tmp_path) == 1 and not contents(tmp_path)
    out, error = capsys.readouterr()
    assert out.count("its models cannot be stored: store full: cannot write a model") == 2, "once a cohort"
    assert error == (
        "error: 2 models could not be written, and are missing; the same command trains these trials again and writes "
        "them\n"
    )
    rows = load("tiny", tmp_path / "store")
    assert train(tmp_path, "--keep", "none") == 0, "which asks for no models"
    assert "to run" not in capsys.readouterr().out
    assert train(tmp_path) == 0 and len(contents(tmp_path)) == 2
    assert "2 trials have a row, but their model could not be written" in capsys.readouterr().err
    assert train(tmp_path) == 0
    assert "to run" not in capsys.readouterr().out
    volatile = [*PROVENANCE, "sweep"]
    again = load("tiny", tmp_path / "store")
    pd.testing.assert_frame_equal(rows.drop(columns=volatile), again.drop(columns=volatile), check_like=True)


EPOCHS = ("--set", "epochs=4", "--set", "lr=0.3", "--save-every", "0")
"""With them trials are best in different epochs, and there is a checkpoint after each step."""


@pytest.mark.slow
def test_models_of_best_epochs_are_the_same_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = ("--keep", "all,best-epoch", *EPOCHS)
    assert train(tmp_path, *keep) == 0
    rows, history = load("tiny", tmp_path / "store"), load_history("tiny", tmp_path / "store")
    whole = contents(tmp_path)
    assert whole.keys() == set(rows["trial_id"])
    values = history[history["metric"] == "val_auroc_joint"].sort_values(["value", "epoch"], ascending=[False, True])
    best = values.drop_duplicates("trial_id").set_index("trial_id")["epoch"].to_dict()
    assert len({*best.values()}) > 1
    for trial, epoch in best.items():
        assert load_model(tmp_path / "store", trial).epoch == epoch
    write, written = ModelStorage.write, list[str]()

    def killed(storage: ModelStorage, trial: str, data: bytes, **options: Any) -> None:
        write(storage, trial, data, **options)
        written.append(trial)
        if len(written) == 3:  # the first cohort has 2 models: the second is killed at its first
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ModelStorage, "write", killed)
        train(tmp_path, *keep, store="killed")
    assert train(tmp_path, *keep, store="killed") == 0 and contents(tmp_path, "killed") == whole


@pytest.mark.slow
def test_the_model_of_an_epoch_that_was_not_kept_is_trained_again(tmp_path: Path) -> None:
    assert train(tmp_path, *EPOCHS[:2]) == 0
    store, trial, lines = tmp_path / "store", min(contents(tmp_path)), list[str]()
    assert load_model(store, trial, epoch=4, log=lines.append).epoch == 4 and not lines
    assert load_model(store, trial, epoch=3, log=lines.append).epoch == 3
    assert lines == [f"trial {trial} has no model of epoch 3 in the store; training it again alone, 3 epochs"]
    with pytest.raises(SpecError, match=rf"trial {trial} has epochs 1 to 4, but got epoch=5"):
        load_model(store, trial, epoch=5)


@pytest.mark.slow
def test_trials_of_a_grid_end_early_by_the_metric_that_ranks_them_and_load_as_they_ended(tmp_path: Path) -> None:
    words = ("--axis", "patience=0,1", "--axis", "seed=0", "--set", "epochs=6", "--set", "lr=0.3", "--keep", "all")
    assert train(tmp_path, *words) == 0
    rows, store = load("tiny", tmp_path / "store"), tmp_path / "store"
    assert set(rows["status"]) == {"finished"} and set(rows["patience_metric"]) == {"val_auroc_joint"}
    reached = rows.fillna({"patience": 0}).groupby("patience")["epochs_run"].agg(set)
    assert reached[0] == {6} and min(reached[1]) < 6
    assert rows["auroc_joint"].notna().all() and len(contents(tmp_path)) == 4
    early = rows.loc[rows["epochs_run"].idxmin()]
    assert load_model(store, early["trial_id"]).epoch == early["epochs_run"]
    (store / "models/sweep=tiny" / f"{early['trial_id']}.safetensors").unlink()
    again = load_model(store, early["trial_id"], log=lambda line: None)
    assert again.epoch == early["epochs_run"]
    assert [path.stem for path in (store / "requests/tiny").iterdir()] == [
        "digits, epochs=6 lr=0.3 patience=0,1 patience_metric=val_auroc_joint"
    ]


def test_a_wrong_choice_is_one_line_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    law = "--keep best-epoch ranks the epochs of a trial by val_auroc_joint"
    for words, line in {
        ("some",): "no value of --keep 'some'; there are: best, all, none, best-epoch",
        ("every=5",): "--keep every=N is gone, but got every=5; sweeper.load_model(..., epoch=N) trains a trial "
        "again up to an epoch",
        ("all,best",): "--keep takes best, all or none, and best-epoch, each at most once, but got all,best",
        ("best-epoch,best-epoch",): "--keep takes best, all or none, and best-epoch, each at most once, but got "
        "best-epoch,best-epoch",
        ("none,best-epoch",): "--keep none keeps the models of no trials, so it takes no best-epoch, but got "
        "none,best-epoch",
        ("best-epoch", *EPOCHS, "--set", "validation=0"): f"{law}, but no validation images are held out; add --set "
        "validation=0.2",
        ("best-epoch", *EPOCHS, "--set", "report_every=9"): f"{law}, so `report_every < epochs` must hold, but got "
        "report_every=9, epochs=4; add --set report_every=1",
    }.items():
        assert train(tmp_path, "--keep", *words) == 2, words
        assert capsys.readouterr().err == f"error: {line}\n"
    assert not (tmp_path / "store").exists()
