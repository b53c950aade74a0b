"""Compaction merges many small files into few and loses no row, neither to a crash nor to concurrent writers."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from sweeper.storage import parquet_files
from sweeper.storage.files import Files
from sweeper.storage.load import load, load_history
from sweeper.storage.parquet_files import table_to_parquet
from sweeper.storage.rows import table_of
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, row


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(parquet_files, "MANY", 4)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def write_cohort(store: Store, cohort: int, status: str = "finished") -> None:
    """Write a cohort of two trials as a sweep does, its history first."""
    trials = [f"{cohort}a", f"{cohort}b"]
    store.write_history("grid", f"c{cohort}", [(trial, 1, "auroc", cohort / 100) for trial in trials])
    store.write("grid", f"c{cohort}", [row(trial, status, auroc=cohort / 100) for trial in trials], COLUMNS)


def plain(folder: Path) -> pd.DataFrame:
    frame = pd.read_parquet(folder / "trials/sweep=grid").sort_values("trial_id", ignore_index=True)
    assert frame["trial_id"].is_unique
    return frame


@pytest.mark.slow
def test_the_number_of_files_is_logarithmic_and_rows_are_as_without_compaction(tmp_path, monkeypatch):
    store, counts = Store(tmp_path / "compacted"), []
    for cohort in range(100):
        write_cohort(store, cohort)
        counts.append(max(len(store.files.list(f"{kind}/sweep=grid")) for kind in ("trials", "history")))
    assert max(counts) <= 3 * 4 + 1
    monkeypatch.setattr(parquet_files, "MANY", 10**9)
    loose = Store(tmp_path / "loose")
    for cohort in range(100):
        write_cohort(loose, cohort)
    assert len(loose.files.list("trials/sweep=grid")) == 100
    pd.testing.assert_frame_equal(plain(tmp_path / "compacted"), plain(tmp_path / "loose"))
    pd.testing.assert_frame_equal(load_history("grid", store.files), load_history("grid", loose.files))
    assert store.statuses("grid") == loose.statuses("grid")


def test_fewer_cohorts_than_a_merge_takes_are_left_alone(tmp_path):
    store, names = Store(tmp_path), [f"c{cohort}.parquet" for cohort in range(parquet_files.MANY)]
    for cohort, _ in enumerate(names):
        assert store.files.list("trials/sweep=grid") == names[:cohort]
        write_cohort(store, cohort)
    assert len(store.files.list("trials/sweep=grid")) == 1


@pytest.mark.slow
def test_a_row_is_rewritten_once_a_level(tmp_path, monkeypatch):
    store, row_counts = Store(tmp_path), []
    write = Files.write

    def counted(files: Files, path: str, data: bytes) -> None:
        row_counts.append(len(pd.read_parquet(io.BytesIO(data))))
        write(files, path, data)

    monkeypatch.setattr(Files, "write", counted)
    for cohort in range(64):
        store.write("grid", f"c{cohort}", [row(str(cohort))], COLUMNS)
    assert sum(row_counts) == 64 * (1 + 3), "once as a cohort, then in files of 4, 16 and 64"


def test_a_listing_during_a_compaction_misses_no_row(tmp_path, monkeypatch):
    """A listing is not atomic: it can miss the merged file, which is created behind it, and the old files, which are
    deleted ahead of it."""
    store = Store(tmp_path)
    for cohort in range(4):
        write_cohort(store, cohort)
    (segment,) = store.files.list("trials/sweep=grid")
    list_all, listings = Files.list, []

    def overtaken(files: Files, folder: str = "") -> list[str]:
        listings.append(folder)
        return [name for name in list_all(files, folder) if len(listings) > 1 or name != segment]

    store.files.write("trials/sweep=grid/other.parquet", table_to_parquet(table_of([row("other")], COLUMNS)))
    monkeypatch.setattr(Files, "list", overtaken)
    assert len(load("grid", store.files)) == 9


def test_large_files_are_left_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "LARGEST", 1)
    store = Store(tmp_path)
    for cohort in range(16):
        write_cohort(store, cohort)
    assert len(store.files.list("trials/sweep=grid")) == 4 and len(plain(tmp_path)) == 32


def test_a_merged_result_is_not_written_again_and_a_failure_is_replaced(tmp_path):
    store = Store(tmp_path)
    for cohort in range(7):
        write_cohort(store, cohort, "failed" if cohort == 2 else "finished")
    assert "c2.parquet" in store.files.list("trials/sweep=grid"), (
        "a cohort with a failed trial is not merged, because it is tried again"
    )
    write_cohort(store, 2)
    write_cohort(store, 1, "failed")
    assert set(plain(tmp_path)["status"]) == {"finished"} and len(plain(tmp_path)) == 14


WRITER = """
import sys
sys.path.insert(0, {root!r})
from sweeper.storage import parquet_files
from tests.sweeper.storage.test_compaction import COLUMNS, Store, write_cohort
parquet_files.MANY = 4
store = Store({folder!r})
store.prepare("grid", COLUMNS)
print("go", flush=True)
sys.stdin.readline()
for cohort in range({first}, {first} + 60):
    write_cohort(store, cohort, "failed")
    write_cohort(store, cohort)
"""


@pytest.mark.slow
def test_two_writers_that_merge_files_while_a_third_compacts_lose_nothing(tmp_path):
    """The writers share 40 cohorts, as when one command is run twice at once, and each has 20 of its own.

    Every cohort fails first, so its file is written again at any moment of a compaction.
    """
    code = WRITER.format(root=os.getcwd(), folder=str(tmp_path), first="{first}")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code.format(first=first)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for first in (0, 20)
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "go\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    third, compactions = Store(tmp_path), 0
    while any(writer.poll() is None for writer in writers):
        compactions += third.compact("grid") is not None
    assert [writer.returncode for writer in writers] == [0, 0] and compactions > 2
    rows = load("grid", tmp_path)
    assert len(rows) == 160 and set(rows["status"]) == {"finished"}
    assert len(set(load_history("grid", tmp_path)["trial_id"])) == 160
    Store(tmp_path).prepare("grid", COLUMNS)
    assert len(plain(tmp_path)) == 160
