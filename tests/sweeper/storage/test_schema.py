import pytest

from sweeper.errors import SchemaError
from sweeper.storage.schema import Columns, columns_of
from tests.sweeper.storage.rows import COLUMNS


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
