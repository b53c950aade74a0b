"""Rows, history and pictures of trials in the store, and the checks before a run."""

import math
import shutil
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweeper.errors import StoreError
from sweeper.storage.files import Files
from sweeper.storage.load import load, load_trials
from sweeper.storage.parquet_files import table_to_parquet
from sweeper.storage.rows import Columns, table_of
from sweeper.storage.store import MIN_FREE_BYTES, Store, StoreReader, check_free_space, check_writable
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


def test_a_trials_pictures_are_in_a_folder_of_its_own(store: Store) -> None:
    for _ in range(2):
        store.write_sample_grids("grid", "a", {"samples.png": b"one", "reconstructions.png": b"two"})
    assert store.files.list("sheets/grid/a") == ["reconstructions.png", "samples.png"]
    assert store.files.read("sheets/grid/a/samples.png") == b"one"


def test_no_pictures_make_no_folder(store: Store) -> None:
    store.write_sample_grids("grid", "a", {})
    assert store.files.list("sheets") == []


def test_rows_are_read_and_compacted_beside_pictures(store: Store) -> None:
    for trial in "ab":
        store.write_sample_grids("grid", trial, {"samples.png": trial.encode()})
        store.write("grid", f"c{trial}", [row(trial)], COLUMNS)
    store.compact("grid")
    assert load("grid", store.files)["trial_id"].tolist() == ["a", "b"]
    assert [store.files.read(f"sheets/grid/{trial}/samples.png") for trial in "ab"] == [b"a", b"b"]


@pytest.mark.parametrize(("trial", "name"), [("../a", "samples"), ("a", "../samples"), ("a", "_hidden")])
def test_a_name_that_readers_would_not_see_is_refused(store: Store, trial: str, name: str) -> None:
    with pytest.raises(ValueError, match="a name in the store"):
        store.write_sample_grids("grid", trial, {name: b""})


def test_check_writable_leaves_nothing(tmp_path):
    check_writable(Files(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "store").write_text("no folder")
    with pytest.raises(StoreError, match=r"store .*store cannot be opened: it must be a folder, .*") as caught:
        check_writable(Files(tmp_path / "store"))
    assert "\n" not in str(caught.value)
    with pytest.raises(StoreError):
        check_writable(Files(tmp_path / "store" / "deeper"))


@pytest.mark.parametrize("uri", ["nosuch://bucket/x", "s3://"])
def test_an_address_that_is_none(uri):
    with pytest.raises(StoreError, match="cannot be opened"):
        check_writable(Files(uri))


def test_free_space_is_that_of_the_disk_of_a_folder_that_does_not_exist_yet(tmp_path, monkeypatch):
    files = Files(tmp_path / "a" / "b")
    check_free_space(files)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=MIN_FREE_BYTES - 1))
    with pytest.raises(StoreError, match="must have 64 MiB free, but has 63"):
        check_free_space(files)


def test_the_hyperparameters_in_which_rows_differ_are_their_first_columns(tmp_path: Path) -> None:
    store, columns = Store(tmp_path), Columns({"method": str, "lr": float, "nu": float, "seed": int}, ("auroc",))
    run = {"cohort": "c", "cohort_size": 4, "changes": "", "status": "finished", "method": "vje", "seed": 0}
    rows = [
        {**run, "trial_id": f"t{index}", "preset": preset, "lr": 0.1 * (1 + index % 2), "nu": nu, "auroc": 0.5}
        for index, (preset, nu) in enumerate([("a", 1.0), ("a", 1.0), ("b", None), ("b", 1.0)])
    ]
    store.prepare("grid", columns)
    store.write("grid", "c", rows, columns)
    found, of_preset = load("grid", tmp_path), load("grid", tmp_path, "a", None)
    assert [*found][:3] == ["lr", "nu", "trial_id"] and [*of_preset][:3] == ["lr", "trial_id", "method"]
    assert {*found} == {*of_preset} == {*pd.read_parquet(tmp_path / "trials/sweep=grid"), "sweep"}
    assert [*load_trials(store.files, "grid", ["t3", "t1"])][:2] == ["trial_id", "method"], "they differ in no key"
    assert load_trials(store.files, "grid", ["t3", "t2"])["trial_id"].tolist() == ["t3", "t2"]
