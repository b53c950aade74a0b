"""Columns of a sweep, and rows as Arrow tables."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sweeper.errors import SchemaError
from sweeper.storage.load import load
from sweeper.storage.parquet_files import table_to_parquet
from sweeper.storage.rows import (
    FIXED,
    Columns,
    columns_of,
    conform,
    one_per_trial,
    plain_value,
    rows_except,
    rows_of,
    table_of,
)
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, row

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


@pytest.mark.parametrize("null", [None, float("nan"), np.float32("nan"), pd.NaT, pd.NA, np.datetime64("NaT")])
def test_every_null_is_none(null: object) -> None:
    assert plain_value(null) is None


@pytest.mark.parametrize("value", [np.int64(3), np.bool_(True), np.float64(0.5), "NaT", 0, False, pd.Timestamp(0)])
def test_a_value_is_one_of_python(value: object) -> None:
    plain = plain_value(value)
    assert plain == value and not isinstance(plain, np.integer | np.bool_) and type(plain) is not np.float64
