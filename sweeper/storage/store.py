"""The store: one row per trial in Parquet files that `pandas.read_parquet` reads while a sweep runs.

Each cohort has a file in `STORE/trials/sweep=NAME/` and one in `STORE/history/sweep=NAME/`, and many small files are
merged into larger ones. No file contains the partition column `sweep`: a file that repeats it makes reading the whole
store fail.
"""

import errno
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sweeper.errors import SchemaError, StoreError
from sweeper.storage import rows as tables
from sweeper.storage.files import Files
from sweeper.storage.layout import (
    FOLDERS,
    SUFFIX,
    check_name,
    damaged_folder,
    history_folder,
    sample_grid_path,
    sweep_folders,
    trials_folder,
)
from sweeper.storage.local_disk import MARKER, WRITE_CHECK
from sweeper.storage.parquet_files import (
    Compactor,
    Merge,
    Tables,
    quarantine,
    quarantining,
    read_intact,
    read_or_say,
    read_tables,
    read_usable,
    replace,
    table_to_parquet,
)
from sweeper.storage.requests import RequestRows
from sweeper.storage.rows import (
    HISTORY,
    Columns,
    columns_of,
    columns_of_serialized,
    conform,
    merged_rows,
    one_per_record,
)

MIN_FREE_BYTES = 64 << 20
"""Least free space of a local store's disk at the start of a run."""


class StoreReader:
    """Reads the rows and the history of every sweep in the store at one folder or URI."""

    def __init__(self, uri: str | os.PathLike[str] | Files) -> None:
        self.files = uri if isinstance(uri, Files) else Files(uri)
        self.damaged: dict[str, str] = {}
        """Maps the path of each damaged file found so far to the reason."""

    def statuses(self, sweep: str, check_history: bool = True) -> dict[str, str]:
        """Return trial_id -> status for every trial that has a row and whose history is not lost.

        With `check_history=False` no history is read, and trials without their history are included.
        """
        tables = self.read_intact(trials_folder(sweep), ["trial_id", "status"])
        self.stored_columns(sweep, tables)
        statuses: dict[str, str] = {}
        for _, table in tables.values():
            for trial, status in zip(table["trial_id"].to_pylist(), table["status"].to_pylist(), strict=True):
                if status != "failed" or trial not in statuses:
                    statuses[trial] = status
        if check_history:
            self.read_intact(history_folder(sweep), [])  # adds the damaged ones to `damaged`
            for trial in self.trials_without_history(sweep):
                statuses.pop(trial, None)
        return statuses

    def statuses_with_history(self, sweep: str) -> dict[str, str]:
        """As `statuses`, but without a search for damaged files: what was quarantined before counts as lost."""
        statuses = self.statuses(sweep, check_history=False)
        for trial in self.trials_without_history(sweep):
            statuses.pop(trial, None)
        return statuses

    def records(self, sweep: str) -> tuple[list[dict[str, Any]], list[tuple[str, int, str, float]]]:
        """Return all rows of the sweep as dicts, and its history as (trial_id, epoch, metric, value) tuples.

        Both lists may be empty. A row whose history is lost has the status `failed`, so that its trial is trained
        again.
        """
        row_files, history_files = self.read_intact(trials_folder(sweep)), self.read_intact(history_folder(sweep))
        self.stored_columns(sweep, row_files)
        histories = [table for _, table in history_files.values()]
        history = one_per_record(pa.concat_tables(histories)).select(HISTORY.names).to_pylist() if histories else []
        lost = self.trials_without_history(sweep)
        rows = merged_rows([table for _, table in row_files.values()]).to_pylist() if row_files else []
        return (
            [{**row, "status": "failed"} if row["trial_id"] in lost else row for row in rows],
            [tuple(record.values()) for record in history],
        )

    def unlisted(
        self, sweep: str, listed: RequestRows, changes: Collection[str], columns: Columns
    ) -> list[dict[str, Any]]:
        """Return the rows, reduced to hyperparameters and `preset`, that do not belong to a request, though they have
        its preset and some of these changes; or, in a request of grids, no preset, as in versions that did not name
        it yet. They have the `columns` of the request, too. Raises StoreError if a column has different types."""
        files = self.read_intact(trials_folder(sweep))
        if not files:
            return []
        united = self._united(sweep, [*self.stored_columns(sweep, files), columns])
        table = conform(merged_rows([rows for _, rows in files.values()]), united)
        known = pa.array([False] * len(table))
        for column, ids in listed.columns.items():
            if column in table.schema.names:
                known = pc.or_(known, pc.is_in(table[column], pa.array(ids, pa.string())))
        same_preset = pc.is_in(table["preset"], pa.array([listed.preset], pa.string()))
        same_changes = pc.is_in(table["changes"], pa.array(list(changes), pa.string()))
        unnamed = pc.and_(pc.is_null(table["preset"]), pa.scalar("trial_id" in listed.columns))
        candidates = pc.or_(pc.and_(same_preset, same_changes), unnamed)
        chosen = table.filter(pc.and_(candidates, pc.invert(known)))
        rows: list[dict[str, Any]] = chosen.select([*united.hyperparameters, "preset"]).to_pylist()
        return rows

    def rows(self, sweep: str, *, every: bool = False) -> pa.Table | None:
        """Return all rows of the sweep, or None if there are none. Damaged files are left out, which a line says.
        Raises DamagedFiles if no file is intact, or with `every` if any is damaged."""
        tables = (read_tables if every else read_or_say)(self.files, trials_folder(sweep))
        self.stored_columns(sweep, tables)
        return merged_rows([table for _, table in tables.values()]) if tables else None

    def trials_without_history(self, sweep: str) -> set[str]:
        """Return the trials whose row did not fail and has a metric, but which lost their history in a damaged file.

        Every metric of a row was also reported at its last epoch, so such a trial had a history. Files of the history
        are not searched for damage here: without one in `damaged` or below `_damaged`, the result is empty.
        """
        folder = history_folder(sweep)
        known = any(path.startswith(f"{folder}/") for path in self.damaged)
        if not known and not self.files.list(damaged_folder(folder)):
            return set()
        measured: set[str] = set()
        for schema, table in self.read_intact(trials_folder(sweep)).values():
            metrics = (table[name].is_valid().to_pylist() for name in columns_of(schema).metrics)
            rows = (table["trial_id"].to_pylist(), table["status"].to_pylist(), zip(*metrics, strict=True))
            measured |= {trial for trial, status, known in zip(*rows, strict=True) if status != "failed" and any(known)}
        histories = self.read_intact(folder, ["trial_id"]).values()
        return measured.difference(*(pc.unique(table["trial_id"]).to_pylist() for _, table in histories))

    def read_intact(self, folder: str, columns: list[str] | None = None) -> Tables:
        """Return the intact files of the folder, and add the others to `damaged`."""
        tables, damaged = read_usable(self.files, folder, columns)
        self.damaged |= damaged
        return tables

    def stored_columns(self, sweep: str, tables: Tables) -> list[Columns]:
        """Return the distinct sets of columns among these files of rows. Raises StoreError for a foreign format, and
        for files whose columns do not fit together."""
        schemas = {schema.serialize().to_pybytes(): (name, schema) for name, (schema, _) in tables.items()}
        columns, united = list[Columns](), Columns({}, ())
        for serialized, (name, _) in schemas.items():
            try:
                columns.append(columns_of_serialized(serialized))
                united = united.union(columns[-1])
            except SchemaError as error:
                raise self.schema_error(sweep, f"'{name}': {error}") from error
        return columns

    def _united(self, sweep: str, columns: Sequence[Columns]) -> Columns:
        """Return the union of these columns. Raises StoreError if one has different types."""
        try:
            return reduce(Columns.union, columns)
        except SchemaError as error:
            raise self.schema_error(sweep, str(error)) from error

    def schema_error(self, sweep: str, reason: str) -> StoreError:
        """The error for rows that this version of the code cannot use."""
        return StoreError(
            f"store {self.files.display_uri} holds rows of sweep {sweep!r} in another schema: {reason}; move such "
            f"files out of '{trials_folder(sweep)}', use another --store, or use --fresh to archive all rows"
        )


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

        - Checks that the store is writable and none of its folders a link, and pins it to the folder found now: if that
          folder disappears or another takes its place, later calls wait for it as for a store that does not respond.
        - Cleans up what a killed writer left: temporary files, write checks, and trials or records that are in two
          files.
        - Quarantines damaged files: those in `damaged`, and all damaged files of rows.
        - Rewrites the sweep's files to one schema: the union of their columns and `columns`, with the defaults of keys
          that rows of earlier versions lack. Raises StoreError if a column has different types.
        """
        folder = trials_folder(sweep)
        check_writable(self.files)
        self.files.pin_folder()
        check_no_links(self.files, sweep)  # else what is trained could not be written
        self.files.clean_up()
        self.quarantine(self.damaged)
        stored, stored_columns = self._scan(sweep)
        united = self._united(sweep, [*stored_columns, columns])
        for name, (schema, _) in stored.items():
            if set(schema.names) != set(united.schema.names):
                for table in self._rows(folder, name):
                    self.files.write(f"{folder}/{name}", table_to_parquet(tables.conform(table, united)))
        self._index[sweep] = _files_by_trial(stored)
        if any(len(names) > 1 for names in self._index[sweep].values()):
            self.compact(sweep)
        self._heal_history(sweep)
        return united

    def quarantine(self, reasons: Mapping[str, str]) -> None:
        """Move damaged files to `_damaged` and report each in one line. `reasons` maps a path to what is wrong."""
        quarantine(self.files, reasons)
        self.damaged = {path: reason for path, reason in self.damaged.items() if path not in reasons}

    def write(self, sweep: str, cohort: str, rows: Sequence[Mapping[str, object]], columns: Columns) -> None:
        """Merge the rows into the cohort's file. Writing the same rows again does not touch the file.

        A new row replaces the trial's old row in whichever file that is, except that a failed row never replaces a
        result. If a row moves to another file (because the plan was cut differently, or files were merged), a plain
        `read_parquet` at that moment may see it twice or not at all.
        """
        name, folder = check_name(cohort) + SUFFIX, trials_folder(sweep)
        new = tables.table_of(rows, columns)
        trials = new["trial_id"].to_pylist()
        if sweep not in self._index:
            self._index[sweep] = _files_by_trial(self._scan(sweep)[0])
        index = self._index[sweep]
        known = {file for trial in trials for file in index.get(trial, ())}
        others = {other: self._rows(folder, other) for other in sorted(known - {name})}
        own = self._rows(folder, name)
        moved = (tables.rows_of(table, trials) for old in others.values() for table in old)
        merged = tables.one_per_trial(tables.concat_rows([*own, *moved, new]))
        if not own or not merged.equals(own[0]):
            self.files.write(f"{folder}/{name}", table_to_parquet(merged))
        for other in others:  # after the new file, so that a crash in between duplicates a row, at worst
            for table in self._rows(folder, other):  # again, because another driver may have written it meanwhile
                self.files.write(f"{folder}/{other}", table_to_parquet(tables.rows_except(table, trials)))
        index.update(dict.fromkeys(trials, (name,)))
        if "failed" not in merged["status"].to_pylist():  # a file with failed rows will be written again
            for segment, table in self._compactor(folder, tables.merged_rows).add(name):
                index.update(dict.fromkeys(table["trial_id"].to_pylist(), (segment,)))

    def write_history(
        self, sweep: str, cohort: str, records: Iterable[Sequence[object]], *, ended: bool = True
    ) -> None:
        """Merge (trial_id, epoch, metric, value) records into the cohort's file.

        The file is not merged with those of other cohorts before the cohort has `ended`.
        """
        name, folder = check_name(cohort) + SUFFIX, history_folder(sweep)
        old = self._rows(folder, name)
        merged = _merged_history([*old, tables.history_of(records)])
        if not old or not merged.equals(old[0]):
            self.files.write(f"{folder}/{name}", table_to_parquet(merged))
        if ended:
            for _ in self._compactor(folder, _merged_history).add(name):
                pass

    def write_sample_grids(self, sweep: str, trial: str, pictures: Mapping[str, bytes]) -> None:
        """Write a trial's pictures and the data of its figures (file name -> content). Writing the same files again
        changes nothing."""
        for name, picture in pictures.items():
            self.files.write(sample_grid_path(sweep, trial, name), picture)

    def delete_history(self, sweep: str, cohort: str, trials: Sequence[str]) -> None:
        """Delete from a cohort's file the history of trials that are reported anew by other cohorts, but for those
        that have a result: others of the cohort, and these where another driver has trained them."""
        folder, name = history_folder(sweep), check_name(cohort) + SUFFIX
        columns = ["trial_id", "status"]
        stored = quarantining(self.files, lambda: read_tables(self.files, trials_folder(sweep), columns))
        rows = [row for _, table in stored.values() for row in table.to_pylist()]
        results = {row["trial_id"] for row in rows if row["status"] != "failed"}
        for table in self._rows(folder, name):
            if len(kept := tables.rows_except(table, [trial for trial in trials if trial not in results])):
                self.files.write(f"{folder}/{name}", table_to_parquet(kept))
            else:
                self.files.delete(f"{folder}/{name}")

    def compact(self, sweep: str) -> str | None:
        """Merge all rows of the sweep into one file. Returns its name, or None if there are no rows.

        The old files are deleted after the new one is written. A plain `read_parquet` at that moment may see rows twice
        or fail on a missing file, and should be repeated; `load` repeats it by itself.
        """
        merged = self._merge_all(trials_folder(sweep), tables.merged_rows)
        if merged is None:
            return None
        name, rows = merged
        self._index[sweep] = dict.fromkeys(rows["trial_id"].to_pylist(), (name,))
        return name

    def _heal_history(self, sweep: str) -> None:
        """Merge the history into one file if a trial has history in several, as rows are merged."""
        folder = history_folder(sweep)
        stored = quarantining(self.files, lambda: read_tables(self.files, folder, ["trial_id"]))
        trials = [trial for _, table in stored.values() for trial in pc.unique(table["trial_id"]).to_pylist()]
        if len(set(trials)) < len(trials):
            self._merge_all(folder, _merged_history)

    def _merge_all(self, folder: str, merge: Merge) -> tuple[str, pa.Table] | None:
        """Merge all files of a folder into one. Returns its name and table; None if there are no files."""
        contents, parsed = read_intact(self.files, folder)
        if not contents:
            return None
        stored = [table for _, table in parsed.values()]
        merged, name = merge(stored), next(iter(contents))
        if len(contents) > 1 or not merged.equals(stored[0]):
            name = f"compact-{self.files.runtime.token()[:16]}{SUFFIX}"
            replace(self.files, folder, contents, name, merged)
        return name, merged

    def _scan(self, sweep: str) -> tuple[Tables, list[Columns]]:
        """Return the trials and statuses of every intact file of rows, and the distinct sets of columns among them."""
        stored = quarantining(self.files, lambda: read_tables(self.files, trials_folder(sweep), ["trial_id", "status"]))
        return stored, self.stored_columns(sweep, stored)

    def _compactor(self, folder: str, merge: Merge) -> Compactor:
        return self._compactors.setdefault(folder, Compactor(self.files, folder, merge))

    def _rows(self, folder: str, name: str) -> list[pa.Table]:
        """Return the table of a file in a list, which is empty if the file is missing or was quarantined as damaged."""
        return [table for _, table in read_intact(self.files, folder, [name])[1].values()]


def _merged_history(histories: Sequence[pa.Table]) -> pa.Table:
    return tables.one_per_record(pa.concat_tables(histories))


def _files_by_trial(stored: Tables) -> dict[str, tuple[str, ...]]:
    """Return trial_id -> names of the files that hold a row of that trial."""
    index: dict[str, tuple[str, ...]] = {}
    for name, (_, table) in stored.items():
        for trial in table["trial_id"].to_pylist():
            index[trial] = (*index.get(trial, ()), name)
    return index


def check_writable(files: Files) -> None:
    """Write, read and delete a small file. Raises StoreError if that fails.

    A local folder that is read-only from the start raises immediately, without retries.
    """
    folder = files.local_folder
    if folder is not None and not files.pinned and folder.is_dir() and os.statvfs(folder).f_flag & os.ST_RDONLY:
        raise StoreError(f"store {files.display_uri}: cannot write: {os.strerror(errno.EROFS)}")
    checked = f"{WRITE_CHECK}{files.runtime.token()}"
    files.write(checked, b"write check")
    if files.read(checked) != b"write check":
        raise StoreError(f"store {files.display_uri}: a file written there does not read back")
    files.delete(checked)


def check_no_links(files: Files, sweep: str) -> None:
    """Raise StoreError if a folder or a page that the sweep has in the store is a link, or lies behind one."""
    for path in (*sorted(FOLDERS), *(path for paths in sweep_folders(sweep).values() for path in paths)):
        files.check_no_link(path)


def check_no_folder_of_a_store(files: Files) -> None:
    """Raise StoreError if a local store would lie in a folder of another one, such as `results/trials`, whose readers
    would take its files for their own."""
    folder = files.local_folder
    if folder is None:
        return
    for outer in folder.absolute().parents:
        inner = folder.absolute().relative_to(outer).parts[0]
        if inner in FOLDERS and (outer / MARKER).exists():
            raise StoreError(
                f"store {files.display_uri} must not be in the store {outer}, whose folder '{inner}' it would be in; "
                f"use --store {outer}, or a folder outside it"
            )


def check_free_space(files: Files) -> None:
    """Raise StoreError if the disk of a local store has less than `MIN_FREE_BYTES` free."""
    folder = files.local_folder
    if folder is None:
        return
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise StoreError(
            f"store {files.display_uri} must have {MIN_FREE_BYTES >> 20} MiB free, but has {free >> 20}; make room, or "
            "use another --store"
        )
