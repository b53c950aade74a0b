"""Searches through the command line: what they leave in the store, and that a stopped search continues."""

import contextlib
import io
import itertools
import re
from pathlib import Path

import optuna
import pandas as pd
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage

from sweeper.commands.run import main
from sweeper.storage.load import load_history
from tests.end_to_end.sweeps import VOLATILE, rows
from tests.fake_executor import without_ray
from trainables.worker.messages import CohortTask

pytestmark = pytest.mark.slow

NAME = "vje_search"
SMALL = ["--trials", "16", "--wave", "8", "--set", "epochs=40", "--cohort", "4"]
"""Two waves, in cohorts of one width and up to four trials each, pruned at 10 and 20 epochs."""
FOLDER = "digits, epochs=40 wave=8"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store, printed = tmp_path_factory.mktemp("undisturbed"), io.StringIO()
    with without_ray(tmp_path_factory.mktemp("scratch")), contextlib.redirect_stdout(printed):
        assert main([NAME, "--preset", "digits", "--store", str(store), *SMALL]) == 0
    out = printed.getvalue()
    best = r"best auroc_joint: 0\.\d+ at \S*beta=\S+ .*\(trial \d+\); chosen on validation images \(val_auroc_joint 0\."
    assert "16 trials: " in (store / "tables" / NAME / FOLDER / "end.txt").read_text() and re.search(best, out), out
    return store


def results(store: Path) -> pd.DataFrame:
    return rows(store, NAME).drop(columns=VOLATILE).sort_values("number").reset_index()


def test_every_trial_has_a_row_with_its_study_number_and_wave(undisturbed: Path) -> None:
    frame = results(undisturbed)
    assert list(frame["number"]) == list(range(16)) and list(frame["wave"]) == [0] * 8 + [1] * 8
    assert set(frame["study"]) == {"all"} and frame["study_id"].nunique() == 1 and frame["schedule"].isna().all()
    assert set(frame["status"]) == {"finished", "pruned"}
    assert set(frame["preset"]) == {"digits"} and set(frame["changes"]) == {"epochs=40 wave=8"}


def test_a_pruned_trial_was_beaten_at_its_rung_by_those_that_went_on(undisturbed: Path) -> None:
    """Checked from the history alone: within a cohort, no trial that went on had a lower value than a pruned one."""
    frame = rows(undisturbed, NAME)
    history = load_history(NAME, undisturbed)
    auroc = history[history["metric"] == "val_auroc_joint"].pivot(index="trial_id", columns="epoch", values="value")
    pruned = frame[frame["status"] == "pruned"]
    assert (
        set(pruned["epochs_run"]) <= {10, 20} and (frame.loc[frame["status"] == "finished", "epochs_run"] == 40).all()
    )
    for trial, row in pruned.iterrows():
        reached = auroc.loc[frame.index[frame["cohort"] == row["cohort"]], row["epochs_run"]]
        went_on = reached[frame.loc[reached.index, "epochs_run"] > row["epochs_run"]]
        assert (went_on >= auroc.loc[trial, row["epochs_run"]]).all()
        assert (
            row["val_auroc_joint"] == auroc.loc[trial, row["epochs_run"]] and "was not among the best" in row["error"]
        )
        assert auroc.loc[trial].last_valid_index() == row["epochs_run"]
    best_first_rung = auroc[10].idxmax()
    assert frame.loc[best_first_rung, "epochs_run"] > 10


@pytest.mark.usefixtures("unreported")
def test_a_search_that_is_stopped_and_made_longer_ends_as_an_undisturbed_one(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts = itertools.count(1)

    def interrupt(task: CohortTask) -> None:
        if next(attempts) == 2:
            raise KeyboardInterrupt

    store = tmp_path / "store"
    command = [NAME, "--preset", "digits", "--store", str(store), *SMALL]
    with without_ray(tmp_path, interrupt):
        assert main([*command, "--trials", "12"]) == 130
    row_count = len(rows(store, NAME))
    assert 0 < row_count < 12
    with without_ray(tmp_path):
        assert main(command) == 0
    assert f"{16 - row_count} of 16 trials to run" in capsys.readouterr().out
    pd.testing.assert_frame_equal(results(store), results(undisturbed), check_exact=True)


@pytest.mark.usefixtures("unreported")
def test_a_trial_that_fails_for_good_does_not_stall_a_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It fails alone, whichever cohort it is compared with."""

    def fail(task: CohortTask) -> None:
        if any(float(str(config.flat()["beta"])) > 1.2 for config in task.spec.configs()):
            raise RuntimeError("a poisoned trial")

    store = tmp_path / "store"
    arguments = ["--trials", "8", "--wave", "4", "--set", "epochs=20", "--cohort", "2", "--retries", "0"]
    with without_ray(tmp_path, fail):
        assert main([NAME, "--preset", "digits", "--store", str(store), *arguments]) == 1
    assert "failed for good: " in capsys.readouterr().out
    frame = results(store)
    failed = frame["status"] == "failed"
    assert len(frame) == 8 and failed.equals(frame["beta"] > 1.2) and failed.any(), frame[["beta", "status", "error"]]
    assert frame[failed]["auroc_joint"].isna().all() and frame[failed]["error"].str.contains("a poisoned trial").all()


def test_optuna_reads_the_journal_of_the_study(undisturbed: Path) -> None:
    storage = JournalStorage(JournalFileBackend(str(undisturbed / f"studies/{NAME}/{FOLDER}/journal.log")))
    study = optuna.load_study(study_name="all", storage=storage)
    states = {"finished": "COMPLETE", "pruned": "PRUNED"}
    frame = results(undisturbed)
    assert [trial.state.name for trial in study.trials] == [states[status] for status in frame["status"]]
    assert [trial.user_attrs["trial_id"] for trial in study.trials] == list(frame["trial_id"])
    assert study.best_value == frame.loc[frame["status"] == "finished", "val_auroc_joint"].max()


def test_the_study_is_shown_beside_its_data(undisturbed: Path) -> None:
    folder = undisturbed / f"studies/{NAME}/{FOLDER}/all"
    names = {path.name for path in folder.iterdir()}
    assert {"trials.parquet", "front.parquet", "importance.parquet", "history.png", "parallel.png"} <= names
    best = pd.read_parquet(folder / "front.parquet")
    frame = results(undisturbed).set_index("number")
    assert best["val_auroc_joint"].iloc[0] == frame.loc[frame["status"] == "finished", "val_auroc_joint"].max()
