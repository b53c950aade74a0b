from pathlib import Path

import pytest

from sweeper.storage.store import Store, StoreReader
from tests.sweeper.storage.rows import COLUMNS, row


@pytest.fixture
def reader(tmp_path: Path) -> StoreReader:
    """The store of trials a (finished), b (failed) and c (finished), each in a cohort of its own."""
    store = Store(tmp_path)
    store.prepare("grid", COLUMNS)
    for trial, status in (("a", "finished"), ("b", "failed"), ("c", "finished")):
        store.write_history("grid", f"c{trial}", [(trial, 1, "auroc", 0.9)])
        store.write("grid", f"c{trial}", [row(trial, status)], COLUMNS)
    return StoreReader(tmp_path)


def snapshot(reader: StoreReader) -> dict[str, bytes]:
    folder = reader.files.local_folder
    assert folder is not None
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_sweep_without_rows_is_empty(reader: StoreReader) -> None:
    assert reader.statuses("other") == {} and reader.records("other") == ([], []) and reader.rows("other") is None


def test_rows_and_history_are_read_as_plain_values(reader: StoreReader) -> None:
    rows, history = reader.records("grid")
    assert {str(row["trial_id"]): row["status"] for row in rows} == reader.statuses("grid")
    assert history == [("a", 1, "auroc", 0.9), ("b", 1, "auroc", 0.9), ("c", 1, "auroc", 0.9)]
    table = reader.rows("grid")
    assert table is not None and table.to_pylist() == rows


def test_a_damaged_file_is_remembered_and_nothing_is_written(reader: StoreReader) -> None:
    reader.files.write("trials/sweep=grid/ca.parquet", b"PAR1")
    before = snapshot(reader)
    assert reader.statuses("grid") == {"b": "failed", "c": "finished"}
    assert list(reader.damaged) == ["trials/sweep=grid/ca.parquet"] and snapshot(reader) == before


def test_a_trial_that_lost_its_history_is_to_run(reader: StoreReader) -> None:
    reader.files.write("history/sweep=grid/ca.parquet", b"PAR1")
    assert reader.trials_without_history("grid") == set(), "no damage is known yet"
    assert reader.statuses("grid") == {"b": "failed", "c": "finished"}
    assert reader.statuses("grid", check_history=False)["a"] == "finished"
    assert {str(row["trial_id"]): row["status"] for row in reader.records("grid")[0]}["a"] == "failed"
