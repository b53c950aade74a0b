"""What kept models are on other data: one file for each data set, `evaluations/sweep=NAME/DATA.parquet`, with a row for
each trial. It is replaced as a whole, so a reader sees the old rows or the new ones.

All files of a sweep have the same columns, null where a trial has no value, so that pandas reads their folder.
"""

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from sweeper.storage.files import Files
from sweeper.storage.layout import evaluation_path, evaluations_folder
from sweeper.storage.parquet_files import quarantining, read_tables, read_usable, say_damaged, table_to_parquet
from sweeper.storage.rows import IDENTITY, rows_except

Row = Mapping[str, str | float | None]
"""Column -> value."""


def read_evaluations(files: Files, sweep: str, dataset: str, digest: str) -> dict[str, Row]:
    """Return the evaluations on a data set by trial. Damaged ones are left out, which a line says."""
    tables, damaged = read_usable(files, evaluations_folder(sweep))
    say_damaged(files, damaged)
    own = evaluation_path(sweep, dataset, digest).rpartition("/")[2]
    return {str(row["trial_id"]): row for row in (tables[own][1].to_pylist() if own in tables else ())}


def write_evaluations(files: Files, sweep: str, dataset: str, digest: str, rows: Sequence[Row]) -> None:
    """Write all evaluations on a data set, in place of those that were there. Damaged ones are quarantined."""
    path = evaluation_path(sweep, dataset, digest)
    known = quarantining(files, lambda: _tables(files, sweep))
    tables = {other: table for other, table in known.items() if other != path}
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
    for name, (_, table) in read_usable(files, evaluations_folder(sweep))[0].items():
        path, kept = f"{evaluations_folder(sweep)}/{name}", rows_except(table, trials)
        if not len(kept):
            files.delete(path)
        elif len(kept) < len(table):
            files.write(path, table_to_parquet(kept))


def _tables(files: Files, sweep: str) -> dict[str, pa.Table]:
    """Path -> the rows of each data set. Raises DamagedFiles."""
    folder = evaluations_folder(sweep)
    return {f"{folder}/{name}": table for name, (_, table) in read_tables(files, folder).items()}
