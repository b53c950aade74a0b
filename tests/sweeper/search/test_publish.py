"""How a search ends, computed from its rows alone."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweeper.cli.conclusion import finish
from sweeper.search.search_plan import SearchPlan
from sweeper.spec import Metric, Sweep
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.search.toy_waves import recorded, study, study_run

FACTS = {"study": str, "study_id": str, "number": int, "wave": int}
COLUMNS = Columns({"method": str, "seed": int, "x": float, "width": int, **FACTS}, ("auroc",))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIXED: dict[str, Any] = {"cohort": "c", "cohort_size": 8, "epochs_run": 1, "started": NOW, "ended": NOW}


@pytest.mark.parametrize(("statuses", "status"), [(["diverged"] * 8, 1), (["diverged"] * 7 + ["finished"], 0)])
def test_a_search_all_of_whose_trials_diverged_says_so_and_ends_with_status_1(
    statuses: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_study = study(trials=8, wave=8)
    trials = study_run(small_study).trials
    known_trials = [recorded([trial], small_study, state) for trial, state in zip(trials, statuses, strict=True)]
    ended = study_run(
        small_study,
        {number: trial for trials_by_number in known_trials for number, trial in trials_by_number.items()},
    )
    store = Store(tmp_path)
    rows = [
        {"trial_id": trial.id, **trial.config, **trial.facts, "status": state, "auroc": 0.5, **FIXED}
        for trial, state in zip(trials, statuses, strict=True)
    ]
    store.prepare("lost", COLUMNS)
    store.write("lost", "c", rows, COLUMNS)
    sweep = Sweep("about", {"digits": small_study.search})
    plan = SearchPlan("lost", "digits", sweep, small_study.search, [ended])
    assert plan.trials_left == 0 and finish(plan, store, COLUMNS) == status
    out, err = capsys.readouterr()
    if status:
        assert "lost (digits), 8 trials: 8 diverged\nall 8 trials diverged, so none is best\n" in out
        assert err == "error: all trials of lost diverged in study all, so there is no best trial\n"
    else:
        assert "best auroc" in out and "1 complete, 7 diverged" in out and err == ""


def test_chosen_trials_have_the_name_of_their_study_in_this_plan_and_not_of_the_one_that_trained_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    definition = replace(study(trials=4, wave=4, metric=Metric("val_auroc", "maximize")), name="3")
    trials = study_run(definition).trials
    store, columns = Store(tmp_path), replace(COLUMNS, metrics=("auroc", "val_auroc"))
    rows = [
        {"trial_id": trial.id, **trial.config, **trial.facts, "study": "all", "status": "finished", **FIXED}
        | {"auroc": 0.5, "val_auroc": trial.config["x"]}
        for trial in trials
    ]
    store.prepare("again", columns)
    store.write("again", "c", rows, columns)
    sweep = Sweep("about", {"digits": definition.search})
    ended = study_run(definition, recorded(trials, definition))
    finish(SearchPlan("again", "digits", sweep, definition.search, [ended]), store, columns)
    table = capsys.readouterr().out.splitlines()
    assert table[0].startswith("best auroc: 0.500 at x=") and table[0].endswith("(trial 3); chosen by val_auroc")
    assert not any("study all" in line for line in table)
