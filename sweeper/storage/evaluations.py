"""What kept models are on other data: one file for each data set, `evaluations/sweep=NAME/DATA.parquet`, with a row for
each trial. It is replaced as a whole, so a reader sees the old rows or the new ones.

All files of a sweep have the same columns, null where a trial has no value, so that pandas reads their folder.
"""

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from sweeper.errors import DamagedError, StoreError
from sweeper.storage.files import Files
from sweeper.storage.layout import SUFFIX, evaluation_path, evaluations_folder
from sweeper.storage.parquet_files import parquet_to_table, table_to_parquet
from sweeper.storage.rows import rows_except

IDENTITY = ("trial_id", "dataset", "image_digest", "weights")
"""Columns of text beside the metrics: the trial, the data that it is evaluated on, with the hash of their content if
they are the user's own, and the hash of the model's weights."""
Row = Mapping[str, str | float | None]
"""Column -> value."""


def read_evaluations(files: Files, sweep: str, dataset: str, digest: str) -> dict[str, Row]:
    """Return the evaluations on a data set by trial. Raises StoreError if they are damaged."""
    table = _read(files, evaluation_path(sweep, dataset, digest))
    return {} if table is None else {str(row["trial_id"]): row for row in table.to_pylist()}


def write_evaluations(files: Files, sweep: str, dataset: str, digest: str, rows: Sequence[Row]) -> None:
    """Write all evaluations on a data set, in place of those that were there. Raises StoreError if others of the sweep
    are damaged."""
    path = evaluation_path(sweep, dataset, digest)
    tables = {other: table for other, table in _tables(files, sweep).items() if other != path}
    names = [
        *IDENTITY,
        *(name for table in tables.values() for name in table.schema.names),
        *(key for row in rows for key in row),
    ]
    names = list(dict.fromkeys(names))
    schema = pa.schema([(name, pa.string() if name in IDENTITY else pa.float64()) for name in names])
    files.write(path, table_to_parquet(pa.Table.from_pylist([dict(row) for row in rows], schema)))
    for other, table in tables.items():
        if table.schema.names != names:
            files.write(other, table_to_parquet(pa.Table.from_pylist(table.to_pylist(), schema)))


def merge_evaluations(source: Files, target: Files, sweep: str, trials: Collection[str]) -> None:
    """Add the rows of these trials in `source` to `target`, where it has none of them on the same data. Raises
    StoreError if a file is damaged."""
    known = _tables(target, sweep)
    for path, table in _tables(source, sweep).items():
        own: dict[str, Row] = {row["trial_id"]: row for row in (known[path].to_pylist() if path in known else ())}
        added = [row for row in table.to_pylist() if row["trial_id"] in trials and row["trial_id"] not in own]
        if added:
            own |= {row["trial_id"]: row for row in added}
            dataset, digest = added[0]["dataset"], added[0]["image_digest"] or ""
            write_evaluations(target, sweep, dataset, digest, [own[trial] for trial in sorted(own)])


def remove_evaluations(files: Files, sweep: str, trials: Sequence[str]) -> None:
    """Remove the rows of these trials. A damaged file stays as it is."""
    for name in files.list_files(evaluations_folder(sweep), SUFFIX):
        path = f"{evaluations_folder(sweep)}/{name}"
        try:
            table = _read(files, path)
        except StoreError:
            continue
        kept = None if table is None else rows_except(table, trials)
        if kept is not None and not len(kept):
            files.delete(path)
        elif kept is not None and table is not None and len(kept) < len(table):
            files.write(path, table_to_parquet(kept))


def _tables(files: Files, sweep: str) -> dict[str, pa.Table]:
    """Path -> the rows of each data set."""
    folder = evaluations_folder(sweep)
    found = {path: _read(files, path) for path in (f"{folder}/{name}" for name in files.list_files(folder, SUFFIX))}
    return {path: table for path, table in found.items() if table is not None}


def _read(files: Files, path: str) -> pa.Table | None:
    """The rows of a file; None if there is none."""
    try:
        data = files.read(path)
        if data is None:
            return None
        table = parquet_to_table(data)[1]
    except DamagedError as error:
        raise _damaged(files, path, str(error)) from error
    types = {name: table.schema.field(name).type for name in table.schema.names}
    wanted = {name: pa.string() if name in IDENTITY else pa.float64() for name in types}
    if types != wanted or not types.keys() >= {*IDENTITY} or table["trial_id"].null_count:
        raise _damaged(files, path, "its columns are not those of evaluations")
    return table


def _damaged(files: Files, path: str, why: str) -> StoreError:
    return StoreError(f"{files.display_uri_of(path)} is damaged: {why}; delete it, and its models are evaluated again")
