"""The columns of a sweep's rows: fixed ones, hyperparameters with their own types, metrics as floats."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from sweeper.errors import SchemaError

FORMAT = "1"
"""Written into every file; a store of another format is refused, never guessed at."""
STATUSES = ("finished", "diverged", "pruned", "failed")

_TYPES = MappingProxyType({bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()})
_PYTHON = {arrow: python for python, arrow in _TYPES.items()}
_TIME = pa.timestamp("us", tz="UTC")
_FIXED = {
    "trial_id": pa.string(),
    "preset": pa.string(),
    "changes": pa.string(),
    "status": pa.string(),
    "error": pa.string(),
    "cohort": pa.string(),
    "cohort_size": pa.int64(),
    "epochs_run": pa.int64(),
    "seconds": pa.float64(),
    "device": pa.string(),
    "host": pa.string(),
    "code_version": pa.string(),
    "started": _TIME,
    "ended": _TIME,
}
_ADDED = ("preset", "changes")
"""Fixed columns that files of earlier versions lack; their rows have nulls there."""
HISTORY = pa.schema(
    {"trial_id": pa.string(), "epoch": pa.int64(), "metric": pa.string(), "value": pa.float64()},
    metadata={"sweeper.format": FORMAT},
)


@dataclass(frozen=True)
class Columns:
    """The columns of one sweep beside the fixed ones (status, times, host, ...)."""

    hyperparameters: Mapping[str, type]
    """Name -> bool, int, float or str, every one nullable; `method` and `dataset` are among them."""
    metrics: tuple[str, ...]
    """Names of float columns; a value that is missing or NaN is null."""

    def __post_init__(self) -> None:
        names = [*self.hyperparameters, *self.metrics]
        for name in names:
            if name in _FIXED or name == "sweep":
                raise ValueError(f"a column's name must not be one of the fixed ones, but got {name!r}")
            if names.count(name) > 1:
                raise ValueError(f"a column's name must be unique, but got {name!r} twice")
        for name, kind in self.hyperparameters.items():
            if kind not in _TYPES:
                raise ValueError(f"a hyperparameter is bool, int, float or str, but {name!r} is {kind!r}")

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a file: the trial, its hyperparameters, its metrics, how it went."""
        kinds = {name: _TYPES[kind] for name, kind in self.hyperparameters.items()}
        kinds |= dict.fromkeys(self.metrics, pa.float64())
        metadata = {"sweeper.format": FORMAT, "sweeper.metrics": json.dumps(self.metrics)}
        return pa.schema({"trial_id": pa.string(), **kinds, **_FIXED}, metadata=metadata)

    def union(self, other: "Columns") -> "Columns":
        """These columns, then those that only `other` has. Raises SchemaError where a shared one differs."""
        mine, theirs = self.schema, other.schema
        for name in (name for name in mine.names if name in theirs.names):
            if mine.field(name).type != theirs.field(name).type:
                raise SchemaError(
                    f"column {name!r} is {mine.field(name).type} there and {theirs.field(name).type} here"
                )
            if (name in self.metrics) != (name in other.metrics):
                raise SchemaError(f"column {name!r} is a metric in one and a hyperparameter in the other")
        added = tuple(metric for metric in other.metrics if metric not in self.metrics)
        return Columns({**self.hyperparameters, **other.hyperparameters}, self.metrics + added)


def columns_of(schema: pa.Schema) -> Columns:
    """The columns that a file was written with. Raises SchemaError where it was not written by this format."""
    metadata = schema.metadata or {}
    found = metadata.get(b"sweeper.format", b"none").decode()
    if found != FORMAT:
        raise SchemaError(f"the format is {found!r} there and {FORMAT!r} here")
    for name, kind in _FIXED.items():
        if name not in schema.names:
            if name in _ADDED:
                continue
            raise SchemaError(f"column {name!r} is missing there")
        if schema.field(name).type != kind:
            raise SchemaError(f"column {name!r} is {schema.field(name).type} there and {kind} here")
    metrics = tuple(json.loads(metadata.get(b"sweeper.metrics", b"[]")))
    others = [field for field in schema if field.name not in _FIXED and field.name not in metrics]
    for field in others:
        if field.type not in _PYTHON:
            raise SchemaError(f"column {field.name!r} is {field.type} there, which no hyperparameter is")
    return Columns({field.name: _PYTHON[field.type] for field in others}, metrics)
