"""Columns of a sweep, rows as Arrow tables, and loading them."""

import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.errors import SchemaError, StoreError
from sweeper.storage.load import load, load_history, load_trials, take_snapshot
from sweeper.storage.parquet_files import table_to_parquet
from sweeper.storage.rows import (
    FIXED,
    Columns,
    columns_of,
    conform,
    history_of,
    one_per_record,
    one_per_trial,
    plain_value,
    rows_except,
    rows_of,
    table_of,
)
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.storage.rows import COLUMNS, folder, row

ADDED = [name for name, column in FIXED.items() if column.added]


@pytest.mark.parametrize(
    "wrong",
    [
        {"hyperparameters": {"a": list}},
        {"hyperparameters": {"status": str}},
        {"hyperparameters": {"x": int}, "metrics": ("x",)},
        {"metrics": ("sweep",)},
    ],
)
def test_invalid_columns_are_refused(wrong):
    with pytest.raises(ValueError, match="but"):
        Columns(**{"hyperparameters": {}, "metrics": (), **wrong})


def test_a_union_keeps_the_order_and_appends_the_columns_of_the_other():
    assert Columns({"a": int}, ("x",)).union(Columns({"b": str, "a": int}, ("y", "x"))) == Columns(
        {"a": int, "b": str}, ("x", "y")
    )


def test_a_metric_of_one_that_is_a_hyperparameter_of_the_other_is_refused():
    with pytest.raises(SchemaError, match="'x' is a metric of some rows and a hyperparameter of others"):
        Columns({"x": float}, ()).union(Columns({}, ("x",)))


def test_columns_are_read_back_from_the_schema_of_a_file():
    assert columns_of(COLUMNS.schema) == COLUMNS


def test_files_of_earlier_versions_lack_the_columns_that_were_added_since():
    whole = COLUMNS.schema
    schema = pa.schema([field for field in whole if field.name not in ADDED], metadata=whole.metadata)
    assert columns_of(schema) == COLUMNS and {"device_seconds", "cost", "torch"} < set(ADDED)


def test_a_store_of_an_earlier_version_is_continued(tmp_path):
    """Its rows get nulls in the columns that were added since."""
    store, old = Store(tmp_path), table_of([row("a")], COLUMNS).drop_columns(ADDED)
    store.files.write("trials/sweep=grid/c0.parquet", table_to_parquet(old))
    assert store.statuses("grid") == {"a": "finished"} and load("grid", tmp_path)["auroc"].tolist() == [0.9]
    columns = store.prepare("grid", COLUMNS)
    store.write("grid", "c1", [row("b", cohort="c1", device_seconds=3.0, python="3.11.9")], columns)
    rows = pd.read_parquet(tmp_path / "trials/sweep=grid").set_index("trial_id")
    assert rows["device_seconds"].isna().to_dict() == {"a": True, "b": False} and rows.loc["b", "python"] == "3.11.9"


def test_conform_puts_columns_in_order():
    table = table_of([row("a")], COLUMNS)
    assert conform(table.select(reversed(table.schema.names)), COLUMNS).equals(table)


def test_rows_are_those_of_the_trials_or_all_others():
    table = table_of([row("a"), row("b"), row("c")], COLUMNS)
    assert rows_of(table, ["c", "a", "z"])["trial_id"].to_pylist() == ["a", "c"]
    assert rows_except(table, ["c", "a", "z"])["trial_id"].to_pylist() == ["b"]


def test_a_later_failure_does_not_replace_a_result():
    table = table_of([row("b", "failed"), row("a"), row("a", "failed"), row("b", "failed", error="last")], COLUMNS)
    merged = one_per_trial(table)
    assert merged["trial_id"].to_pylist() == ["a", "b"] and merged["status"].to_pylist() == ["finished", "failed"]
    assert merged["error"].to_pylist() == [None, "last"]


def test_rows_may_have_their_values_in_any_order_and_lack_some():
    rows = [row("a", error=None), row("b", error="last")]
    whole = table_of(rows, COLUMNS)
    assert table_of([rows[0], dict(reversed(rows[1].items()))], COLUMNS).equals(whole)
    short = [{name: value for name, value in values.items() if value is not None} for values in rows]
    assert len(short[0]) < len(short[1]) and table_of(short, COLUMNS).equals(whole)


def test_not_a_number_is_null_among_plain_numbers_and_others():
    plain = table_of([row("a", seconds=math.nan), row("b", seconds=1.0)], COLUMNS)
    mixed = table_of([row("a", seconds=np.float64("nan")), row("b", seconds=1)], COLUMNS)
    assert plain["seconds"].to_pylist() == mixed["seconds"].to_pylist() == [None, 1.0]


@for_each("null", [None, float("nan"), np.float32("nan"), pd.NaT, pd.NA, np.datetime64("NaT")])
def test_every_null_is_none(null: object) -> None:
    assert plain_value(null) is None


@for_each("value", [np.int64(3), np.bool_(True), np.float64(0.5), "NaT", 0, False, pd.Timestamp(0)])
def test_a_value_is_one_of_python(value: object) -> None:
    plain = plain_value(value)
    assert plain == value and not isinstance(plain, np.integer | np.bool_) and type(plain) is not np.float64


def test_an_error_of_a_reader_names_the_file_that_is_not_parquet_and_the_remedy(store):
    store.files.write("trials/sweep=grid/x.parquet", b"PAR1 not really")
    with pytest.raises(StoreError, match=r"x\.parquet.*not a whole Parquet file.*run the sweep again"):
        load("grid", store.files)


def test_load_unites_files_and_sweeps_of_different_columns(store):
    store.write("grid", "c0", [row("a")], COLUMNS)
    other = Columns({"method": str, "beta": float}, ("knn",))
    store.write("other", "c0", [{"trial_id": "z", "status": "finished", "beta": 1.0, "knn": 0.5}], other)
    both = load(["grid", "other"], store.files)
    assert both["sweep"].tolist() == ["grid", "other"] and both["nu"].isna().tolist() == [False, True]
    assert load("other", store.files)["beta"].tolist() == [1.0]
    with pytest.raises(StoreError, match=r"no trials of sweep 'nope'; there are: grid, other"):
        load("nope", store.files)


def test_load_selects_a_preset_and_its_changes(store):
    labels = {"a": ("digits", ""), "b": ("digits", "epochs=5"), "c": ("paper", "")}
    rows = [row(trial, preset=preset, changes=changes) for trial, (preset, changes) in labels.items()]
    store.write("grid", "c0", rows, COLUMNS)

    def loaded(**chosen: str | None) -> list[str]:
        return load("grid", store.files, **chosen)["trial_id"].tolist()

    assert loaded() == ["a", "b", "c"] and loaded(preset="digits", changes=None) == ["a", "b"]
    assert loaded(preset="digits") == ["a"] and loaded(preset="digits", changes="epochs=5") == ["b"]
    assert loaded(changes="epochs=5") == ["b"], "of any preset"
    with pytest.raises(StoreError, match=r"no rows with preset 'digit'; there are: 'digits', 'paper'$"):
        loaded(preset="digit")
    with pytest.raises(StoreError, match=r"no rows with changes 'epochs=6'; there are: '', 'epochs=5'$"):
        loaded(preset="digits", changes="epochs=6")
    frame = pd.read_parquet(folder(store))
    assert frame[(frame.preset == "digits") & (frame.changes == "")]["trial_id"].tolist() == ["a"]


def test_load_takes_one_row_a_trial_results_first_then_the_latest(store):
    late = datetime(2026, 2, 1, tzinfo=UTC)
    for name, rows in {
        "x": [row("a", auroc=0.1), row("b", auroc=0.2)],
        "w": [row("a", auroc=0.3, ended=late), row("b", "failed", auroc=None, ended=late)],
    }.items():
        store.files.write(f"trials/sweep=grid/{name}.parquet", table_to_parquet(table_of(rows, COLUMNS)))
    assert load("grid", store.files)["auroc"].tolist() == [0.3, 0.2]
    store.prepare("grid", COLUMNS)
    assert len(pd.read_parquet(folder(store))) == 2


def test_history_overlays_by_trial_metric_and_epoch(store):
    store.write_history("grid", "c0", [("a", 1, "auroc", 0.1), ("a", 2, "auroc", math.nan)])
    store.write_history("grid", "c0", [("a", np.int64(2), "auroc", np.float32(0.25)), ("a", 10, "auroc", 0.3)])
    history = load_history("grid", store.files)
    assert history["epoch"].tolist() == [1, 2, 10] and history["value"].tolist() == [0.1, 0.25, 0.3]


def test_rows_are_in_the_requested_order(tmp_path: Path) -> None:
    store, columns = Store(tmp_path), Columns({"k": int}, ("knn",))
    for cohort, trials in {"x": "da", "y": "cb"}.items():
        store.write("grid", cohort, [{"trial_id": t, "status": "finished", "k": ord(t)} for t in trials], columns)
    rows = load_trials(store.files, "grid", ("c", "missing", "a", "d"))
    assert rows["trial_id"].tolist() == ["c", "a", "d"] and rows["k"].tolist() == [ord(t) for t in "cad"]
    assert rows.index.tolist() == [0, 1, 2]


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


RECORDS = st.lists(st.tuples(*(st.sampled_from(values) for values in ("ab", (1, 2), "kl", (0.1, 0.2)))), max_size=6)


@given(RECORDS, st.booleans())
def test_the_last_value_of_each_record_is_kept_in_order(records: list[tuple[str, int, str, float]], sort: bool) -> None:
    if sort:  # as in the files of a store
        records = sorted(records, key=lambda record: (record[0], record[2], record[1]))
    last = {(trial, metric, epoch): value for trial, epoch, metric, value in records}
    kept = [(trial, epoch, metric, value) for (trial, metric, epoch), value in sorted(last.items())]
    assert one_per_record(history_of(records)).equals(history_of(kept))
