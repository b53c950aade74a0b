"""Arrow tables of rows and history: built from plain values, and merged by trial."""

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sweeper.storage.parquet.schema import HISTORY, STATUSES, Columns, columns_of
from trainables.validation import nearest

WORTH_THREADS = 100_000
"""Records from which merging them takes longer than starting threads for it."""
_KINDS: Mapping[pa.DataType, type[float]] = {pa.float64(): float, pa.int64(): int}
"""Type of a column of numbers -> that of its plain values."""


def table_of(rows: Sequence[Mapping[str, object]], columns: Columns) -> pa.Table:
    """Convert rows to a table. A missing key becomes null. Raises ValueError for an unknown key or an invalid value."""
    schema = columns.schema
    names = dict.fromkeys(schema.names)
    for row in rows:
        _check_row(row, names)
    missing, values = (None,) * len(rows), _values_by_column(rows)
    data = [_array(values.get(name, missing), field) for name, field in zip(schema.names, schema, strict=True)]
    return pa.table(data, schema=schema)


def _values_by_column(rows: Sequence[Mapping[str, object]]) -> dict[str, Sequence[object]]:
    """Key of any of the rows -> its value in each row, None where a row lacks it."""
    if len({tuple(row) for row in rows}) == 1:  # as in the rows of a cohort
        return dict(zip(rows[0], zip(*(row.values() for row in rows), strict=True), strict=True))
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def conform(table: pa.Table, columns: Columns) -> pa.Table:
    """Return `table` with exactly these columns, in their order. Columns that it lacks are null."""
    schema = columns.schema
    data = [table[f.name] if f.name in table.schema.names else pa.nulls(len(table), f.type) for f in schema]
    return pa.table(data, schema=schema)


def history_of(records: Iterable[Sequence[object]]) -> pa.Table:
    """Convert (trial_id, epoch, metric, value) records to a table. NaN becomes null."""
    columns = list(zip(*records, strict=True)) or [()] * len(HISTORY)
    return pa.table([_array(values, field) for values, field in zip(columns, HISTORY, strict=True)], schema=HISTORY)


def concat_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables of rows. The result has the columns of all tables, null where a table lacks them.

    Raises SchemaError if a column has different types.
    """
    schemas = dict.fromkeys(table.schema.serialize().to_pybytes() for table in tables)
    columns = reduce(Columns.union, map(_columns_of, schemas))
    target = columns.schema
    return pa.concat_tables(table if table.schema == target else conform(table, columns) for table in tables)


@lru_cache(maxsize=8)
def _columns_of(schema: bytes) -> Columns:
    """As `columns_of`, of a serialized schema: nearly all files of a sweep have the same."""
    return columns_of(pa.ipc.read_schema(pa.py_buffer(schema)))


def one_per_trial(table: pa.Table) -> pa.Table:
    """Keep one row per trial: the last one that did not fail, or else the last one. Sorted by trial."""
    trials = table["trial_id"].to_pylist()
    if len(set(trials)) < len(trials):
        kept: dict[str, int] = {}
        statuses = table["status"].to_pylist()
        for index, trial in enumerate(trials):
            if statuses[index] != "failed" or statuses[kept.setdefault(trial, index)] == "failed":
                kept[trial] = index
        table = table.take(pa.array(kept.values(), pa.int64()))
    return table.sort_by("trial_id")


def one_per_record(history: pa.Table) -> pa.Table:
    """Keep the last value of each (trial, epoch, metric). Sorted by trial, then metric, then epoch."""
    keys = ["trial_id", "metric", "epoch"]
    order = history.append_column("order", pa.array(range(len(history)), pa.int64()))
    last = order.group_by(keys, use_threads=len(history) > WORTH_THREADS).aggregate([("order", "max")])["order_max"]
    return history.take(last).sort_by([(key, "ascending") for key in keys])


def merged_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge the rows of several files into one row per trial: the latest that did not fail, or else the latest."""
    rows = concat_rows(tables)
    ended = pc.fill_null(rows["ended"].cast(pa.int64()), -(2**63))  # rows without a time come first
    return one_per_trial(rows.take(pc.sort_indices(pa.table({"ended": ended}), sort_keys=[("ended", "ascending")])))


def rows_of(table: pa.Table, trials: Sequence[str]) -> pa.Table:
    return table.filter(pc.is_in(table["trial_id"], pa.array(trials, pa.string())))


def rows_except(table: pa.Table, trials: Sequence[str]) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["trial_id"], pa.array(trials, pa.string()))))


def _check_row(row: Mapping[str, object], names: Mapping[str, None]) -> None:
    """Raise ValueError for a key that is no column, a missing trial_id, an unknown status or a naive datetime."""
    if not row.keys() <= names.keys():
        name = next(name for name in row if name not in names)
        raise ValueError(f"a row has no column {name!r}{nearest(name, names)}")
    if not isinstance(row.get("trial_id"), str):
        raise ValueError(f"a row's trial_id must be a str, but got {row.get('trial_id')!r}")
    if row.get("status") not in STATUSES:
        raise ValueError(f"a row's status must be one of {', '.join(STATUSES)}, but got {row.get('status')!r}")
    for name in ("started", "ended"):
        value = row.get(name)
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"{name!r} must carry a time zone, but got {value!r}")


def _array(values: Sequence[object], field: pa.Field) -> pa.Array:
    """Convert a column of plain values. Raises ValueError if one of them does not have the field's type."""
    kind = _KINDS.get(field.type)
    try:
        if kind and not {*map(type, values)} <= {kind, type(None)}:  # of plain values, Arrow makes the same
            values = [_number(value, kind) for value in values]
        return pa.array(values, field.type, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"column {field.name!r} must hold {field.type}, but got another value: {error}") from error


def _number(value: Any, kind: type[float]) -> float | None:
    """Convert a number, NumPy's included, to `kind`, and NaN to None.

    Raises TypeError for anything else, such as a fraction for an int, which Arrow would truncate.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral if kind is int else numbers.Real):
        raise TypeError(repr(value))
    number = kind(value)
    return None if math.isnan(number) else number
