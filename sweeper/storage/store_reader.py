"""What a plan reads of a store: the status of each trial, and its records. Writes nothing, whatever state files are in.

Damaged files are left out and remembered. Their trials then count as trials to run, and `Store` sets the files aside
before it writes.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pyarrow as pa

from sweeper.errors import DAMAGED, SchemaError, StoreError
from sweeper.storage.arrow_tables import merged_rows, one_per_record
from sweeper.storage.damaged_files import damaged_in, without_history
from sweeper.storage.io.files import Files
from sweeper.storage.parquet_folder import Tables, contents_of, parse_intact, read_tables
from sweeper.storage.schema import HISTORY, Columns, columns_of

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)


def checked(name: str) -> str:
    """`name`, if it can be that of a sweep or a cohort in the store, else ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a name in the store is letters, digits, '_', '-', '+' or '.', but got {name!r}")
    return name


def trials_folder(sweep: str) -> str:
    return f"trials/sweep={checked(sweep)}"


def history_folder(sweep: str) -> str:
    return f"history/sweep={checked(sweep)}"


class StoreReader:
    """The rows and histories of every sweep under one folder or URI, as far as they can be read."""

    def __init__(self, uri: str | os.PathLike[str] | Files) -> None:
        self.files = uri if isinstance(uri, Files) else Files(uri)
        self.damaged: dict[str, str] = {}
        """Files that were found damaged, by path, each with the reason."""

    def statuses(self, sweep: str, check_history: bool = True) -> dict[str, str]:
        """trial_id -> status of every trial that has a row and has not lost its history.

        `check_history=False` does without reading every file of the history, and gives the others, too.
        """
        found = self._intact(trials_folder(sweep), ["trial_id", "status"])
        self.columns(sweep, found)
        best: dict[str, str] = {}
        for _, table in found.values():
            for trial, status in zip(table["trial_id"].to_pylist(), table["status"].to_pylist(), strict=True):
                if status != "failed" or trial not in best:
                    best[trial] = status
        if check_history:
            self.damaged |= damaged_in(self.files, history_folder(sweep))
            for trial in self.without_history(sweep):
                best.pop(trial, None)
        return best

    def records(self, sweep: str) -> tuple[list[dict[str, Any]], list[tuple[str, int, str, float]]]:
        """Every row and every (trial_id, epoch, metric, value) as plain values; none where there are none.

        A row that has lost its history is given as one that failed, for its trial is to be trained again.
        """
        rows, history = self._intact(trials_folder(sweep)), self._intact(history_folder(sweep))
        self.columns(sweep, rows)
        reports = [one_per_record(pa.concat_tables(table for _, table in history.values()))] if history else []
        lost = self.without_history(sweep)
        every = merged_rows([table for _, table in rows.values()]).to_pylist() if rows else []
        return (
            [{**row, "status": "failed"} if row["trial_id"] in lost else row for row in every],
            [tuple(report.values()) for table in reports for report in table.select(HISTORY.names).to_pylist()],
        )

    def rows(self, sweep: str) -> list[dict[str, Any]]:
        """Every row as plain values; none where there are none. Raises DamagedFiles."""
        rows = read_tables(self.files, trials_folder(sweep))
        self.columns(sweep, rows)
        return merged_rows([table for _, table in rows.values()]).to_pylist() if rows else []

    def without_history(self, sweep: str) -> set[str]:
        """Trials that have a row, but whose history was in a file that is damaged, as far as such files are known."""
        folder = history_folder(sweep)
        known = any(path.startswith(f"{folder}/") for path in self.damaged)
        if not known and not self.files.list(f"{DAMAGED}/{folder}"):
            return set()
        rows, history = self._intact(trials_folder(sweep)), self._intact(folder, ["trial_id"])
        return without_history(rows, history)

    def _intact(self, folder: str, columns: list[str] | None = None) -> Tables:
        """The files of the folder that are not damaged; the others are put into `damaged`."""
        tables, damaged = parse_intact(folder, contents_of(self.files, folder), columns)
        self.damaged |= damaged
        return tables

    def columns(self, sweep: str, found: Tables) -> list[Columns]:
        """The distinct sets of columns of these files of rows. StoreError where one is not of this format."""
        distinct = {schema.serialize().to_pybytes(): (name, schema) for name, (schema, _) in found.items()}
        columns = []
        for name, schema in distinct.values():
            try:
                columns.append(columns_of(schema))
            except SchemaError as error:
                raise self.foreign(sweep, f"'{name}': {error}") from error
        return columns

    def foreign(self, sweep: str, reason: str) -> StoreError:
        """The error that says that rows of the sweep are not of this format, and what to do."""
        return StoreError(
            f"store {self.files.shown} holds rows of sweep {sweep!r} in another code's schema: {reason}; "
            f"move such files out of '{trials_folder(sweep)}', use another --store, or --fresh to set all rows aside"
        )
