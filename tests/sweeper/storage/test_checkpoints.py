"""Checkpoints of finished cohorts are removed; a checkpoint from which training may continue stays."""

from pathlib import Path

import pytest

from sweeper.storage.checkpoints import fresh_checkpoints, labelled, remove_orphans
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.store import Store
from sweeper.storage.worker_files import CheckpointStorage
from tests.sweeper.storage.rows import COLUMNS, row

KEPT = ["begun.pt", "damaged.pt", "earlier.pt", "failed.pt", "unknown.pt"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The trials of `done` and `pruned` have results, which rows of cohorts that were cut otherwise have, `begun` lacks
    one, a trial of `failed` has failed, and `unknown` has no row."""
    store = Store(tmp_path)
    store.prepare("grid", COLUMNS)
    rows = [row("a", "finished"), row("b", "diverged"), row("c", "pruned"), row("d", "finished"), row("f", "failed")]
    for cohort, members in {"first": rows[:3], "second": rows[3:]}.items():
        store.write("grid", cohort, [member | {"cohort": cohort} for member in members], COLUMNS)
    checkpoints = CheckpointStorage(store.files)
    for cohort, trials in {"done": "ad", "pruned": "bc", "begun": "ae", "failed": "af", "unknown": "g"}.items():
        checkpoints.write(checkpoint_path("grid", cohort), b"weights", tuple(trials))
    for cohort, data in {"damaged": b"trials [", "earlier": b"weights"}.items():
        store.files.write(checkpoint_path("grid", cohort), data)
    return store


def test_the_files_of_cohorts_whose_trials_have_results_are_deleted(store: Store) -> None:
    store.files.write(checkpoint_path("grid", "done") + ".why", labelled("ad", b"run stopped"))
    assert remove_orphans(store, "grid") == ["done.pt", "done.pt.why", "pruned.pt"]
    assert store.files.list("checkpoints/sweep=grid") == KEPT
    assert remove_orphans(store, "grid") == []


def test_what_reads_a_checkpoint_sees_no_label(store: Store) -> None:
    checkpoints = CheckpointStorage(store.files)
    read = {cohort: checkpoints.read(checkpoint_path("grid", cohort)) for cohort in ("done", "earlier", "absent")}
    assert read == {"done": b"weights", "earlier": b"weights", "absent": None}


def test_merged_rows_are_read_too(store: Store) -> None:
    store.compact("grid")
    assert remove_orphans(store, "grid") == ["done.pt", "pruned.pt"]


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
