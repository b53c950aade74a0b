"""Rows -> Parquet: one file a cohort, many of them folded into one, overlaid by trial, always whole, read by pandas.

`STORE/trials/sweep=NAME/*.parquet` and `STORE/history/sweep=NAME/*.parquet`. The partition column `sweep` is in no
file: one that repeats it makes reading the whole store fail.
"""

import os
import uuid
from collections.abc import Mapping, Sequence
from functools import reduce

import pandas as pd
import pyarrow as pa

from sweeper.errors import SchemaError, StoreError
from sweeper.storage.arrow_tables import (
    Records,
    conform,
    history_of,
    merged_rows,
    one_per_record,
    one_per_trial,
    only,
    table_of,
    to_bytes,
    unite,
    without,
)
from sweeper.storage.compaction import Compactor, Merge
from sweeper.storage.damaged_files import healing, set_aside
from sweeper.storage.io.files import Files
from sweeper.storage.parquet_folder import SUFFIX, Tables, contents_of, parse, read_all, read_tables, replace
from sweeper.storage.schema import Columns
from sweeper.storage.store_reader import StoreReader, checked, history_folder, trials_folder

OWNED = (
    *("trials/sweep={}", "history/sweep={}", "checkpoints/sweep={}", "cuts/sweep={}"),
    *("heatmaps/{}", "tables/{}", "trajectories/{}", "studies/{}"),
)
"""All folders of one sweep in the store."""


class Store(StoreReader):
    """The rows of every sweep under one folder or URI. Readers at any time; several writers lose no row, but only one
    at a time sees to it that a trial is in one file."""

    def __init__(self, uri: str | os.PathLike[str] | Files) -> None:
        super().__init__(uri)
        self._index: dict[str, dict[str, tuple[str, ...]]] = {}
        self._foldings: dict[str, Compactor] = {}

    def prepare(self, sweep: str, columns: Columns) -> Columns:
        """Probe that the store takes writes and bring the sweep's files to one schema, the one to write from now on.

        Columns that only older or only newer rows have are kept, null elsewhere. StoreError where a shared column
        differs in type. What a killed writer left (temporary files, a trial in two files) is put right, and damaged
        files are set aside: those of rows, and all in `damaged`. From now on the store is this very folder: one that
        takes its place, or none, is waited for as a store that has stopped working.
        """
        folder = trials_folder(sweep)
        self.files.check_writable()
        self.files.hold_on()
        self.files.tidy()
        self.set_damaged_aside(self.damaged)
        found, there = self._scan(sweep)
        try:
            united = reduce(Columns.union, [*there, columns])
        except SchemaError as error:
            raise self.foreign(sweep, str(error)) from error
        for name, (schema, _) in found.items():
            if set(schema.names) != set(united.schema.names):
                for table in self._rows(folder, name):
                    self.files.write(f"{folder}/{name}", to_bytes(conform(table, united)))
        self._index[sweep] = _index(found)
        if any(len(names) > 1 for names in self._index[sweep].values()):
            self.compact(sweep)
        return united

    def set_damaged_aside(self, reasons: Mapping[str, str]) -> None:
        """Move these files, by path with the reason, to `_damaged` and say so, a line each."""
        set_aside(self.files, reasons)
        self.damaged = {path: reason for path, reason in self.damaged.items() if path not in reasons}

    def write(self, sweep: str, cohort: str, rows: Sequence[Mapping[str, object]], columns: Columns) -> None:
        """Lay the rows over those of the cohort's file. The same rows again change nothing, not even the file.

        A new row replaces the trial's old one wherever it is, except that a failed one never replaces a result.
        Where it moves from one file to another (a plan cut anew, many files folded into one), a plain reader may for a
        moment see both or neither.
        """
        name, folder = checked(cohort) + SUFFIX, trials_folder(sweep)
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
            for segment, table in self._folding(folder, merged_rows).add(name):
                index.update(dict.fromkeys(table["trial_id"].to_pylist(), (segment,)))

    def write_history(self, sweep: str, cohort: str, records: Records, *, ended: bool = True) -> None:
        """Lay (trial_id, epoch, metric, value) records, tuples or four columns, over those of the cohort's file.

        The file of a cohort that has not `ended` is kept apart from the larger files that small ones are folded into.
        """
        name, folder = checked(cohort) + SUFFIX, history_folder(sweep)
        old, new = self._rows(folder, name), history_of(records)
        merged = one_per_record(pa.concat_tables([*old, new]))
        if not old or not merged.equals(old[0]):
            self.files.write(f"{folder}/{name}", to_bytes(merged))
        if ended:
            for _ in self._folding(folder, lambda tables: one_per_record(pa.concat_tables(tables))).add(name):
                pass

    def delete_history(self, sweep: str, cohort: str) -> None:
        """Delete what a cohort has reported while it trained, which others will report in its place."""
        self.files.delete(f"{history_folder(sweep)}/{checked(cohort)}{SUFFIX}")

    def compact(self, sweep: str) -> str | None:
        """All rows of the sweep in one file, whose name is returned; None where there are no rows.

        The old files go after the new one is there. A plain reader at just that moment may see rows twice or miss a
        file, and should read again; `load` does so itself.
        """
        folder = trials_folder(sweep)

        def read() -> tuple[dict[str, bytes], Tables]:
            contents = contents_of(self.files, folder)
            return contents, parse(self.files, folder, contents)

        contents, parsed = healing(self.files, read)
        if not contents:
            return None
        tables = [table for _, table in parsed.values()]
        rows = merged_rows(tables)
        name = next(iter(contents))
        if len(contents) > 1 or not rows.equals(tables[0]):
            name = f"compact-{uuid.uuid4().hex[:16]}{SUFFIX}"
            replace(self.files, folder, contents, name, rows)
        self._index[sweep] = dict.fromkeys(rows["trial_id"].to_pylist(), (name,))
        return name

    def _scan(self, sweep: str) -> tuple[Tables, list[Columns]]:
        """Every file's schema with its trials and statuses, and the distinct sets of columns among them. Sets damaged
        files aside."""
        found = healing(self.files, lambda: read_tables(self.files, trials_folder(sweep), ["trial_id", "status"]))
        return found, self.columns(sweep, found)

    def _folding(self, folder: str, merge: Merge) -> Compactor:
        return self._foldings.setdefault(folder, Compactor(self.files, folder, merge))

    def _rows(self, folder: str, name: str) -> list[pa.Table]:
        """The one table of a file, or none where there is no such file, or where it is damaged and so set aside."""

        def read() -> Tables:
            return parse(self.files, folder, read_all(self.files, folder, [name]))

        return [table for _, table in healing(self.files, read).values()]


def checkpoint_path(sweep: str, cohort: str) -> str:
    """Where in the store a cohort keeps its checkpoint until its rows are written."""
    return f"{OWNED[2].format(checked(sweep))}/{checked(cohort)}.pt"


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
        found = _there(files, "trials", sweep)
        StoreReader(files).columns(sweep, found)
        rows = merged_rows([table for _, table in found.values()])
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


def _there(files: Files, kind: str, sweep: str) -> Tables:
    """The sweep's files of this kind. StoreError where there are none, with the sweeps that are there."""
    found = read_tables(files, f"{kind}/sweep={checked(sweep)}")
    if not found:
        names = [name.removeprefix("sweep=") for name in files.list(kind) if name.startswith("sweep=")]
        raise StoreError(f"store {files.shown}: no {kind} of sweep {sweep!r}; there are: {', '.join(names) or 'none'}")
    return found


def _index(found: Tables) -> dict[str, tuple[str, ...]]:
    """trial_id -> the files that hold a row of it."""
    index: dict[str, tuple[str, ...]] = {}
    for name, (_, table) in found.items():
        for trial in table["trial_id"].to_pylist():
            index[trial] = (*index.get(trial, ()), name)
    return index
