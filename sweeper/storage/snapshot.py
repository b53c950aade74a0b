"""All that can be read of a sweep at one moment, without changing the store: damaged files are left out and named."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from sweeper.storage.io.files import Files
from sweeper.storage.layout import history_folder, trials_folder
from sweeper.storage.parquet.arrow_tables import merged_rows, one_per_record
from sweeper.storage.parquet.schema import HISTORY, Columns, columns_of
from sweeper.storage.store_reader import StoreReader


@dataclass(frozen=True)
class Snapshot:
    """The rows and the history of a sweep."""

    rows: pd.DataFrame
    """One row per trial, sorted by the time it ended. Whole numbers with nulls are floats here; see `columns`."""
    columns: Columns
    """Hyperparameters with their types, and metrics."""
    history: pd.DataFrame
    """Every (trial_id, epoch, metric, value), also of trials that have no row yet."""
    damaged: Mapping[str, str]
    """Path of each damaged file -> what is wrong with it."""


def take_snapshot(files: Files, sweep: str) -> Snapshot:
    """Read a sweep. Rows and history may be empty. Raises StoreError if files have a foreign schema."""
    reader = StoreReader(files)
    row_files, history_files = reader.read_intact(trials_folder(sweep)), reader.read_intact(history_folder(sweep))
    reader.stored_columns(sweep, row_files)
    table = merged_rows([rows for _, rows in row_files.values()]) if row_files else Columns({}, ()).schema.empty_table()
    histories = [history for _, history in history_files.values()]
    history = one_per_record(pa.concat_tables(histories)) if histories else HISTORY.empty_table()
    rows = table.to_pandas().sort_values(["ended", "trial_id"], kind="stable").reset_index(drop=True)
    return Snapshot(rows, columns_of(table.schema), history.to_pandas(), reader.damaged)
