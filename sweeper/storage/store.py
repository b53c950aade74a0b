"""The store: one row per trial in Parquet files that `pandas.read_parquet` reads while a sweep runs.

Each cohort has a file in `STORE/trials/sweep=NAME/` and one in `STORE/history/sweep=NAME/`, and many small files are
merged into larger ones. No file contains the partition column `sweep`: a file that repeats it makes reading the whole
store fail.
"""

import os
import uuid
from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa

from sweeper.errors import SchemaError
from sweeper.storage.arrow_tables import (
    Records,
    concat_rows,
    conform,
    history_of,
    merged_rows,
    one_per_record,
    one_per_trial,
    rows_except,
    rows_of,
    table_of,
    table_to_parquet,
)
from sweeper.storage.compaction import Compactor, Merge
from sweeper.storage.damaged_files import quarantine, quarantining
from sweeper.storage.io.disk_checks import check_writable
from sweeper.storage.io.files import Files
from sweeper.storage.layout import SUFFIX, check_name, history_folder, trials_folder
from sweeper.storage.parquet_folder import Tables, contents_of, parse, read_all, read_tables, replace
from sweeper.storage.schema import Columns
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
        - Cleans up what a killed writer left: temporary files, and trials that are in two files.
        - Sets damaged files aside: those in `damaged`, and all damaged files of rows.
        - Rewrites the sweep's files to one schema: the union of their columns and `columns`, null where a row has no
          value. Raises StoreError if a column has different types.
        """
        folder = trials_folder(sweep)
        check_writable(self.files)
        self.files.pin_folder()
        self.files.clean_up()
        self.quarantine(self.damaged)
        tables, stored_columns = self._scan(sweep)
        try:
            united = reduce(Columns.union, [*stored_columns, columns])
        except SchemaError as error:
            raise self.schema_error(sweep, str(error)) from error
        for name, (schema, _) in tables.items():
            if set(schema.names) != set(united.schema.names):
                for table in self._rows(folder, name):
                    self.files.write(f"{folder}/{name}", table_to_parquet(conform(table, united)))
        self._index[sweep] = _files_by_trial(tables)
        if any(len(names) > 1 for names in self._index[sweep].values()):
            self.compact(sweep)
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
        new = table_of(rows, columns)
        trials = new["trial_id"].to_pylist()
        if sweep not in self._index:
            self._index[sweep] = _files_by_trial(self._scan(sweep)[0])
        index = self._index[sweep]
        known = {file for trial in trials for file in index.get(trial, ())}
        others = {other: self._rows(folder, other) for other in sorted(known - {name})}
        own = self._rows(folder, name)
        merged = one_per_trial(
            concat_rows([*own, *(rows_of(table, trials) for old in others.values() for table in old), new])
        )
        if not own or not merged.equals(own[0]):
            self.files.write(f"{folder}/{name}", table_to_parquet(merged))
        for other, old in others.items():  # after the new file, so that a crash in between duplicates a row, at worst
            for table in old:
                self.files.write(f"{folder}/{other}", table_to_parquet(rows_except(table, trials)))
        index.update(dict.fromkeys(trials, (name,)))
        if "failed" not in merged["status"].to_pylist():  # a file with failed rows will be written again
            for segment, table in self._compactor(folder, merged_rows).add(name):
                index.update(dict.fromkeys(table["trial_id"].to_pylist(), (segment,)))

    def write_history(self, sweep: str, cohort: str, records: Records, *, ended: bool = True) -> None:
        """Merge (trial_id, epoch, metric, value) records, as tuples or as four columns, into the cohort's file.

        The file is not merged with those of other cohorts before the cohort has `ended`.
        """
        name, folder = check_name(cohort) + SUFFIX, history_folder(sweep)
        old, new = self._rows(folder, name), history_of(records)
        merged = one_per_record(pa.concat_tables([*old, new]))
        if not old or not merged.equals(old[0]):
            self.files.write(f"{folder}/{name}", table_to_parquet(merged))
        if ended:
            for _ in self._compactor(folder, lambda tables: one_per_record(pa.concat_tables(tables))).add(name):
                pass

    def delete_history(self, sweep: str, cohort: str) -> None:
        """Delete the history of a cohort whose trials are reported anew by other cohorts."""
        self.files.delete(f"{history_folder(sweep)}/{check_name(cohort)}{SUFFIX}")

    def compact(self, sweep: str) -> str | None:
        """Merge all rows of the sweep into one file. Returns its name, or None if there are no rows.

        The old files are deleted after the new one is written. A plain `read_parquet` at that moment may see rows twice
        or fail on a missing file, and should be repeated; `load` repeats it by itself.
        """
        folder = trials_folder(sweep)

        def read() -> tuple[dict[str, bytes], Tables]:
            contents = contents_of(self.files, folder)
            return contents, parse(self.files, folder, contents)

        contents, parsed = quarantining(self.files, read)
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
        tables = quarantining(self.files, lambda: read_tables(self.files, trials_folder(sweep), ["trial_id", "status"]))
        return tables, self.stored_columns(sweep, tables)

    def _compactor(self, folder: str, merge: Merge) -> Compactor:
        return self._compactors.setdefault(folder, Compactor(self.files, folder, merge))

    def _rows(self, folder: str, name: str) -> list[pa.Table]:
        """Return the table of a file in a list, which is empty if the file is missing, or damaged and so set aside."""

        def read() -> Tables:
            return parse(self.files, folder, read_all(self.files, folder, [name]))

        return [table for _, table in quarantining(self.files, read).values()]


def _files_by_trial(tables: Tables) -> dict[str, tuple[str, ...]]:
    """Return trial_id -> names of the files that hold a row of that trial."""
    index: dict[str, tuple[str, ...]] = {}
    for name, (_, table) in tables.items():
        for trial in table["trial_id"].to_pylist():
            index[trial] = (*index.get(trial, ()), name)
    return index
