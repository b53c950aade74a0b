"""Trained models from the workers of a sweep to the store: which are kept, and that kills change nothing."""

import shlex
from pathlib import Path

import pandas as pd
import pytest

import sweeper.run as run
from sweeper.errors import StoreError
from sweeper.models import config_of, load_model
from sweeper.spec import registry
from sweeper.storage.files import Files
from sweeper.storage.load import load
from sweeper.storage.rows import PROVENANCE
from sweeper.storage.store import Store
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


def test_models_that_a_fresh_run_replaces_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path) == 0
    before = contents(tmp_path)
    capsys.readouterr()
    assert train(tmp_path, "--fresh", "--keep", "none") == 0 and not contents(tmp_path)
    restore = shlex.split(capsys.readouterr().out.split("python -m sweeper.run ")[1].splitlines()[0])
    assert run.main(restore) == 0 and contents(tmp_path) == before


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
    assert out.count("its models cannot be kept: store full: cannot write a model") == 2, "once a cohort"
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


def test_a_wrong_choice_is_one_line_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "--keep", "some") == 2
    assert capsys.readouterr().err == "error: no value of --keep 'some'; there are: best, all, none\n"
    assert not (tmp_path / "store").exists()
