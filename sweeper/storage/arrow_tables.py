"""Rows as Arrow tables: made from plain mappings, laid over each other by trial, and Parquet bytes and back."""

import difflib
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

Records = Mapping[str, Iterable[object]] | Iterable[Sequence[object]]
"""A history: (trial_id, epoch, metric, value) tuples, or these four columns by name."""


def table_of(rows: Sequence[Mapping[str, object]], columns: Columns) -> pa.Table:
    """The rows as a table; keys left out are null. Raises ValueError on a value that does not fit."""
    schema = columns.schema
    names = dict.fromkeys(schema.names)
    for row in rows:
        _check(row, names)
    data = [_array([row.get(field.name) for row in rows], field) for field in schema]
    return pa.table(data, schema=schema)


def conform(table: pa.Table, columns: Columns) -> pa.Table:
    """`table` with exactly these columns, in their order; those it lacks are null."""
    schema = columns.schema
    data = [table[f.name] if f.name in table.schema.names else pa.nulls(len(table), f.type) for f in schema]
    return pa.table(data, schema=schema)


def history_of(records: Records) -> pa.Table:
    """The records as a table; NaN is null."""
    if isinstance(records, Mapping):
        lists = {name: list(records[name]) for name in HISTORY.names}
    else:
        rows = list(records)
        lists = {name: [row[index] for row in rows] for index, name in enumerate(HISTORY.names)}
    return pa.table([_array(lists[field.name], field) for field in HISTORY], schema=HISTORY)


def to_bytes(table: pa.Table) -> bytes:
    """The table as a Parquet file with a checksum in each page, for any reader, and a digest of the whole, for
    `from_bytes`; equal tables give equal bytes."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return add_digest(sink.getvalue())


def from_bytes(data: bytes, names: list[str] | None = None) -> tuple[pa.Schema, pa.Table]:
    """The schema of a Parquet file, and its rows in these columns of it (None: all).

    DamagedError if it is no Parquet file, or its digest or a checksum does not match. A file without a digest is read
    whole whichever columns are wanted, so that what is damaged in it shows as far as it can.
    """
    known = has_digest(data)
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            schema = file.schema_arrow
            there = None if names is None else [name for name in names if name in schema.names]
            table = file.read(columns=there if known else None, use_threads=False)
            return schema, table if there is None else table.select(there)
    except (pa.ArrowException, OSError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedError(f"it is not a whole Parquet file ({why})") from error


def unite(tables: Sequence[pa.Table]) -> pa.Table:
    """The tables beneath each other with the columns of all, null where one lacks them. SchemaError if types differ."""
    distinct = {table.schema.serialize().to_pybytes(): table.schema for table in tables}
    columns = reduce(Columns.union, map(columns_of, distinct.values()))
    target = columns.schema
    return pa.concat_tables(table if table.schema == target else conform(table, columns) for table in tables)


def one_per_trial(table: pa.Table) -> pa.Table:
    """The last row of each trial, a result before any failure, sorted by trial."""
    trials = table["trial_id"].to_pylist()
    if len(set(trials)) < len(trials):
        chosen: dict[str, int] = {}
        statuses = table["status"].to_pylist()
        for index, trial in enumerate(trials):
            if statuses[index] != "failed" or statuses[chosen.setdefault(trial, index)] == "failed":
                chosen[trial] = index
        table = table.take(pa.array(chosen.values(), pa.int64()))
    return table.sort_by("trial_id")


def one_per_record(history: pa.Table) -> pa.Table:
    """The last value of each (trial, epoch, metric), sorted by these."""
    keys = ["trial_id", "metric", "epoch"]
    order = history.append_column("order", pa.array(range(len(history)), pa.int64()))
    last = order.group_by(keys).aggregate([("order", "max")])["order_max"]
    return history.take(last).sort_by([(key, "ascending") for key in keys])


def merged_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows, one a trial: a result before a failure, then the one that ended last."""
    return one_per_trial(by_end(unite(tables)))


def by_end(table: pa.Table) -> pa.Table:
    """The rows in the order in which they ended; those that did not say when, first."""
    ended = pc.fill_null(table["ended"].cast(pa.int64()), -(2**63))
    return table.take(pc.sort_indices(pa.table({"ended": ended}), sort_keys=[("ended", "ascending")]))


def only(table: pa.Table, trials: Sequence[str]) -> pa.Table:
    """The rows of these trials."""
    return table.filter(pc.is_in(table["trial_id"], pa.array(trials, pa.string())))


def without(table: pa.Table, trials: Sequence[str]) -> pa.Table:
    """The rows of all other trials."""
    return table.filter(pc.invert(pc.is_in(table["trial_id"], pa.array(trials, pa.string()))))


def _check(row: Mapping[str, object], names: Mapping[str, None]) -> None:
    for name in row:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            raise ValueError(f"a row has no column {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    if not isinstance(row.get("trial_id"), str):
        raise ValueError(f"a row's trial_id must be a str, but got {row.get('trial_id')!r}")
    if row.get("status") not in STATUSES:
        raise ValueError(f"a row's status is one of {', '.join(STATUSES)}, but got {row.get('status')!r}")
    for name in ("started", "ended"):
        value = row.get(name)
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"{name!r} must carry a time zone, but got {value!r}")


def _array(values: list[object], field: pa.Field) -> pa.Array:
    try:
        if field.type == pa.float64():
            values = [_number(value) for value in values]
        elif field.type == pa.int64():
            values = [_whole_number(value) for value in values]
        return pa.array(values, field.type, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"column {field.name!r} takes {field.type}, but got another value: {error}") from error


def _whole_number(value: object) -> int | None:
    """A plain int; null instead of NaN. A fraction is refused, where Arrow would cut it off."""
    if type(value) is int:  # nearly all are: the rest of the questions take ten times as long
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(repr(value))
    return int(value)


def _number(value: object) -> float | None:
    """A plain float, of numpy's numbers too; null instead of NaN."""
    if type(value) is float:
        return None if math.isnan(value) else value
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(repr(value))
    number = float(value)
    return None if math.isnan(number) else number
