"""Checkpoints of finished cohorts are removed; a checkpoint from which training may continue stays."""

from pathlib import Path

import pytest

from sweeper.packing.cuts import record_halved
from sweeper.planning.cohorts import Cohort, Trial
from sweeper.storage.checkpoints import fresh_checkpoints, remove_orphans
from sweeper.storage.layout import checkpoint_path, halved_folder
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, row


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """`done` and `pruned` have all their rows, `begun` has one of two, `failed` has one result, `unknown` no row."""
    store = Store(tmp_path)
    store.prepare("grid", COLUMNS)
    members = {
        "done": [row("a", "finished"), row("b", "diverged")],
        "pruned": [row("c", "pruned"), row("d", "finished")],
        "begun": [row("e", "finished")],
        "failed": [row("f", "failed"), row("g", "finished")],
    }
    for cohort, rows in members.items():
        store.write("grid", cohort, [member | {"cohort": cohort} for member in rows], COLUMNS)
    for cohort in (*members, "unknown"):
        store.files.write(checkpoint_path("grid", cohort), b"weights")
    return store


def test_the_checkpoint_of_a_cohort_that_another_driver_has_finished_is_deleted(store: Store) -> None:
    store.files.write(checkpoint_path("grid", "done") + ".why", b"run stopped")
    assert remove_orphans(store, "grid") == ["done.pt", "done.pt.why", "pruned.pt"]
    assert store.files.list("checkpoints/sweep=grid") == ["begun.pt", "failed.pt", "unknown.pt"]
    assert remove_orphans(store, "grid") == []


def test_merged_rows_are_read_too(store: Store) -> None:
    store.compact("grid")
    assert remove_orphans(store, "grid") == ["done.pt", "pruned.pt"]


def test_the_checkpoints_of_a_cohort_that_was_split_are_deleted_once_its_trials_have_results(store: Store) -> None:
    """Whatever the cohort is of which they have rows: another driver may have trained the whole, or other parts."""
    parts = {
        "whole": {"first": ["a", "c"], "second": ["b", "d"]},
        "first": {"quarter": ["a"], "other": ["c"]},
        "half": {"ended": ["e"], "waiting": ["e", "without a row"]},
        "again": {"lost": ["f"], "kept": ["g"]},  # f has failed
    }
    for whole, own in parts.items():
        split = [Cohort(part, tuple(Trial(trial, {}) for trial in trials), 1) for part, trials in own.items()]
        record_halved(store.files, "grid", whole, split)
        for cohort in (whole, *own):
            store.files.write(checkpoint_path("grid", cohort), b"weights")
    for version, record in {"earlier": b'["first", "second"]', "earliest": b""}.items():  # as such versions wrote it
        store.files.write(f"{halved_folder('grid')}/{version}", record)
        store.files.write(checkpoint_path("grid", version), b"weights")
    removed = {"done", "ended", "first", "kept", "other", "pruned", "quarter", "second", "whole"}
    assert remove_orphans(store, "grid") == sorted(f"{name}.pt" for name in removed)


def test_checkpoints_of_other_sweeps_are_kept(store: Store) -> None:
    store.files.write(checkpoint_path("other", "done"), b"weights")
    remove_orphans(store, "grid")
    assert store.files.list("checkpoints/sweep=other") == ["done.pt"]


def test_without_checkpoints_no_row_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.files.delete_folder("checkpoints/sweep=grid")
    monkeypatch.setattr("sweeper.storage.checkpoints.read_or_say", None)
    assert remove_orphans(store, "grid") == []


def test_a_stale_checkpoint_is_archived_when_its_cohort_starts(store: Store) -> None:
    files = store.files
    for cohort in ("mine", "others"):
        files.write(checkpoint_path("grid", cohort), b"stale")
    path_of = fresh_checkpoints(files, "grid", "_replaced/now")
    assert path_of("mine") == checkpoint_path("grid", "mine") and files.read(path_of("mine")) is None
    files.write(path_of("mine"), b"fresh")
    assert files.read(path_of("mine")) == b"fresh" and files.read(checkpoint_path("grid", "others")) == b"stale"
    assert files.read(f"_replaced/now/{checkpoint_path('grid', 'mine')}") == b"stale"
