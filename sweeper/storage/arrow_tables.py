"""Arrow tables of rows and history: built from plain values, merged by trial, and converted to and from Parquet."""

import io
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sweeper.errors import DamagedError
from sweeper.storage.digest import add_digest, has_digest
from sweeper.storage.schema import HISTORY, STATUSES, Columns, columns_of
from trainables.validation import nearest

Records = Mapping[str, Iterable[object]] | Iterable[Sequence[object]]
"""A history: either (trial_id, epoch, metric, value) tuples, or a mapping of these four names to columns."""


def table_of(rows: Sequence[Mapping[str, object]], columns: Columns) -> pa.Table:
    """Convert rows to a table. A missing key becomes null. Raises ValueError for an unknown key or an invalid value."""
    schema = columns.schema
    names = dict.fromkeys(schema.names)
    for row in rows:
        _check_row(row, names)
    data = [_array([row.get(field.name) for row in rows], field) for field in schema]
    return pa.table(data, schema=schema)


def conform(table: pa.Table, columns: Columns) -> pa.Table:
    """Return `table` with exactly these columns, in their order. Columns that it lacks are null."""
    schema = columns.schema
    data = [table[f.name] if f.name in table.schema.names else pa.nulls(len(table), f.type) for f in schema]
    return pa.table(data, schema=schema)


def history_of(records: Records) -> pa.Table:
    """Convert records to a table. NaN becomes null."""
    if isinstance(records, Mapping):
        values = {name: list(records[name]) for name in HISTORY.names}
    else:
        rows = list(records)
        values = {name: [row[index] for row in rows] for index, name in enumerate(HISTORY.names)}
    return pa.table([_array(values[field.name], field) for field in HISTORY], schema=HISTORY)


def table_to_parquet(table: pa.Table) -> bytes:
    """Return the table as the bytes of a Parquet file. Equal tables give equal bytes.

    Each page carries a checksum, which any reader can verify. The file also carries a digest of all its bytes, which
    `parquet_to_table` verifies.
    """
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return add_digest(sink.getvalue())


def parquet_to_table(data: bytes, names: list[str] | None = None) -> tuple[pa.Schema, pa.Table]:
    """Return the schema of a Parquet file and its rows, restricted to the columns `names` (None: all columns).

    Names that the file lacks are ignored. Raises DamagedError if `data` is not a Parquet file, or if its digest or a
    page's checksum does not match. All columns of a file without a digest are read, even those that are not wanted, so
    that the page checksums reveal damage anywhere in it.
    """
    verified = has_digest(data)
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            schema = file.schema_arrow
            present = None if names is None else [name for name in names if name in schema.names]
            table = file.read(columns=present if verified else None, use_threads=False)
            return schema, table if present is None else table.select(present)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedError(f"it is not a whole Parquet file ({reason})") from error


def concat_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables of rows. The result has the columns of all tables, null where a table lacks them.

    Raises SchemaError if a column has different types.
    """
    schemas = {table.schema.serialize().to_pybytes(): table.schema for table in tables}
    columns = reduce(Columns.union, map(columns_of, schemas.values()))
    target = columns.schema
    return pa.concat_tables(table if table.schema == target else conform(table, columns) for table in tables)


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
    last = order.group_by(keys).aggregate([("order", "max")])["order_max"]
    return history.take(last).sort_by([(key, "ascending") for key in keys])


def merged_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge the rows of several files into one row per trial: the latest that did not fail, or else the latest."""
    return one_per_trial(sort_by_end(concat_rows(tables)))


def sort_by_end(table: pa.Table) -> pa.Table:
    """Sort the rows by the time they ended. Rows without a time come first."""
    ended = pc.fill_null(table["ended"].cast(pa.int64()), -(2**63))
    return table.take(pc.sort_indices(pa.table({"ended": ended}), sort_keys=[("ended", "ascending")]))


def rows_of(table: pa.Table, trials: Sequence[str]) -> pa.Table:
    """Return the rows of these trials."""
    return table.filter(pc.is_in(table["trial_id"], pa.array(trials, pa.string())))


def rows_except(table: pa.Table, trials: Sequence[str]) -> pa.Table:
    """Return the rows of all other trials."""
    return table.filter(pc.invert(pc.is_in(table["trial_id"], pa.array(trials, pa.string()))))


def _check_row(row: Mapping[str, object], names: Mapping[str, None]) -> None:
    """Raise ValueError for a key that is no column, a missing trial_id, an unknown status or a naive datetime."""
    for name in row:
        if name not in names:
            raise ValueError(f"a row has no column {name!r}{nearest(name, names)}")
    if not isinstance(row.get("trial_id"), str):
        raise ValueError(f"a row's trial_id must be a str, but got {row.get('trial_id')!r}")
    if row.get("status") not in STATUSES:
        raise ValueError(f"a row's status must be one of {', '.join(STATUSES)}, but got {row.get('status')!r}")
    for name in ("started", "ended"):
        value = row.get(name)
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"{name!r} must carry a time zone, but got {value!r}")


def _array(values: list[object], field: pa.Field) -> pa.Array:
    """Convert a column of plain values. Raises ValueError if one of them does not have the field's type."""
    try:
        if field.type == pa.float64():
            values = [_number(value) for value in values]
        elif field.type == pa.int64():
            values = [_whole_number(value) for value in values]
        return pa.array(values, field.type, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"column {field.name!r} must hold {field.type}, but got another value: {error}") from error


def _whole_number(value: object) -> int | None:
    """Return a plain int, or None for None and NaN. Raises TypeError for a fraction, which Arrow would truncate."""
    if type(value) is int:  # the usual case, ten times as fast as the checks below
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(repr(value))
    return int(value)


def _number(value: object) -> float | None:
    """Return a plain float, or None for None and NaN. Accepts NumPy numbers. Raises TypeError for anything else."""
    if type(value) is float:
        return None if math.isnan(value) else value
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(repr(value))
    number = float(value)
    return None if math.isnan(number) else number
