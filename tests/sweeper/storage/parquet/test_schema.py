import pandas as pd
import pyarrow as pa
import pytest

from sweeper.errors import SchemaError
from sweeper.storage.load import load
from sweeper.storage.parquet_files import table_to_parquet
from sweeper.storage.rows import FIXED, Columns, columns_of, table_of
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
