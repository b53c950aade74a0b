import math
from datetime import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweeper.errors import StoreError
from sweeper.storage.files import Files
from sweeper.storage.load import load
from sweeper.storage.parquet_files import table_to_parquet
from sweeper.storage.rows import Columns, table_of
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, folder, row


def test_pandas_reads_native_types_and_no_sweep_column(store):
    store.write("grid", "c0", [row("a", nu=math.inf), row("b", auroc=math.nan, entropy=np.float32(0.5))], COLUMNS)
    table = pq.read_table(folder(store) / "c0.parquet", partitioning=None)
    assert table["nu"].to_pylist() == [math.inf, 3.0]
    assert table["auroc"].to_pylist() == [0.9, None] and table["auroc"].null_count == 1
    assert table["entropy"].to_pylist() == [None, 0.5] and table["error"].null_count == 2
    assert [str(table.schema.field(n).type) for n in ("k", "flip", "method")] == ["int64", "bool", "string"]
    assert str(table.schema.field("ended").type) == "timestamp[us, tz=UTC]"
    frame = pd.read_parquet(folder(store))
    assert len(frame) == 2 and frame["nu"].max() == math.inf and "sweep" not in table.schema.names
    assert set(pd.read_parquet(folder(store).parent)["sweep"]) == {"grid"}


def test_writing_twice_changes_nothing(store):
    rows = [row("b"), row("a", auroc=math.nan)]
    store.write("grid", "c0", rows, COLUMNS)
    before = (folder(store) / "c0.parquet").stat()
    store.write("grid", "c0", rows[::-1], COLUMNS)
    assert (folder(store) / "c0.parquet").stat().st_ino == before.st_ino


def test_a_failure_never_replaces_a_result(store):
    store.write("grid", "c0", [row("a"), row("b", "diverged"), row("c", "failed", auroc=None)], COLUMNS)
    store.write("grid", "c0", [row(t, "failed", error="lost", auroc=None) for t in "abc"], COLUMNS)
    assert store.statuses("grid") == {"a": "finished", "b": "diverged", "c": "failed"}
    store.write("grid", "c0", [row("c", auroc=0.7)], COLUMNS)
    assert store.statuses("grid")["c"] == "finished"
    assert load("grid", store.files)["auroc"].tolist() == [0.9, 0.9, 0.7]


def test_a_new_cut_drops_the_superseded_rows(store):
    store.write("grid", "c0", [row("a", "failed"), row("b", auroc=0.1)], COLUMNS)
    store.write("grid", "c1", [row("a", auroc=0.8), row("b", "failed", auroc=None)], COLUMNS)
    plain = pd.read_parquet(folder(store)).sort_values("trial_id")
    assert plain["trial_id"].tolist() == ["a", "b"] and plain["auroc"].tolist() == [0.8, 0.1]
    again = Store(store.files)
    again.prepare("grid", COLUMNS)
    again.write("grid", "c2", [row("a", auroc=0.6)], COLUMNS)
    assert len(pd.read_parquet(folder(store))) == 2


@pytest.mark.parametrize(
    ("bad", "law"),
    [
        ({"nuu": 1.0}, "did you mean 'nu'"),
        ({"nu": "3"}, "'nu' must hold double"),
        ({"k": 1.5}, "'k' must hold int64"),
        ({"k": True}, "'k' must hold int64"),
        ({"status": "done"}, "finished, diverged, pruned, failed"),
        ({"ended": datetime(2026, 1, 1)}, "time zone"),
        ({"trial_id": None}, "must be a str"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(store, bad, law):
    with pytest.raises(ValueError, match=law):
        store.write("grid", "c0", [{**row("a"), **bad}], COLUMNS)
    assert store.statuses("grid") == {}


def test_another_type_is_refused_in_one_line(store):
    store.write("grid", "c0", [row("a")], COLUMNS)
    with pytest.raises(
        StoreError, match=r"column 'nu' must have one type, but is double in some rows and string in others.*--fresh"
    ) as caught:
        Store(store.files).prepare("grid", Columns({"nu": str}, ()))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"trial_id": ["a"], "status": ["finished"]}),
        table_of([row("a")], COLUMNS).drop_columns(["host"]),
        table_of([row("a")], COLUMNS).replace_schema_metadata({"sweeper.format": "0"}),
    ],
)
def test_foreign_files_are_refused(store, table):
    store.files.write("trials/sweep=grid/x.parquet", table_to_parquet(table))
    for read in (lambda: store.prepare("grid", COLUMNS), lambda: load("grid", store.files)):
        with pytest.raises(StoreError, match=r"another schema: 'x\.parquet': .*move such files out of"):
            read()


def test_new_columns_migrate_old_files_and_old_ones_stay(store):
    store.write("grid", "c0", [row("a")], COLUMNS)
    newer = Columns({"method": str, "nu": float, "beta": float}, ("auroc", "knn"))
    united = Store(store.files).prepare("grid", newer)
    assert set(united.hyperparameters) == {"method", "dataset", "nu", "k", "flip", "beta"}
    assert united.metrics == ("auroc", "entropy", "knn")
    frame = pd.read_parquet(folder(store))
    assert {"beta", "knn", "entropy", "k"} <= set(frame.columns) and frame["beta"].isna().all()
    assert Store(store.files).prepare("grid", COLUMNS) == united


def test_rows_of_earlier_versions_have_no_preset_and_their_sweep_is_continued(store):
    old = table_of([row("a"), row("b", "failed")], COLUMNS).drop_columns(["preset", "changes"])
    store.files.write("trials/sweep=grid/c0.parquet", table_to_parquet(old))
    assert store.statuses("grid") == {"a": "finished", "b": "failed"}
    assert load("grid", store.files)["preset"].isna().all()
    with pytest.raises(StoreError, match=r"no rows with preset 'digits'; there are: none$"):
        load("grid", store.files, preset="digits")
    again = Store(store.files)
    assert again.prepare("grid", COLUMNS) == COLUMNS
    again.write("grid", "c0", [row("b", preset="digits", changes="")], COLUMNS)
    frame = pd.read_parquet(folder(store)).set_index("trial_id")
    assert frame["preset"].isna().tolist() == [True, False] and set(frame["status"]) == {"finished"}
    assert load("grid", store.files, preset="digits")["trial_id"].tolist() == ["b"]


def test_compaction_keeps_the_rows_and_a_retry_still_lands_once(store):
    for cohort in range(5):
        store.write(
            "grid", f"c{cohort}", [row(f"{cohort}{t}", "failed" if t == "a" else "finished") for t in "abc"], COLUMNS
        )
    before = load("grid", store.files)
    name = store.compact("grid")
    assert store.files.list("trials/sweep=grid") == [name] and store.compact("grid") == name
    pd.testing.assert_frame_equal(load("grid", store.files), before)
    store.write("grid", "c2", [row("2a", auroc=0.4)], COLUMNS)
    frame = pd.read_parquet(folder(store))
    assert len(frame) == 15 and frame.set_index("trial_id").loc["2a", "status"] == "finished"
    assert store.compact("grid") != name and len(load("grid", store.files)) == 15


def test_a_crash_within_compaction_is_repaired(store, monkeypatch):
    for cohort in "xyz":
        store.write("grid", cohort, [row(cohort)], COLUMNS)
    before = load("grid", store.files)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Files, "delete_if_unchanged", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        store.compact("grid")
    assert len(store.files.list("trials/sweep=grid")) == 4
    pd.testing.assert_frame_equal(load("grid", store.files), before)
    Store(store.files).prepare("grid", COLUMNS)
    assert len(store.files.list("trials/sweep=grid")) == 1
