import math
from pathlib import Path

import pytest

from sweeper.errors import StoreError
from sweeper.storage.load import take_snapshot
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, folder, row


def test_rows_and_history_of_all_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write("grid", "c0", [row("a"), row("b", "failed", auroc=None, k=None)], COLUMNS)
    store.write_history("grid", "c1", [("c", 1, "auroc", 0.5), ("c", 1, "auroc", 0.6)])
    snapshot = take_snapshot(store.files, "grid")
    assert snapshot.rows["trial_id"].tolist() == ["a", "b"] and math.isnan(snapshot.rows["k"][1])
    assert snapshot.columns == COLUMNS and snapshot.damaged == {}
    assert snapshot.history.values.tolist() == [["c", 1, "auroc", 0.6]]


def test_a_sweep_without_files_is_empty(tmp_path: Path) -> None:
    snapshot = take_snapshot(Store(tmp_path).files, "grid")
    assert len(snapshot.rows) == len(snapshot.history) == 0 and "status" in snapshot.rows


def test_damaged_files_are_named_and_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write("grid", "c0", [row("a")], COLUMNS)
    store.write("grid", "c1", [row("b")], COLUMNS)
    path = folder(store) / "c1.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    snapshot = take_snapshot(store.files, "grid")
    assert snapshot.rows["trial_id"].tolist() == ["a"]
    assert list(snapshot.damaged) == ["trials/sweep=grid/c1.parquet"] and path.exists()


def test_a_foreign_schema_is_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write("grid", "c0", [row("a")], COLUMNS)
    take_snapshot(store.files, "grid").rows.to_parquet(folder(store) / "foreign.parquet")
    with pytest.raises(StoreError, match=r"another schema: 'foreign.parquet'"):
        take_snapshot(store.files, "grid")
