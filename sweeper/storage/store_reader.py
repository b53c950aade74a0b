"""Read-only access to a store: the status of each trial, its row and its history.

Nothing is written, even if files are damaged. Damaged files are skipped and remembered, so their trials count as trials
to run. `Store` moves the files to `_damaged` before it writes.
"""

import os
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sweeper.errors import DAMAGED, SchemaError, StoreError
from sweeper.storage.io.files import Files
from sweeper.storage.layout import history_folder, trials_folder
from sweeper.storage.parquet.arrow_tables import merged_rows, one_per_record
from sweeper.storage.parquet.damaged_files import find_damaged, no_files
from sweeper.storage.parquet.parquet_folder import Tables, contents_of, parse_intact, read_tables
from sweeper.storage.parquet.schema import HISTORY, Columns, columns_of
from sweeper.storage.requests import RequestRows


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
            self.damaged |= find_damaged(self.files, history_folder(sweep))
            for trial in self.trials_without_history(sweep):
                statuses.pop(trial, None)
        return statuses

    def statuses_with_history(self, sweep: str) -> dict[str, str]:
        """As `statuses`, but without a search for damaged files: what was set aside before counts as lost."""
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

    def unlisted(self, sweep: str, listed: RequestRows, changes: Collection[str]) -> list[dict[str, Any]]:
        """Return the rows, reduced to hyperparameters, that have the preset of a request and some of these changes, but
        do not belong to the request."""
        rows: dict[str, dict[str, Any]] = {}
        for schema, table in self.read_intact(trials_folder(sweep)).values():
            if not {"preset", "changes", listed.column} <= set(schema.names):
                continue
            known = pc.is_in(table[listed.column], pa.array(listed.ids, pa.string()))
            same_preset = pc.equal(table["preset"], listed.preset)
            same_changes = pc.is_in(table["changes"], pa.array(list(changes), pa.string()))
            chosen = table.filter(pc.and_(pc.and_(same_preset, same_changes), pc.invert(known)))
            keys = [*columns_of(schema).hyperparameters]
            rows |= dict(zip(chosen["trial_id"].to_pylist(), chosen.select(keys).to_pylist(), strict=True))
        return list(rows.values())

    def rows(self, sweep: str) -> pa.Table | None:
        """Return all rows of the sweep, or None if there are none. Raises DamagedFiles."""
        tables = read_tables(self.files, trials_folder(sweep))
        self.stored_columns(sweep, tables)
        return merged_rows([table for _, table in tables.values()]) if tables else None

    def trials_without_history(self, sweep: str) -> set[str]:
        """Return the trials whose row did not fail and has a metric, but which lost their history in a damaged file.

        Every metric of a row was also reported at its last epoch, so such a trial had a history. Files of the history
        are not searched for damage here: without one in `damaged` or below `_damaged`, the result is empty.
        """
        folder = history_folder(sweep)
        known = any(path.startswith(f"{folder}/") for path in self.damaged)
        if not known and not self.files.list(f"{DAMAGED}/{folder}"):
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
        tables, damaged = parse_intact(folder, contents_of(self.files, folder), columns)
        self.damaged |= damaged | no_files(self.files, folder)
        return tables

    def stored_columns(self, sweep: str, tables: Tables) -> list[Columns]:
        """Return the distinct sets of columns among these files of rows. Raises StoreError for a foreign format."""
        schemas = {schema.serialize().to_pybytes(): (name, schema) for name, (schema, _) in tables.items()}
        columns = []
        for name, schema in schemas.values():
            try:
                columns.append(columns_of(schema))
            except SchemaError as error:
                raise self.schema_error(sweep, f"'{name}': {error}") from error
        return columns

    def schema_error(self, sweep: str, reason: str) -> StoreError:
        """The error for rows that this version of the code cannot use."""
        return StoreError(
            f"store {self.files.display_uri} holds rows of sweep {sweep!r} in another schema: {reason}; move such "
            f"files out of '{trials_folder(sweep)}', use another --store, or use --fresh to set all rows aside"
        )
