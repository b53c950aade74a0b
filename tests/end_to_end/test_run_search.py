"""Searches through the command line: what they leave in the store, stopped and continued, begun with another's rows."""

import itertools
import signal
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage

from sweeper.storage.load import load_history
from sweeper.storage.store import Store
from tests.end_to_end.shared_ray import SharedRay
from tests.end_to_end.sweeps import VOLATILE, rows

pytestmark = pytest.mark.slow

NAME = "vje_search"
SMALL = ["--trials", "16", "--wave", "8", "--set", "epochs=40"]
"""Two waves, in cohorts of one width each, pruned at 10 and 20 epochs."""
FOLDER = "digits, epochs=40 wave=8"


@pytest.fixture(scope="module")
def undisturbed(shared_ray: SharedRay, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("undisturbed")
    outcome = shared_ray.run(store, *SMALL, name=NAME)
    assert outcome.status == 0, outcome
    assert "best trials by val_auroc_joint, and what they are worth on test images" in outcome.out, outcome
    assert "16 trials: " in outcome.out and "best val_auroc_joint 0." in outcome.out, outcome
    return store


def results(store: Path) -> pd.DataFrame:
    return rows(store, NAME).drop(columns=VOLATILE).sort_values("number").reset_index()


def test_every_trial_has_a_row_with_its_study_number_and_wave(undisturbed: Path) -> None:
    found = results(undisturbed)
    assert list(found["number"]) == list(range(16)) and list(found["wave"]) == [0] * 8 + [1] * 8
    assert set(found["study"]) == {"all"} and found["study_id"].nunique() == 1 and found["schedule"].isna().all()
    assert set(found["status"]) == {"finished", "pruned"}
    assert set(found["preset"]) == {"digits"} and set(found["changes"]) == {"epochs=40 wave=8"}


def test_who_was_pruned_was_beaten_at_that_rung_by_those_who_went_on(undisturbed: Path) -> None:
    """Said again from the history alone: within a cohort nobody who went on had less than one who did not."""
    found = rows(undisturbed, NAME)
    history = load_history(NAME, undisturbed)
    auroc = history[history["metric"] == "val_auroc_joint"].pivot(index="trial_id", columns="epoch", values="value")
    pruned = found[found["status"] == "pruned"]
    assert (
        set(pruned["epochs_run"]) <= {10, 20} and (found.loc[found["status"] == "finished", "epochs_run"] == 40).all()
    )
    for trial, row in pruned.iterrows():
        reached = auroc.loc[found.index[found["cohort"] == row["cohort"]], row["epochs_run"]]
        went_on = reached[found.loc[reached.index, "epochs_run"] > row["epochs_run"]]
        assert (went_on >= auroc.loc[trial, row["epochs_run"]]).all()
        assert (
            row["val_auroc_joint"] == auroc.loc[trial, row["epochs_run"]] and "was not among the best" in row["error"]
        )
        assert auroc.loc[trial].last_valid_index() == row["epochs_run"]
    best_first_rung = auroc[10].idxmax()
    assert found.loc[best_first_rung, "epochs_run"] > 10


def test_a_stopped_search_goes_on_is_made_longer_and_ends_as_one_that_was_neither(
    shared_ray: SharedRay, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, cohorts = Store.write, itertools.count(1)

    def interrupted(*words: Any) -> None:
        write(*words)
        if next(cohorts) == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "write", interrupted)
        outcome = shared_ray.run(tmp_path, "--trials", "12", *SMALL[2:], name=NAME)
    before = len(rows(tmp_path, NAME))
    assert outcome.status == 130 and 0 < before < 12, outcome
    outcome = shared_ray.run(tmp_path, *SMALL, name=NAME)
    assert outcome.status == 0 and f"{16 - before} of 16 trials to run" in outcome.out, outcome
    pd.testing.assert_frame_equal(results(tmp_path), results(undisturbed), check_exact=True)


def test_what_fails_for_good_never_stalls_a_search(shared_ray: SharedRay, tmp_path: Path) -> None:
    """It fails alone, whatever its cohort is compared with."""
    words = ["--trials", "8", "--wave", "4", "--set", "epochs=20", "--cohort", "2"]
    with shared_ray.poison_above(1.2):
        outcome = shared_ray.run(tmp_path, *words, "--retries", "0", name=NAME)
    found = results(tmp_path)
    assert outcome.status == 1 and len(found) == 8 and "failed for good: " in outcome.out, outcome
    failed = found["status"] == "failed"
    assert failed.equals(found["beta"] > 1.2) and failed.any(), found[["beta", "status", "error"]]
    assert found[failed]["auroc_joint"].isna().all() and found[failed]["error"].str.contains("a poisoned trial").all()


def test_optuna_reads_the_studys_journal(undisturbed: Path) -> None:
    storage = JournalStorage(JournalFileBackend(str(undisturbed / f"studies/{NAME}/{FOLDER}/journal.log")))
    study = optuna.load_study(study_name="all", storage=storage)
    states = {"finished": "COMPLETE", "pruned": "PRUNED"}
    found = results(undisturbed)
    assert [trial.state.name for trial in study.trials] == [states[status] for status in found["status"]]
    assert [trial.user_attrs["trial_id"] for trial in study.trials] == list(found["trial_id"])
    assert study.best_value == found.loc[found["status"] == "finished", "val_auroc_joint"].max()


def test_the_study_is_shown_beside_its_data(undisturbed: Path) -> None:
    folder = undisturbed / f"studies/{NAME}/{FOLDER}/all"
    there = {path.name for path in folder.iterdir()}
    assert {"trials.parquet", "front.parquet", "importance.parquet", "history.png", "parallel.png"} <= there
    best = pd.read_parquet(folder / "front.parquet")
    found = results(undisturbed).set_index("number")
    assert best["val_auroc_joint"].iloc[0] == found.loc[found["status"] == "finished", "val_auroc_joint"].max()
