"""Load the rows or the history of sweeps as pandas frames."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pandas as pd
import pyarrow as pa

from sweeper.errors import StoreError
from sweeper.storage.arrow_tables import merged_rows, one_per_record
from sweeper.storage.io.files import Files
from sweeper.storage.layout import check_name
from sweeper.storage.parquet_folder import Tables, read_tables
from sweeper.storage.store_reader import StoreReader


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
        StoreReader(files).stored_columns(sweep, stored)
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
        raise StoreError(f"store {files.display_uri}: no rows with {column} {value!r}; there are: {text}")
    return rows[rows[column] == value].reset_index(drop=True)


def _read_sweep(files: Files, kind: str, sweep: str) -> Tables:
    """Return the sweep's files of a kind, `trials` or `history`.

    Raises StoreError, which lists the sweeps that have such files, if there are none.
    """
    tables = read_tables(files, f"{kind}/sweep={check_name(sweep)}")
    if not tables:
        names = [name.removeprefix("sweep=") for name in files.list(kind) if name.startswith("sweep=")]
        raise StoreError(
            f"store {files.display_uri}: no {kind} of sweep {sweep!r}; there are: {', '.join(names) or 'none'}"
        )
    return tables
