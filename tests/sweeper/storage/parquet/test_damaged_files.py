"""Damaged files are moved to `_damaged`, and trials whose results were only in them are to be trained again."""

from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import DamagedFiles, StoreError
from sweeper.search.study_run import warm_start_from_rows
from sweeper.storage import parquet_files
from sweeper.storage.files import Files
from sweeper.storage.load import load, load_history
from sweeper.storage.parquet_files import quarantine, quarantining, table_to_parquet
from sweeper.storage.retry import NO_RETRIES
from sweeper.storage.rows import table_of
from sweeper.storage.store import Store
from tests.sweeper.storage.damage import DAMAGES, flipped
from tests.sweeper.storage.rows import COLUMNS, row

KINDS = ("trials", "history")


class Harness:
    """A store with two trials in two cohorts. `log` has the lines that it printed."""

    def __init__(self, folder: Path) -> None:
        self.log: list[str] = []
        self.store = Store(Files(folder, NO_RETRIES, self.log.append))
        self.store.prepare("grid", COLUMNS)
        for trial in "ab":
            self.train(self.store, trial)

    def train(self, store: Store, trial: str) -> None:
        store.write_history("grid", f"c{trial}", [(trial, 1, "auroc", 0.5), (trial, 2, "auroc", 0.9)])
        store.write("grid", f"c{trial}", [row(trial)], COLUMNS)

    def reopened(self) -> Store:
        """Open the store as the next run does."""
        return Store(self.store.files)

    def quarantined(self, kind: str) -> list[bytes | None]:
        folder = f"_damaged/{kind}/sweep=grid"
        return [self.store.files.read(f"{folder}/{name}") for name in self.store.files.list(folder)]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", DAMAGES)
def test_the_trials_of_a_damaged_file_are_to_run_and_the_file_is_set_aside(
    harness: Harness, kind: str, how: str
) -> None:
    path = f"{kind}/sweep=grid/ca.parquet"
    content = flipped(harness.store.files, path, how)
    plan = harness.reopened()
    assert plan.statuses("grid") == {"b": "finished"} and list(plan.damaged) == [path]
    assert harness.log == [] and harness.quarantined(kind) == [], "a plan writes nothing"
    begun = harness.reopened()
    begun.quarantine(plan.damaged)
    begun.prepare("grid", COLUMNS)
    assert harness.quarantined(kind) == [content]
    assert [path in line and "moved to '_damaged/" in line for line in harness.log] == [True], harness.log
    assert harness.reopened().statuses("grid") == {"b": "finished"}, "as long as it has not been trained again"
    harness.train(begun, "a")
    assert harness.reopened().statuses("grid") == {"a": "finished", "b": "finished"}
    assert len(load("grid", harness.store.files)) == 2 and len(load_history("grid", harness.store.files)) == 4
    assert len(harness.log) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_a_reader_names_the_file_and_the_remedy_and_nothing_is_moved(harness: Harness, kind: str) -> None:
    flipped(harness.store.files, f"{kind}/sweep=grid/ca.parquet")
    with pytest.raises(StoreError, match=rf"'{kind}/sweep=grid/ca\.parquet' is damaged: .*; run the sweep again, "):
        (load if kind == "trials" else load_history)("grid", harness.store.files)
    assert harness.quarantined(kind) == []


def test_a_history_of_other_columns_is_damaged(harness: Harness) -> None:
    path = "history/sweep=grid/ca.parquet"
    harness.store.files.write(path, table_to_parquet(table_of([row("a")], COLUMNS)))
    plan = harness.reopened()
    assert plan.statuses("grid") == {"b": "finished"} and "its columns are trial_id, method, " in plan.damaged[path]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cohort_writes_over_its_own_damaged_file(harness: Harness, kind: str) -> None:
    content = flipped(harness.store.files, f"{kind}/sweep=grid/ca.parquet")
    harness.train(harness.store, "a")
    assert harness.quarantined(kind) == [content] and len(harness.log) == 1
    assert harness.reopened().statuses("grid") == {"a": "finished", "b": "finished"}
    assert len(load_history("grid", harness.store.files)) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_merging_goes_on_without_a_damaged_file(harness: Harness, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "MANY", 4)
    harness.train(harness.store, "c")
    content = flipped(harness.store.files, f"{kind}/sweep=grid/ca.parquet")
    harness.train(harness.store, "d")
    assert harness.quarantined(kind) == [content] and len(harness.log) == 1
    assert len(harness.store.files.list(f"{kind}/sweep=grid")) == 1
    assert harness.reopened().statuses("grid") == dict.fromkeys("bcd", "finished")


def test_compaction_goes_on_without_a_damaged_file(harness: Harness) -> None:
    content = flipped(harness.store.files, "trials/sweep=grid/ca.parquet")
    harness.store.compact("grid")
    assert harness.quarantined("trials") == [content] and load("grid", harness.store.files)["trial_id"].tolist() == [
        "b"
    ]


def test_a_result_without_any_metric_needs_no_history(harness: Harness) -> None:
    """A trial that diverged before its first report has no history, and must not be trained again forever."""
    harness.store.write("grid", "cx", [row("x", "diverged", auroc=None), row("y", "failed")], COLUMNS)
    flipped(harness.store.files, "history/sweep=grid/ca.parquet")
    assert harness.reopened().statuses("grid") == {"b": "finished", "x": "diverged", "y": "failed"}


def test_without_damage_no_history_is_read(harness: Harness) -> None:
    harness.store.files.delete_folder("history")
    assert harness.reopened().statuses("grid") == {"a": "finished", "b": "finished"}


def test_a_search_trains_a_row_again_that_has_lost_its_history(harness: Harness) -> None:
    flipped(harness.store.files, "history/sweep=grid/ca.parquet")
    plan = harness.reopened()
    rows, history = plan.records("grid")
    assert [(row["trial_id"], row["status"]) for row in rows] == [("a", "failed"), ("b", "finished")]
    assert {record[0] for record in history} == {"b"} and len(plan.damaged) == 1


def test_a_warm_start_does_not_ignore_damaged_rows(harness: Harness) -> None:
    flipped(harness.store.files, "trials/sweep=grid/ca.parquet")
    study: Any = None  # not needed before the damage is found
    with pytest.raises(DamagedFiles, match=r"ca\.parquet"):
        warm_start_from_rows(harness.reopened(), "grid", study, {}, {})


def test_a_file_that_is_intact_after_all_comes_back(harness: Harness) -> None:
    """It was misread, or another writer has replaced it meanwhile."""
    path = "trials/sweep=grid/ca.parquet"
    quarantine(harness.store.files, {path: "misread", "trials/sweep=grid/gone.parquet": "misread"})
    assert harness.log == [] and harness.quarantined("trials") == []
    assert harness.store.files.read(path) is None and len(load("grid", harness.store.files)) == 2


def test_many_damaged_files_are_named_and_set_aside_at_once(harness: Harness) -> None:
    for trial in "ab":
        flipped(harness.store.files, f"history/sweep=grid/c{trial}.parquet")
    rounds: list[int] = []

    def read() -> int:
        rounds.append(1)
        return len(load_history("grid", harness.store.files))

    harness.train(harness.store, "c")
    with pytest.raises(DamagedFiles, match=r"\(and 1 more\)"):
        read()
    assert quarantining(harness.store.files, read) == 2 and len(rounds) == 3 and len(harness.log) == 2


def test_without_a_callback_a_warning_is_issued(harness: Harness, tmp_path: Path) -> None:
    flipped(harness.store.files, "trials/sweep=grid/ca.parquet")
    with pytest.warns(UserWarning, match=r"ca\.parquet' is damaged"):
        Store(tmp_path).prepare("grid", COLUMNS)
