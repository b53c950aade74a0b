from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweeper.report.reruns import run_differences
from sweeper.storage.archive import TrialSelection, archive
from sweeper.storage.load import load_runs
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, row


def test_two_runs_of_a_trial_differ_in_their_circumstances_and_perhaps_in_results(tmp_path: Path) -> None:
    store = Store(tmp_path)
    late = datetime(2026, 2, 1, tzinfo=UTC)
    store.write("grid", "c0", [row("a", torch="2.11.0", host="x"), row("b")], COLUMNS)
    assert archive(store.files, "grid", TrialSelection(["a"]), COLUMNS)
    store.write("grid", "c1", [row("a", torch="2.15.0", host="x", auroc=0.8, ended=late)], COLUMNS)
    runs = load_runs("grid", tmp_path)
    assert runs["trial_id"].tolist() == ["a", "a", "b"] and (runs["replaced"] == "").tolist() == [False, True, True]
    first, second, _ = runs.to_dict("records")
    found = {found.column: found for found in run_differences(first, second)}
    assert list(found) == ["torch", "ended", "replaced", "auroc"]
    assert (found["torch"].first, found["torch"].second) == ("2.11.0", "2.15.0")
    assert [found[name].kind for name in ("torch", "auroc")] == ["circumstance", "result"]
    assert run_differences(first, first) == [], "nulls are equal"


def test_a_column_that_one_run_lacks_is_null_there() -> None:
    (found,) = run_differences({"trial_id": "a"}, {"trial_id": "a", "driver": "550.54"})
    assert (found.first, found.second) == (None, "550.54")


def test_runs_of_two_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="of one trial, but got 'a' and 'b'"):
        run_differences({"trial_id": "a"}, {"trial_id": "b"})
