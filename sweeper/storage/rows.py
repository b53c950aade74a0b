"""Rows and history as Arrow tables: their columns, built from plain values, and merged by trial.

A row has fixed columns, hyperparameters with their own types, and metrics as floats.
"""

import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial, reduce
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sweeper.errors import SchemaError
from sweeper.names import LAW, PATTERN, is_name
from trainables.json_input import JsonError, read_json
from trainables.validation import nearest

FORMAT = "1"
"""Version of the file format, written into every file. A file of another version raises SchemaError."""
MAX_COLUMNS = 5000
"""Most columns of the files of a sweep."""
MAX_METHODS = 1000
"""Most methods of a sweep."""
MAX_CELLS = 1 << 28
"""Most values of a file that is read, and of the files of a sweep. A file of a kilobyte can declare billions."""
STATUSES = ("finished", "diverged", "pruned", "failed")

KeyDefaults = Mapping[str, bool | int | float | str | None]
"""Key -> its value in trials that leave it at its default."""
_TYPES = MappingProxyType({bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()})
_PYTHON = {arrow: python for python, arrow in _TYPES.items()}
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class FixedColumn:
    """A column that the rows of every sweep have."""

    type: pa.DataType
    meaning: str
    provenance: bool = False
    """Whether two runs of one trial may differ in it though their results are equal."""
    added: bool = False
    """Whether files of earlier versions lack it. Their rows are null there."""


def _run(arrow_type: pa.DataType, meaning: str, added: bool = False) -> FixedColumn:
    """A column that says how a trial ran."""
    return FixedColumn(arrow_type, meaning, provenance=True, added=added)


FIXED: Mapping[str, FixedColumn] = {
    "trial_id": FixedColumn(pa.string(), "hash of the method, data set, hyperparameters and seed"),
    "preset": FixedColumn(pa.string(), "preset of the request that first asked for the trial", added=True),
    "changes": FixedColumn(pa.string(), "what that request changed in its preset, such as `epochs=100`", added=True),
    "status": FixedColumn(pa.string(), "`finished`, `diverged`, `pruned` or `failed`"),
    "error": FixedColumn(pa.string(), "why the trial failed, diverged or was pruned; else null"),
    "cohort": FixedColumn(pa.string(), "id of the cohort: the trials that were trained together"),
    "cohort_size": FixedColumn(pa.int64(), "number of trials in the cohort"),
    "epochs_run": FixedColumn(pa.int64(), "epochs that the trial trained"),
    "seconds": _run(pa.float64(), "the trial's share of its cohort's training time"),
    "device_seconds": _run(
        pa.float64(),
        "`seconds` times the GPUs (without GPUs: cores) that the cohort reserved, such as 0.25 for a quarter of a GPU",
        added=True,
    ),
    "cost": _run(
        pa.float64(),
        "price of the device seconds, where a node's price is divided equally among its devices. Evaluation, idle time "
        "and lost attempts are not included. Null without `--node-price`",
        added=True,
    ),
    "device": _run(pa.string(), "device that trained the trial, as the training process saw it"),
    "host": _run(pa.string(), "machine of the training process"),
    "user": _run(
        pa.string(),
        "user who began the run, or submitted its job: the account, or `SWEEPER_USER` where that is set",
        added=True,
    ),
    "code_version": _run(pa.string(), "version and commit, with `.dirty` for a checkout with uncommitted changes"),
    "python": _run(pa.string(), "version of Python in the training process", added=True),
    "torch": _run(pa.string(), "version of PyTorch", added=True),
    "cuda": _run(pa.string(), "version of CUDA that PyTorch was built for; null on a CPU", added=True),
    "driver": _run(pa.string(), "version of the GPU's driver; null on a CPU", added=True),
    "compiled": _run(pa.bool_(), "whether its training steps were compiled", added=True),
    "started": _run(_TIME, "when training began"),
    "ended": _run(_TIME, "when training ended"),
}
"""Name of each column that all rows have, beside hyperparameters and metrics -> the column, in the order of a file."""
PROVENANCE = tuple(name for name, column in FIXED.items() if column.provenance)
"""Columns in which two runs of one trial may differ though their results are equal: how long it took, what it cost,
where, when and with what it ran."""
STUDY_COLUMNS: dict[str, type] = {"study": str, "study_id": str, "number": int, "wave": int, "schedule": str}
"""Columns of a search's rows that are recorded beside the hyperparameters."""
QUESTIONS = ("study", "dataset", "image_digest")
"""Columns whose values are different questions: their trials are not compared."""
HISTORY = pa.schema(
    {"trial_id": pa.string(), "epoch": pa.int64(), "metric": pa.string(), "value": pa.float64()},
    metadata={"sweeper.format": FORMAT},
)
"""The schema of every history file."""


IDS = ("trial_id", "study_id", "cohort")
"""Columns of ids, which become names of files."""
LONGEST_ID = 200
"""Most characters of an id: file systems take names of 255 bytes, to which suffixes are appended."""
AMOUNTS = ("seconds", "device_seconds", "cost")
"""Columns of numbers of which the sum over all rows is finite."""
MOST_AMOUNT = 1e15
COUNTS = ("cohort_size", "epochs_run", "epoch", "number")
"""Columns of whole numbers from 0 to `MOST`."""
MOST = 2**31 - 1
TIMES = ("started", "ended")
"""Columns of times from `EARLIEST` to `LATEST`: Python has none after the year 9999, in any time zone."""
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
JUDGED = (*IDS, *AMOUNTS, *COUNTS, *TIMES, "status", "metric")
"""Columns by whose values a file of rows or history is judged when it is read."""


def odd_value(table: pa.Table) -> str | None:
    """Return why a table of rows or history has a value that no run writes; None if it has none. Columns of another
    type than a run writes are left to `columns_of`."""
    for names, kind, law in (
        (IDS, pa.string(), _odd_id),
        (AMOUNTS, pa.float64(), partial(_outside, -MOST_AMOUNT, MOST_AMOUNT)),
        (COUNTS, pa.int64(), partial(_outside, 0, MOST)),
        (TIMES, _TIME, partial(_outside, EARLIEST, LATEST)),
    ):
        for name in names:
            if name in table.schema.names and table.schema.field(name).type == kind and (odd := law(table[name])):
                return f"its column {name} {odd}"
    return None


def is_id(text: str) -> bool:
    """Whether a trial or a study can have this id."""
    return is_name(text) and len(text) <= LONGEST_ID


def _odd_id(ids: pa.ChunkedArray) -> str | None:
    known = pc.unique(ids).drop_null()
    matching = pc.match_substring_regex(known, rf"\A{PATTERN}\z")
    fits = pc.and_(matching, pc.less_equal(pc.utf8_length(known), LONGEST_ID))
    odd = known.filter(pc.invert(fits))
    return f"has the id {odd[0].as_py()!r:.60}, but an id {LAW}, at most {LONGEST_ID} of them" if len(odd) else None


def _outside(low: object, high: object, values: pa.ChunkedArray) -> str | None:
    odd = pc.any(pc.or_(pc.less(values, pa.scalar(low, values.type)), pc.greater(values, pa.scalar(high, values.type))))
    return f"has a value that is not from {low} to {high}" if odd.as_py() else None


IDENTITY = ("trial_id", "dataset", "image_digest", "weights")
"""Columns of text of evaluations, beside their metrics: the trial, the data that it is evaluated on, with the hash of
their content if they are the user's own, and the hash of the model's weights."""


def is_evaluations(schema: pa.Schema) -> bool:
    """Whether a file of evaluations has these columns."""
    types = dict(zip(schema.names, schema.types, strict=True))
    return {*IDENTITY} <= types.keys() and all(
        kind == (pa.string() if name in IDENTITY else pa.float64()) for name, kind in types.items()
    )


@dataclass(frozen=True)
class Columns:
    """The columns of one sweep in addition to the fixed ones (status, times, host, ...).

    Raises ValueError for a name that is taken, or a type that is not supported.
    """

    hyperparameters: Mapping[str, type]
    """Name -> bool, int, float or str. All are nullable. `method` and `dataset` are among them."""
    metrics: tuple[str, ...]
    """Names of the float columns. A missing value or NaN is null."""
    defaults: Mapping[str, KeyDefaults] = field(default_factory=dict)
    """Method -> the values of those keys that rows of earlier versions lack where a trial has them."""

    def __post_init__(self) -> None:
        names = [*self.hyperparameters, *self.metrics]
        for name in names:
            if name in FIXED or name == "sweep":
                raise ValueError(f"a column's name must not be that of a fixed column, but got {name!r}")
            if names.count(name) > 1:
                raise ValueError(f"a column's name must be unique, but got {name!r} twice")
        for name, python_type in self.hyperparameters.items():
            if python_type not in _TYPES:
                raise ValueError(f"a hyperparameter must be bool, int, float or str, but {name!r} is {python_type!r}")

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a file: trial_id, the hyperparameters, the metrics, then the other fixed columns."""
        types = {name: _TYPES[python_type] for name, python_type in self.hyperparameters.items()}
        types |= dict.fromkeys(self.metrics, pa.float64())
        metadata = {"sweeper.format": FORMAT, "sweeper.metrics": json.dumps(self.metrics)}
        metadata["sweeper.defaults"] = json.dumps({name: dict(keys) for name, keys in self.defaults.items()})
        fixed = {name: column.type for name, column in FIXED.items()}
        return pa.schema({"trial_id": pa.string(), **types, **fixed}, metadata=metadata)

    def union(self, other: "Columns") -> "Columns":
        """Return these columns, followed by those that only `other` has. Raises SchemaError if a shared one differs."""
        mine, theirs = self.schema, other.schema
        for name in (name for name in mine.names if name in theirs.names):
            if mine.field(name).type != theirs.field(name).type:
                raise SchemaError(
                    f"column {name!r} must have one type, but is {mine.field(name).type} in some rows and "
                    f"{theirs.field(name).type} in others"
                )
            if (name in self.metrics) != (name in other.metrics):
                raise SchemaError(f"column {name!r} is a metric of some rows and a hyperparameter of others")
        if (count := len({*mine.names, *theirs.names})) > MAX_COLUMNS:
            raise SchemaError(
                f"the files of a sweep must have at most {MAX_COLUMNS} columns together, but have {count}"
            )
        added = tuple(metric for metric in other.metrics if metric not in self.metrics)
        defaults = {
            method: {**self.defaults.get(method, {}), **other.defaults.get(method, {})}
            for method in dict.fromkeys((*self.defaults, *other.defaults))
        }
        return Columns({**self.hyperparameters, **other.hyperparameters}, self.metrics + added, defaults)


def columns_of(schema: pa.Schema) -> Columns:
    """Return the columns that a file was written with. Raises SchemaError if it does not have this format."""
    metadata = schema.metadata or {}
    version = metadata.get(b"sweeper.format", b"none").decode(errors="replace")[:40]
    if version != FORMAT:
        raise SchemaError(f"the file format must be {FORMAT!r}, but is {version!r}")
    for name, column in FIXED.items():
        if name not in schema.names:
            if column.added:
                continue
            raise SchemaError(f"column {name!r} is missing")
        if schema.field(name).type != column.type:
            raise SchemaError(f"column {name!r} must be {column.type}, but is {schema.field(name).type}")
    if len(set(schema.names)) < len(schema.names) or len(schema.names) > MAX_COLUMNS:
        raise SchemaError(f"its {len(schema.names)} columns must have different names and be at most {MAX_COLUMNS}")
    try:
        metrics = tuple(read_json(list[str], metadata.get(b"sweeper.metrics", b"[]")))
        defaults = read_json(Mapping[str, KeyDefaults], metadata.get(b"sweeper.defaults", b"{}"))
    except JsonError as error:
        raise SchemaError(f"its list of metrics or of defaults is damaged: {error}") from error
    for metric in metrics:
        if metric not in schema.names or schema.field(metric).type != pa.float64():
            raise SchemaError(f"metric {metric!r:.40} must be a column of numbers")
    hyperparameters = [own for own in schema if own.name not in FIXED and own.name not in metrics]
    for own in hyperparameters:
        if own.type not in _PYTHON:
            kinds = ", ".join(map(str, _PYTHON))
            raise SchemaError(f"hyperparameter {own.name!r} must be {kinds}, but is {own.type}")
    try:
        return Columns({own.name: _PYTHON[own.type] for own in hyperparameters}, metrics, defaults)
    except ValueError as error:
        raise SchemaError(str(error)) from error


_KINDS: Mapping[pa.DataType, type[float]] = {pa.float64(): float, pa.int64(): int}
"""Type of a column of numbers -> that of its plain values."""


def table_of(rows: Sequence[Mapping[str, object]], columns: Columns) -> pa.Table:
    """Convert rows to a table. A missing key becomes null. Raises ValueError for an unknown key or an invalid value."""
    methods = {row.get("method") for row in rows}
    own = {method: keys for method, keys in columns.defaults.items() if method in methods}
    schema = replace(columns, defaults=own).schema
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
    """Return `table` with exactly these columns, in their order. Keys that it lacks have the defaults of each row's
    method; other columns that it lacks are null."""
    schema = columns.schema
    data = [table[f.name] if f.name in table.schema.names else pa.nulls(len(table), f.type) for f in schema]
    return _with_defaults(pa.table(data, schema=schema), columns)


def history_of(records: Iterable[Sequence[object]]) -> pa.Table:
    """Convert (trial_id, epoch, metric, value) records to a table. NaN becomes null."""
    columns = list(zip(*records, strict=True)) or [()] * len(HISTORY)
    return pa.table([_array(values, field) for values, field in zip(columns, HISTORY, strict=True)], schema=HISTORY)


def concat_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables of rows, each with the columns of all (see `conform`).

    Raises SchemaError if a column has different types.
    """
    schemas = dict.fromkeys(table.schema.serialize().to_pybytes() for table in tables)
    columns = reduce(Columns.union, map(columns_of_serialized, schemas))
    width, count = len(columns.schema.names), sum(map(len, tables))
    if count * width > MAX_CELLS:
        raise SchemaError(f"{count} rows of {width} columns must be at most {MAX_CELLS} values together")
    return conform(pa.concat_tables(tables, promote_options="default"), columns)


def _with_defaults(rows: pa.Table, columns: Columns) -> pa.Table:
    """Return the rows with the defaults that ids leave out in place of nulls. Rows of earlier versions lack them."""
    incomplete = [name for name in columns.hyperparameters if rows[name].null_count]
    if not incomplete or columns.hyperparameters.get("method") is not str:
        return rows
    methods = pc.drop_null(pc.unique(rows["method"])).to_pylist()
    if len(methods) > MAX_METHODS:
        raise SchemaError(f"a sweep must have at most {MAX_METHODS} methods, but has {len(methods)}")
    for method in methods:
        own = pc.fill_null(pc.equal(rows["method"], pa.scalar(method, pa.string())), False)
        for key, value in _defaults_of(method, rows.select(incomplete).filter(own), columns).items():
            kind = columns.hyperparameters.get(key)
            if kind is not None and isinstance(value, int | float if kind is float else kind):
                missing = pc.and_(own, rows[key].is_null())
                filled = pc.if_else(missing, pa.scalar(value, rows[key].type), rows[key])
                rows = rows.set_column(rows.schema.get_field_index(key), rows.schema.field(key), filled)
    return rows


def _defaults_of(method: str, rows: pa.Table, columns: Columns) -> KeyDefaults:
    """Return the defaults of those keys that some of a method's `rows` lack, of which only the columns with nulls are
    given: as files of the sweep record them or, if all of these are of earlier versions, as this version of the code
    has them."""
    lacking = {name: rows[name].null_count for name in rows.schema.names if rows[name].null_count}
    if not lacking:
        return {}
    defaults = columns.defaults.get(method)
    if defaults is None:
        from trainables.config import left_out_of  # here: it imports torch

        recorded = [name for name in columns.hyperparameters if lacking.get(name, 0) < len(rows)]
        defaults = left_out_of(method, recorded)
    return {key: defaults[key] for key in lacking if key in defaults}


@lru_cache(maxsize=64)
def columns_of_serialized(schema: bytes) -> Columns:
    """As `columns_of`, of a serialized schema: nearly all files of a sweep have the same."""
    return columns_of(pa.ipc.read_schema(pa.py_buffer(schema)))


def one_per_trial(table: pa.Table, order: Sequence[int] | None = None) -> pa.Table:
    """Keep one row per trial: the last one that did not fail, or else the last one. Sorted by trial.

    `order` has the indices of the rows from the first to the last; by default it is that of the table.
    """
    kept: dict[str, int] = {}
    trials, statuses = table["trial_id"].to_pylist(), table["status"].to_pylist()
    for index in range(len(table)) if order is None else order:
        if statuses[index] != "failed" or statuses[kept.setdefault(trials[index], index)] == "failed":
            kept[trials[index]] = index
    indices = [kept[trial] for trial in sorted(kept)]
    return table if indices == list(range(len(table))) else table.take(pa.array(indices, pa.int64()))


def one_per_record(history: pa.Table) -> pa.Table:
    """Keep the last value of each (trial, epoch, metric). Sorted by trial, then metric, then epoch."""
    keys = ["trial_id", "metric", "epoch"]
    records = history.sort_by([(key, "ascending") for key in keys])  # stable
    last = reduce(pc.or_, (pc.not_equal(records[key][:-1], records[key][1:]) for key in keys))
    if pc.all(last, min_count=0).as_py():
        return records
    return records.filter(pa.chunked_array([*last.chunks, pa.array([True])]))


def merged_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge the rows of several files into one row per trial: the latest that did not fail, or else the latest."""
    rows = concat_rows(tables)
    if pc.count_distinct(rows["trial_id"]).as_py() == len(rows):
        return rows.sort_by("trial_id")
    ended = pc.fill_null(rows["ended"].cast(pa.int64()), -(2**63))  # rows without a time come first
    order = pc.sort_indices(pa.table({"ended": ended}), sort_keys=[("ended", "ascending")])
    return one_per_trial(rows, order.to_pylist())


def rows_of(table: pa.Table, trials: Sequence[str]) -> pa.Table:
    return table.filter(pc.is_in(table["trial_id"], pa.array(trials, pa.string())))


def rows_except(table: pa.Table, trials: Sequence[str]) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["trial_id"], pa.array(trials, pa.string()))))


def _check_row(row: Mapping[str, object], names: Mapping[str, None]) -> None:
    """Raise ValueError for a key that is no column, an odd trial_id, an unknown status or a naive datetime."""
    if not row.keys() <= names.keys():
        name = next(name for name in row if name not in names)
        raise ValueError(f"a row has no column {name!r}{nearest(name, names)}")
    if not isinstance(row.get("trial_id"), str):
        raise ValueError(f"a row's trial_id must be a str, but got {row.get('trial_id')!r}")
    if not is_id(str(row["trial_id"])):
        raise ValueError(f"a row's trial_id {LAW}, at most {LONGEST_ID} of them, but got {row['trial_id']!r:.60}")
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


def plain_value(value: Any) -> Any:
    """The value as one of Python, and None for every null (None, NaN, NaT and NA), so that values of two tables are
    equal and hash alike."""
    if value is None or type(value).__name__ == "NAType" or value != value:  # a comparison with NA has no truth value
        return None
    return value.item() if hasattr(value, "item") else value
