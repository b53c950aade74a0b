"""The store: one row per trial in Parquet files that `pandas.read_parquet` reads while a sweep runs.

Each cohort has a file in `STORE/trials/sweep=NAME/` and one in `STORE/history/sweep=NAME/`, and many small files are
merged into larger ones. No file contains the partition column `sweep`: a file that repeats it makes reading the whole
store fail.
"""

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from sweeper.errors import SchemaError
from sweeper.storage.io.disk_checks import check_writable
from sweeper.storage.io.files import Files
from sweeper.storage.layout import SUFFIX, check_name, history_folder, sheet_path, trials_folder
from sweeper.storage.parquet import arrow_tables as tables
from sweeper.storage.parquet.compaction import Compactor, Merge
from sweeper.storage.parquet.damaged_files import quarantine, quarantining, read_intact
from sweeper.storage.parquet.parquet_file import table_to_parquet
from sweeper.storage.parquet.parquet_folder import Tables, read_tables, replace
from sweeper.storage.parquet.schema import Columns
from sweeper.storage.store_reader import StoreReader


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
        - Cleans up what a killed writer left: temporary files, probes, and trials or records that are in two files.
        - Sets damaged files aside: those in `damaged`, and all damaged files of rows.
        - Rewrites the sweep's files to one schema: the union of their columns and `columns`, null where a row has no
          value. Raises StoreError if a column has different types.
        """
        folder = trials_folder(sweep)
        check_writable(self.files)
        self.files.pin_folder()
        self.files.clean_up()
        self.quarantine(self.damaged)
        stored, stored_columns = self._scan(sweep)
        try:
            united = reduce(Columns.union, [*stored_columns, columns])
        except SchemaError as error:
            raise self.schema_error(sweep, str(error)) from error
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
        for other, old in others.items():  # after the new file, so that a crash in between duplicates a row, at worst
            for table in old:
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

    def write_sheets(self, sweep: str, trial: str, pictures: Mapping[str, bytes]) -> None:
        """Write a trial's pictures and the data of its figures (file name -> content). Writing the same files again
        changes nothing."""
        for name, picture in pictures.items():
            self.files.write(sheet_path(sweep, trial, name), picture)

    def delete_history(self, sweep: str, cohort: str) -> None:
        """Delete the history of a cohort whose trials are reported anew by other cohorts."""
        self.files.delete(f"{history_folder(sweep)}/{check_name(cohort)}{SUFFIX}")

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
            name = f"compact-{uuid.uuid4().hex[:16]}{SUFFIX}"
            replace(self.files, folder, contents, name, merged)
        return name, merged

    def _scan(self, sweep: str) -> tuple[Tables, list[Columns]]:
        """Return the trials and statuses of every intact file of rows, and the distinct sets of columns among them."""
        stored = quarantining(self.files, lambda: read_tables(self.files, trials_folder(sweep), ["trial_id", "status"]))
        return stored, self.stored_columns(sweep, stored)

    def _compactor(self, folder: str, merge: Merge) -> Compactor:
        return self._compactors.setdefault(folder, Compactor(self.files, folder, merge))

    def _rows(self, folder: str, name: str) -> list[pa.Table]:
        """Return the table of a file in a list, which is empty if the file is missing, or damaged and so set aside."""
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
