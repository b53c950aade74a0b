"""The store: one row per trial in Parquet files that `pandas.read_parquet` reads while a sweep runs.

Each cohort has a file in `STORE/trials/sweep=NAME/` and one in `STORE/history/sweep=NAME/`, and many small files are
merged into larger ones. No file contains the partition column `sweep`: a file that repeats it makes reading the whole
store fail.
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
"""All folders of one sweep in the store; `{}` stands for the sweep's name."""


class Store(StoreReader):
    """Reads and writes the rows and the history of every sweep in the store at one folder or URI.

    Others may read at any time. Several writers at once lose no row, but may leave a trial in more than one file.
    """

    def __init__(self, uri: str | os.PathLike[str] | Files) -> None:
        super().__init__(uri)
        self._index: dict[str, dict[str, tuple[str, ...]]] = {}  # sweep -> trial_id -> files that hold a row of it
        self._compactors: dict[str, Compactor] = {}  # by folder

    def prepare(self, sweep: str, columns: Columns) -> Columns:
        """Prepare the store for writing rows of the sweep. Returns the columns to write from now on.

        - Checks that the store is writable, and pins it to the folder found now: if that folder disappears or another
          takes its place, later calls wait for it as for a store that does not respond.
        - Cleans up what a killed writer left: temporary files, and trials that are in two files.
        - Sets damaged files aside: those in `damaged`, and all damaged files of rows.
        - Rewrites the sweep's files to one schema: the union of their columns and `columns`, null where a row has no
          value. Raises StoreError if a column has different types.
        """
        folder = trials_folder(sweep)
        self.files.check_writable()
        self.files.hold_on()
        self.files.tidy()
        self.set_damaged_aside(self.damaged)
        tables, stored_columns = self._scan(sweep)
        try:
            united = reduce(Columns.union, [*stored_columns, columns])
        except SchemaError as error:
            raise self.foreign(sweep, str(error)) from error
        for name, (schema, _) in tables.items():
            if set(schema.names) != set(united.schema.names):
                for table in self._rows(folder, name):
                    self.files.write(f"{folder}/{name}", to_bytes(conform(table, united)))
        self._index[sweep] = _files_by_trial(tables)
        if any(len(names) > 1 for names in self._index[sweep].values()):
            self.compact(sweep)
        return united

    def set_damaged_aside(self, reasons: Mapping[str, str]) -> None:
        """Move damaged files to `_damaged` and report each in one line. `reasons` maps a path to what is wrong."""
        set_aside(self.files, reasons)
        self.damaged = {path: reason for path, reason in self.damaged.items() if path not in reasons}

    def write(self, sweep: str, cohort: str, rows: Sequence[Mapping[str, object]], columns: Columns) -> None:
        """Merge the rows into the cohort's file. Writing the same rows again does not touch the file.

        A new row replaces the trial's old row in whichever file that is, except that a failed row never replaces a
        result. If a row moves to another file (because the plan was cut differently, or files were merged), a plain
        `read_parquet` at that moment may see it twice or not at all.
        """
        name, folder = checked(cohort) + SUFFIX, trials_folder(sweep)
        new = table_of(rows, columns)
        trials = new["trial_id"].to_pylist()
        if sweep not in self._index:
            self._index[sweep] = _files_by_trial(self._scan(sweep)[0])
        index = self._index[sweep]
        known = {file for trial in trials for file in index.get(trial, ())}
        others = {other: self._rows(folder, other) for other in sorted(known - {name})}
        own = self._rows(folder, name)
        merged = one_per_trial(unite([*own, *(only(table, trials) for old in others.values() for table in old), new]))
        if not own or not merged.equals(own[0]):
            self.files.write(f"{folder}/{name}", to_bytes(merged))
        for other, old in others.items():  # after the new file, so that a crash in between duplicates a row, at worst
            for table in old:
                self.files.write(f"{folder}/{other}", to_bytes(without(table, trials)))
        index.update(dict.fromkeys(trials, (name,)))
        if "failed" not in merged["status"].to_pylist():  # a file with failed rows will be written again
            for segment, table in self._compactor(folder, merged_rows).add(name):
                index.update(dict.fromkeys(table["trial_id"].to_pylist(), (segment,)))

    def write_history(self, sweep: str, cohort: str, records: Records, *, ended: bool = True) -> None:
        """Merge (trial_id, epoch, metric, value) records, as tuples or as four columns, into the cohort's file.

        The file is not merged with those of other cohorts before the cohort has `ended`.
        """
        name, folder = checked(cohort) + SUFFIX, history_folder(sweep)
        old, new = self._rows(folder, name), history_of(records)
        merged = one_per_record(pa.concat_tables([*old, new]))
        if not old or not merged.equals(old[0]):
            self.files.write(f"{folder}/{name}", to_bytes(merged))
        if ended:
            for _ in self._compactor(folder, lambda tables: one_per_record(pa.concat_tables(tables))).add(name):
                pass

    def delete_history(self, sweep: str, cohort: str) -> None:
        """Delete the history of a cohort whose trials are reported anew by other cohorts."""
        self.files.delete(f"{history_folder(sweep)}/{checked(cohort)}{SUFFIX}")

    def compact(self, sweep: str) -> str | None:
        """Merge all rows of the sweep into one file. Returns its name, or None if there are no rows.

        The old files are deleted after the new one is written. A plain `read_parquet` at that moment may see rows twice
        or fail on a missing file, and should be repeated; `load` repeats it by itself.
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
        """Return the trials and statuses of every file of rows, and the distinct sets of columns among these files.

        Damaged files are set aside.
        """
        tables = healing(self.files, lambda: read_tables(self.files, trials_folder(sweep), ["trial_id", "status"]))
        return tables, self.columns(sweep, tables)

    def _compactor(self, folder: str, merge: Merge) -> Compactor:
        return self._compactors.setdefault(folder, Compactor(self.files, folder, merge))

    def _rows(self, folder: str, name: str) -> list[pa.Table]:
        """Return the table of a file in a list, which is empty if the file is missing, or damaged and so set aside."""

        def read() -> Tables:
            return parse(self.files, folder, read_all(self.files, folder, [name]))

        return [table for _, table in healing(self.files, read).values()]


def checkpoint_path(sweep: str, cohort: str) -> str:
    """Return the path in the store of a cohort's checkpoint, which exists until the cohort's rows are written."""
    return f"{OWNED[2].format(checked(sweep))}/{checked(cohort)}.pt"


def load(
    name: str | Sequence[str],
    store: str | os.PathLike[str] | Files = "results",
    preset: str | None = None,
    changes: str | None = "",
) -> pd.DataFrame:
    """Return the rows of a sweep, or of several, one per trial, with all their columns and the column `sweep`.

    `preset` selects the rows of one preset (None: all presets). `changes` then selects among them: "" the preset as it
    is defined, `"epochs=5"` the rows of runs with this change, None all of them. Raises StoreError if no row is left.
    """
    files = store if isinstance(store, Files) else Files(store)
    tables = []
    for sweep in [name] if isinstance(name, str) else name:
        stored = _read_sweep(files, "trials", sweep)
        StoreReader(files).columns(sweep, stored)
        rows = merged_rows([table for _, table in stored.values()])
        tables.append(rows.append_column("sweep", pa.array([sweep] * len(rows), pa.string())))
    try:
        rows = pa.concat_tables(tables, promote_options="permissive").to_pandas()
    except pa.ArrowException as error:
        raise StoreError(f"sweeps {', '.join(name)} do not fit into one table: {error}") from error
    rows = rows if preset is None else _select(files, rows, "preset", preset)
    return rows if preset is None or changes is None else _select(files, rows, "changes", changes)


def load_history(name: str, store: str | os.PathLike[str] | Files = "results") -> pd.DataFrame:
    """Return every (trial_id, epoch, metric, value) that a sweep reported, sorted by trial, metric and epoch."""
    files = store if isinstance(store, Files) else Files(store)
    tables = [table for _, table in _read_sweep(files, "history", name).values()]
    return one_per_record(pa.concat_tables(tables)).to_pandas()


def _select(files: Files, rows: pd.DataFrame, column: str, value: str) -> pd.DataFrame:
    """Return the rows with this value. Raises StoreError, which lists the values that occur, if there are none."""
    if value not in (choices := sorted(rows[column].dropna().unique())):
        text = ", ".join(map(repr, choices)) or "none"
        raise StoreError(f"store {files.shown}: no rows with {column} {value!r}; there are: {text}")
    return rows[rows[column] == value].reset_index(drop=True)


def _read_sweep(files: Files, kind: str, sweep: str) -> Tables:
    """Return the sweep's files of a kind, `trials` or `history`.

    Raises StoreError, which lists the sweeps that have such files, if there are none.
    """
    tables = read_tables(files, f"{kind}/sweep={checked(sweep)}")
    if not tables:
        names = [name.removeprefix("sweep=") for name in files.list(kind) if name.startswith("sweep=")]
        raise StoreError(f"store {files.shown}: no {kind} of sweep {sweep!r}; there are: {', '.join(names) or 'none'}")
    return tables


def _files_by_trial(tables: Tables) -> dict[str, tuple[str, ...]]:
    """Return trial_id -> names of the files that hold a row of that trial."""
    index: dict[str, tuple[str, ...]] = {}
    for name, (_, table) in tables.items():
        for trial in table["trial_id"].to_pylist():
            index[trial] = (*index.get(trial, ()), name)
    return index
