from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweeper.report import reruns as module
from sweeper.report.reruns import reruns, run_differences
from sweeper.storage.archive import TrialSelection, archive
from sweeper.storage.load import load, load_runs
from sweeper.storage.store import Store
from tests.sweeper.report.page import stored
from tests.sweeper.report.page.stored import NAME, fill
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


TIMES = ("20260101T000000.000000Z", "20260102T000000.000000Z")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store whose trials were trained twice before, with other losses."""
    store = fill(tmp_path)
    rows = [row | {"width": None} for row in load(NAME, store.files).drop(columns="sweep").to_dict("records")]
    for loss, time in enumerate(TIMES):
        other = Store(tmp_path / "other")
        other.prepare(NAME, stored.COLUMNS)
        other.write(NAME, "c0", [row | {"loss": float(loss), "error": None} for row in rows], stored.COLUMNS)
        data = other.files.read(f"trials/sweep={NAME}/c0.parquet")
        store.files.write(f"_replaced/{time}/trials/sweep={NAME}/c0.parquet", data or b"")
    return store


def test_what_differs_from_earlier_runs(store: Store) -> None:
    rows = load(NAME, store.files)
    found = reruns(store.files, NAME, rows)
    first = [run for run in found.runs if run["trial_id"] == "trial00000"]
    assert [run["replaced"] for run in first] == [*reversed(TIMES)] and found.notes == []
    assert [run["then"][run["columns"].index("loss")] for run in first] == [1.0, 0.0]
    assert {run["now"][run["columns"].index("loss")] for run in first} == {rows["loss"][0]}
    assert reruns(store.files, NAME, rows[:0]).runs == []


def test_earlier_archives_are_left_out_and_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RUNS", 5)
    store.files.write(f"_replaced/{TIMES[0]}/trials/sweep={NAME}/c0.parquet", b"not read")
    found = reruns(store.files, NAME, load(NAME, store.files))
    assert [run["replaced"] for run in found.runs] == [TIMES[1]] * 5
    place = store.files.display_uri_of("_replaced")
    assert found.notes == [
        f"To keep this page small, it shows the 5 latest of the earlier runs of trials; all are in {place}."
    ]


def test_damaged_archives_are_said(store: Store) -> None:
    store.files.write(f"_replaced/{TIMES[0]}/trials/sweep={NAME}/c0.parquet", b"damaged")
    found = reruns(store.files, NAME, load(NAME, store.files))
    assert len(found.runs) == 18 and len(found.notes) == 1 and TIMES[0] in found.notes[0]
