"""Rows -> Parquet: one file a cohort, many of them folded into one, overlaid by trial, always whole, read by pandas.

`STORE/trials/sweep=NAME/*.parquet` and `STORE/history/sweep=NAME/*.parquet`. The partition column `sweep` is in no
file: one that repeats it makes reading the whole store fail.
"""

import os
import re
import uuid
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pandas as pd
import pyarrow as pa

from sweeper.files import Files, StoreError
from sweeper.folder import SUFFIX, contents_of, parse, read_tables, replace
from sweeper.folding import Folding, Merge
from sweeper.rows import (
    Records,
    by_end,
    conform,
    from_bytes,
    history_of,
    one_per_record,
    one_per_trial,
    only,
    table_of,
    to_bytes,
    unite,
    without,
)
from sweeper.schema import HISTORY, Columns, SchemaError, columns_of

OWNED = (
    *("trials/sweep={}", "history/sweep={}", "checkpoints/sweep={}", "cuts/sweep={}"),
    *("heatmaps/{}", "tables/{}", "trajectories/{}", "studies/{}"),
)
"""All folders of one sweep in the store."""
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)


class Store:
    """The rows of every sweep under one folder or URI. Readers at any time; several writers lose no row, but only one
    at a time sees to it that a trial is in one file."""

    def __init__(self, uri: str | os.PathLike[str] | Files) -> None:
        self.files = uri if isinstance(uri, Files) else Files(uri)
        self._index: dict[str, dict[str, tuple[str, ...]]] = {}
        self._foldings: dict[str, Folding] = {}

    def prepare(self, sweep: str, columns: Columns) -> Columns:
        """Probe that the store takes writes and bring the sweep's files to one schema, the one to write from now on.

        Columns that only older or only newer rows have are kept, null elsewhere. StoreError where a shared column
        differs in type. What a killed writer left (temporary files, a trial in two files) is put right.
        """
        folder = _trials(sweep)
        self.files.check_writable()
        self.files.tidy()
        found, there = self._scan(sweep)
        try:
            united = reduce(Columns.union, [*there, columns])
        except SchemaError as error:
            raise self._foreign(sweep, error) from error
        for name, (schema, _) in found.items():
            if set(schema.names) != set(united.schema.names):
                for table in self._rows(folder, name):
                    self.files.write(f"{folder}/{name}", to_bytes(conform(table, united)))
        self._index[sweep] = _index(found)
        if any(len(names) > 1 for names in self._index[sweep].values()):
            self.compact(sweep)
        return united

    def statuses(self, sweep: str) -> dict[str, str]:
        """trial_id -> status of every trial that has a row. Writes nothing."""
        best: dict[str, str] = {}
        for _, table in self._scan(sweep)[0].values():
            for trial, status in zip(table["trial_id"].to_pylist(), table["status"].to_pylist(), strict=True):
                if status != "failed" or trial not in best:
                    best[trial] = status
        return best

    def records(self, sweep: str) -> tuple[list[dict[str, Any]], list[tuple[str, int, str, float]]]:
        """Every row and every (trial_id, epoch, metric, value) as plain values; none where there are none."""
        rows, history = (read_tables(self.files, f"{kind}/sweep={_checked(sweep)}") for kind in ("trials", "history"))
        reports = [one_per_record(pa.concat_tables(table for _, table in history.values()))] if history else []
        return (
            _merged([table for _, table in rows.values()]).to_pylist() if rows else [],
            [tuple(report.values()) for table in reports for report in table.select(HISTORY.names).to_pylist()],
        )

    def write(self, sweep: str, cohort: str, rows: Sequence[Mapping[str, object]], columns: Columns) -> None:
        """Lay the rows over those of the cohort's file. The same rows again change nothing, not even the file.

        A new row replaces the trial's old one wherever it is, except that a failed one never replaces a result.
        Where it moves from one file to another (a plan cut anew, many files folded into one), a plain reader may for a
        moment see both or neither.
        """
        name, folder = _checked(cohort) + SUFFIX, _trials(sweep)
        new = table_of(rows, columns)
        trials = new["trial_id"].to_pylist()
        if sweep not in self._index:
            self._index[sweep] = _index(self._scan(sweep)[0])
        index = self._index[sweep]
        known = {file for trial in trials for file in index.get(trial, ())}
        others = {other: self._rows(folder, other) for other in sorted(known - {name})}
        own = self._rows(folder, name)
        merged = one_per_trial(unite([*own, *(only(table, trials) for old in others.values() for table in old), new]))
        if not own or not merged.equals(own[0]):
            self.files.write(f"{folder}/{name}", to_bytes(merged))
        for other, old in others.items():  # after the new file: a crash between leaves a row twice, never not at all
            for table in old:
                self.files.write(f"{folder}/{other}", to_bytes(without(table, trials)))
        index.update(dict.fromkeys(trials, (name,)))
        if "failed" not in merged["status"].to_pylist():  # such files are written again
            for segment, table in self._folding(folder, _merged).add(name):
                index.update(dict.fromkeys(table["trial_id"].to_pylist(), (segment,)))

    def write_history(self, sweep: str, cohort: str, records: Records) -> None:
        """Lay (trial_id, epoch, metric, value) records, tuples or four columns, over those of the cohort's file."""
        name, folder = _checked(cohort) + SUFFIX, OWNED[1].format(_checked(sweep))
        path = f"{folder}/{name}"
        old = self.files.read(path)
        new = history_of(records)
        tables = [new] if old is None else [from_bytes(old)[1], new]
        data = to_bytes(one_per_record(pa.concat_tables(tables)))
        if data != old:
            self.files.write(path, data)
        for _ in self._folding(folder, lambda tables: one_per_record(pa.concat_tables(tables))).add(name):
            pass

    def compact(self, sweep: str) -> str | None:
        """All rows of the sweep in one file, whose name is returned; None where there are no rows.

        The old files go after the new one is there. A plain reader at just that moment may see rows twice or miss a
        file, and should read again; `load` does so itself.
        """
        folder = _trials(sweep)
        contents = contents_of(self.files, folder)
        if not contents:
            return None
        tables = [table for _, table in parse(self.files, folder, contents).values()]
        rows = _merged(tables)
        name = next(iter(contents))
        if len(contents) > 1 or not rows.equals(tables[0]):
            name = f"compact-{uuid.uuid4().hex[:16]}{SUFFIX}"
            replace(self.files, folder, contents, name, rows)
        self._index[sweep] = dict.fromkeys(rows["trial_id"].to_pylist(), (name,))
        return name

    def _scan(self, sweep: str) -> tuple[dict[str, tuple[pa.Schema, pa.Table]], list[Columns]]:
        """Every file's schema with its trials and statuses, and the distinct sets of columns among them."""
        found = read_tables(self.files, _trials(sweep), ["trial_id", "status"])
        distinct = {schema.serialize().to_pybytes(): schema for schema, _ in found.values()}
        try:
            return found, [columns_of(schema) for schema in distinct.values()]
        except SchemaError as error:
            raise self._foreign(sweep, error) from error

    def _foreign(self, sweep: str, error: SchemaError) -> StoreError:
        return StoreError(
            f"store {self.files.shown} holds rows of sweep {sweep!r} in another code's schema: {error}; "
            "use another --store, or --fresh to set them aside"
        )

    def _folding(self, folder: str, merge: Merge) -> Folding:
        return self._foldings.setdefault(folder, Folding(self.files, folder, merge))

    def _rows(self, folder: str, name: str) -> list[pa.Table]:
        """The one table of a file, or none where there is no such file."""
        data = self.files.read(f"{folder}/{name}")
        return [] if data is None else [from_bytes(data)[1]]


def checkpoint_path(sweep: str, cohort: str) -> str:
    """Where in the store a cohort keeps its checkpoint until its rows are written."""
    return f"{OWNED[2].format(_checked(sweep))}/{_checked(cohort)}.pt"


def load(
    name: str | Sequence[str],
    store: str | os.PathLike[str] | Files = "results",
    preset: str | None = None,
    changes: str | None = "",
) -> pd.DataFrame:
    """Every row of a sweep (or of several), one a trial, all columns of all its files, and the column `sweep`.

    With a `preset` its rows alone, as it stands, with these `changes` (`"epochs=5"`) or any (None); StoreError if none.
    """
    files = store if isinstance(store, Files) else Files(store)
    tables = []
    for sweep in [name] if isinstance(name, str) else name:
        rows = _merged([table for _, table in _there(files, "trials", sweep).values()])
        tables.append(rows.append_column("sweep", pa.array([sweep] * len(rows), pa.string())))
    try:
        rows = pa.concat_tables(tables, promote_options="permissive").to_pandas()
    except pa.ArrowException as error:
        raise StoreError(f"sweeps {', '.join(name)} do not fit into one table: {error}") from error
    rows = rows if preset is None else _chosen(files, rows, "preset", preset)
    return rows if preset is None or changes is None else _chosen(files, rows, "changes", changes)


def load_history(name: str, store: str | os.PathLike[str] | Files = "results") -> pd.DataFrame:
    """Every (trial_id, epoch, metric, value) that a sweep reported, sorted by trial, metric and epoch."""
    files = store if isinstance(store, Files) else Files(store)
    tables = [table for _, table in _there(files, "history", name).values()]
    return one_per_record(pa.concat_tables(tables)).to_pandas()


def _chosen(files: Files, rows: pd.DataFrame, column: str, value: str) -> pd.DataFrame:
    """The rows with this value; rows of earlier versions have none. StoreError where there are no such rows."""
    if value not in (there := sorted(rows[column].dropna().unique())):
        text = ", ".join(map(repr, there)) or "none"
        raise StoreError(f"store {files.shown}: no rows with {column} {value!r}; there are: {text}")
    return rows[rows[column] == value].reset_index(drop=True)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"a name in the store is letters, digits, '_', '-', '+' or '.', but got {name!r}")
    return name


def _trials(sweep: str) -> str:
    return OWNED[0].format(_checked(sweep))


def _there(files: Files, kind: str, sweep: str) -> dict[str, tuple[pa.Schema, pa.Table]]:
    """The sweep's files of this kind. StoreError where there are none, with the sweeps that are there."""
    found = read_tables(files, f"{kind}/sweep={_checked(sweep)}")
    if not found:
        names = [name.removeprefix("sweep=") for name in files.list(kind) if name.startswith("sweep=")]
        raise StoreError(f"store {files.shown}: no {kind} of sweep {sweep!r}; there are: {', '.join(names) or 'none'}")
    return found


def _merged(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows, one a trial: a result before a failure, then the one that ended last."""
    return one_per_trial(by_end(unite(tables)))


def _index(found: Mapping[str, tuple[pa.Schema, pa.Table]]) -> dict[str, tuple[str, ...]]:
    """trial_id -> the files that hold a row of it."""
    index: dict[str, tuple[str, ...]] = {}
    for name, (_, table) in found.items():
        for trial in table["trial_id"].to_pylist():
            index[trial] = (*index.get(trial, ()), name)
    return index
