"""Searches through the command line: what they leave in the store, stopped and continued, begun with another's rows."""

import itertools
from pathlib import Path

import optuna
import pandas as pd
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage

from sweeper.run import main
from sweeper.storage.load import load_history
from tests.end_to_end.shared_ray import SharedRay
from tests.end_to_end.sweeps import VOLATILE, rows
from tests.fake_executor import without_ray
from trainables.worker.messages import CohortTask

pytestmark = pytest.mark.slow

NAME = "vje_search"
SMALL = ["--trials", "16", "--wave", "8", "--set", "epochs=40", "--cohort", "4"]
"""Two waves, in cohorts of one width and up to four trials each, pruned at 10 and 20 epochs."""
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
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And as one that Ray has run."""
    attempts = itertools.count(1)

    def interrupt(task: CohortTask) -> None:
        if next(attempts) == 2:
            raise KeyboardInterrupt

    store = tmp_path / "store"
    command = [NAME, "--preset", "digits", "--store", str(store), *SMALL]
    with without_ray(tmp_path, interrupt):
        assert main([*command, "--trials", "12"]) == 130
    before = len(rows(store, NAME))
    assert 0 < before < 12
    with without_ray(tmp_path):
        assert main(command) == 0
    assert f"{16 - before} of 16 trials to run" in capsys.readouterr().out
    pd.testing.assert_frame_equal(results(store), results(undisturbed), check_exact=True)


def test_what_fails_for_good_never_stalls_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It fails alone, whatever its cohort is compared with."""

    def fail(task: CohortTask) -> None:
        if any(float(str(config.flat()["beta"])) > 1.2 for config in task.spec.configs()):
            raise RuntimeError("a poisoned trial")

    store = tmp_path / "store"
    words = ["--trials", "8", "--wave", "4", "--set", "epochs=20", "--cohort", "2", "--retries", "0"]
    with without_ray(tmp_path, fail):
        assert main([NAME, "--preset", "digits", "--store", str(store), *words]) == 1
    assert "failed for good: " in capsys.readouterr().out
    found = results(store)
    failed = found["status"] == "failed"
    assert len(found) == 8 and failed.equals(found["beta"] > 1.2) and failed.any(), found[["beta", "status", "error"]]
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
