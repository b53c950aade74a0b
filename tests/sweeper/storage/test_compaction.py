"""Many small files become few, and no row is lost: not to a crash, nor to others who write and fold at once."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from sweeper.storage import compaction as folding
from sweeper.storage.arrow_tables import table_of, to_bytes
from sweeper.storage.io.files import Files
from sweeper.storage.store import Store, load, load_history
from tests.sweeper.storage.test_store import COLUMNS, row


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(folding, "MANY", 4)


def put(store: Store, cohort: int, status: str = "finished") -> None:
    """A cohort of two trials, its history first, as a sweep writes it."""
    trials = [f"{cohort}a", f"{cohort}b"]
    store.write_history("grid", f"c{cohort}", [(trial, 1, "auroc", cohort / 100) for trial in trials])
    store.write("grid", f"c{cohort}", [row(trial, status, auroc=cohort / 100) for trial in trials], COLUMNS)


def plain(folder: Path) -> pd.DataFrame:
    frame = pd.read_parquet(folder / "trials/sweep=grid").sort_values("trial_id", ignore_index=True)
    assert frame["trial_id"].is_unique
    return frame


def test_files_grow_with_the_logarithm_and_rows_are_as_without_folding(tmp_path, monkeypatch):
    store, counts = Store(tmp_path / "folded"), []
    for cohort in range(100):
        put(store, cohort)
        counts.append(max(len(store.files.list(f"{kind}/sweep=grid")) for kind in ("trials", "history")))
    assert max(counts) <= 3 * 4 + 1
    monkeypatch.setattr(folding, "MANY", 10**9)
    loose = Store(tmp_path / "loose")
    for cohort in range(100):
        put(loose, cohort)
    assert len(loose.files.list("trials/sweep=grid")) == 100
    pd.testing.assert_frame_equal(plain(tmp_path / "folded"), plain(tmp_path / "loose"))
    pd.testing.assert_frame_equal(load_history("grid", store.files), load_history("grid", loose.files))
    assert store.statuses("grid") == loose.statuses("grid")


def test_a_row_is_rewritten_once_a_level(tmp_path, monkeypatch):
    store, rows = Store(tmp_path), []
    plainly = Files.write

    def counted(files: Files, path: str, data: bytes) -> None:
        rows.append(len(pd.read_parquet(io.BytesIO(data))))
        plainly(files, path, data)

    monkeypatch.setattr(Files, "write", counted)
    for cohort in range(64):
        store.write("grid", f"c{cohort}", [row(str(cohort))], COLUMNS)
    assert sum(rows) == 64 * (1 + 3), "once as a cohort, then in files of 4, 16 and 64"


def test_a_listing_that_a_folding_overtakes_hides_no_row(tmp_path, monkeypatch):
    """A folder is not listed at one moment: the listing may have passed where the new file comes to be, and reach the
    old ones when they have gone."""
    store = Store(tmp_path)
    for cohort in range(4):
        put(store, cohort)
    (segment,) = store.files.list("trials/sweep=grid")
    plainly, listings = Files.list, []

    def overtaken(files: Files, folder: str = "") -> list[str]:
        listings.append(folder)
        return [name for name in plainly(files, folder) if len(listings) > 1 or name != segment]

    store.files.write("trials/sweep=grid/other.parquet", to_bytes(table_of([row("other")], COLUMNS)))
    monkeypatch.setattr(Files, "list", overtaken)
    assert len(load("grid", store.files)) == 9


def test_large_files_are_left_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(folding, "LARGEST", 1)
    store = Store(tmp_path)
    for cohort in range(16):
        put(store, cohort)
    assert len(store.files.list("trials/sweep=grid")) == 4 and len(plain(tmp_path)) == 32


def test_a_folded_result_is_not_written_again_and_a_failure_is_replaced(tmp_path):
    store = Store(tmp_path)
    for cohort in range(7):
        put(store, cohort, "failed" if cohort == 2 else "finished")
    assert "c2.parquet" in store.files.list("trials/sweep=grid"), "who failed is tried again, and stays by itself"
    put(store, 2)
    put(store, 1, "failed")
    assert set(plain(tmp_path)["status"]) == {"finished"} and len(plain(tmp_path)) == 14


@pytest.mark.parametrize("operation", ["write", "delete_same"])
def test_a_crash_at_any_moment_loses_nothing(tmp_path, monkeypatch, operation):
    """Before each single write or removal that 5 cohorts take, in turn, and after it."""
    monkeypatch.setattr(folding, "MANY", 2)
    plainly, crashes = getattr(Files, operation), 0
    for moment in range(200):
        folder, left, done = tmp_path / str(moment), [moment], 0

        def crash(files: Files, *words: object, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1 and moment % 2:  # noqa: B023
                plainly(files, *words)
            if left[0] < 0:
                raise KeyboardInterrupt
            plainly(files, *words)

        store = Store(folder)
        store.prepare("grid", COLUMNS)
        with monkeypatch.context() as patch:
            patch.setattr(Files, operation, crash)
            try:
                for cohort in range(5):
                    put(store, cohort)
                    done += 1
            except KeyboardInterrupt:
                crashes += 1
        there = load("grid", folder) if done else pd.DataFrame({"trial_id": []})
        assert set(there["trial_id"]) >= {f"{cohort}{member}" for cohort in range(done) for member in "ab"}
        again = Store(folder)
        again.prepare("grid", COLUMNS)
        for cohort in range(done, 5):
            put(again, cohort)
        assert len(plain(folder)) == 10 and set(load_history("grid", folder)["trial_id"]) == set(
            plain(folder)["trial_id"]
        )
        if done == 5:
            break
    assert crashes > 5


WRITER = """
import sys
sys.path.insert(0, {root!r})
from sweeper.storage import compaction as folding
from tests.sweeper.storage.test_compaction import COLUMNS, Store, put
folding.MANY = 4
store = Store({folder!r})
store.prepare("grid", COLUMNS)
print("go", flush=True)
sys.stdin.readline()
for cohort in range({first}, {first} + 60):
    put(store, cohort, "failed")
    put(store, cohort)
"""


def test_two_who_write_and_fold_at_once_while_a_third_compacts_lose_nothing(tmp_path):
    """They share 40 of their cohorts, as one command does that is given twice; the rest is of either alone. Each fails
    first, so that its file is written again at any moment of a compaction."""
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
