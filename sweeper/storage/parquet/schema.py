"""The columns of a sweep's rows: fixed columns, hyperparameters with their own types, and metrics as floats."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import pyarrow as pa

from sweeper.errors import SchemaError
from trainables.json_input import JsonError, read_json

FORMAT = "1"
"""Version of the file format, written into every file. A file of another version raises SchemaError."""
MAX_COLUMNS = 5000
"""Most columns of a file that is read."""
STATUSES = ("finished", "diverged", "pruned", "failed")

_TYPES = MappingProxyType({bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()})
_PYTHON = {arrow: python for python, arrow in _TYPES.items()}
_TIME = pa.timestamp("us", tz="UTC")
_PROVENANCE = {
    "seconds": pa.float64(),
    "device_seconds": pa.float64(),
    "cost": pa.float64(),
    "device": pa.string(),
    "host": pa.string(),
    "code_version": pa.string(),
    "python": pa.string(),
    "torch": pa.string(),
    "cuda": pa.string(),
    "driver": pa.string(),
    "compiled": pa.bool_(),
    "started": _TIME,
    "ended": _TIME,
}
PROVENANCE = tuple(_PROVENANCE)
"""Columns in which two runs of one trial may differ though their results are equal: how long it took, what it cost,
where, when and with what it ran."""
_FIXED = {
    "trial_id": pa.string(),
    "preset": pa.string(),
    "changes": pa.string(),
    "status": pa.string(),
    "error": pa.string(),
    "cohort": pa.string(),
    "cohort_size": pa.int64(),
    "epochs_run": pa.int64(),
    **_PROVENANCE,
}
_ADDED = ("preset", "changes", "device_seconds", "cost", "python", "torch", "cuda", "driver", "compiled")
"""Fixed columns that files of earlier versions lack. Their rows are null there."""
HISTORY = pa.schema(
    {"trial_id": pa.string(), "epoch": pa.int64(), "metric": pa.string(), "value": pa.float64()},
    metadata={"sweeper.format": FORMAT},
)
"""The schema of every history file."""


@dataclass(frozen=True)
class Columns:
    """The columns of one sweep in addition to the fixed ones (status, times, host, ...).

    Raises ValueError for a name that is taken, or a type that is not supported.
    """

    hyperparameters: Mapping[str, type]
    """Name -> bool, int, float or str. All are nullable. `method` and `dataset` are among them."""
    metrics: tuple[str, ...]
    """Names of the float columns. A missing value or NaN is null."""

    def __post_init__(self) -> None:
        names = [*self.hyperparameters, *self.metrics]
        for name in names:
            if name in _FIXED or name == "sweep":
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
        return pa.schema({"trial_id": pa.string(), **types, **_FIXED}, metadata=metadata)

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
        added = tuple(metric for metric in other.metrics if metric not in self.metrics)
        return Columns({**self.hyperparameters, **other.hyperparameters}, self.metrics + added)


def columns_of(schema: pa.Schema) -> Columns:
    """Return the columns that a file was written with. Raises SchemaError if it does not have this format."""
    metadata = schema.metadata or {}
    version = metadata.get(b"sweeper.format", b"none").decode(errors="replace")[:40]
    if version != FORMAT:
        raise SchemaError(f"the file format must be {FORMAT!r}, but is {version!r}")
    for name, arrow_type in _FIXED.items():
        if name not in schema.names:
            if name in _ADDED:
                continue
            raise SchemaError(f"column {name!r} is missing")
        if schema.field(name).type != arrow_type:
            raise SchemaError(f"column {name!r} must be {arrow_type}, but is {schema.field(name).type}")
    if len(set(schema.names)) < len(schema.names) or len(schema.names) > MAX_COLUMNS:
        raise SchemaError(f"its {len(schema.names)} columns must have different names and be at most {MAX_COLUMNS}")
    try:
        metrics = tuple(read_json(list[str], metadata.get(b"sweeper.metrics", b"[]")))
    except JsonError as error:
        raise SchemaError(f"its list of metrics is damaged: {error}") from error
    for metric in metrics:
        if metric not in schema.names or schema.field(metric).type != pa.float64():
            raise SchemaError(f"metric {metric!r:.40} must be a column of numbers")
    hyperparameters = [field for field in schema if field.name not in _FIXED and field.name not in metrics]
    for field in hyperparameters:
        if field.type not in _PYTHON:
            kinds = ", ".join(map(str, _PYTHON))
            raise SchemaError(f"hyperparameter {field.name!r} must be {kinds}, but is {field.type}")
    try:
        return Columns({field.name: _PYTHON[field.type] for field in hyperparameters}, metrics)
    except ValueError as error:
        raise SchemaError(str(error)) from error
