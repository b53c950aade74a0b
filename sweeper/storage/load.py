"""Load the rows or the history of sweeps as pandas frames."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from sweeper.errors import StoreError
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import (
    ARCHIVES,
    HISTORIES,
    TRIALS,
    archive_path,
    history_folder,
    sweeps_in,
    trial_names_path,
    trials_folder,
)
from sweeper.storage.parquet_files import read_or_say
from sweeper.storage.requests import RequestRows, read_request, request_name
from sweeper.storage.rows import (
    FIXED,
    HISTORY,
    STUDY_COLUMNS,
    Columns,
    columns_of,
    merged_rows,
    one_per_record,
    rows_except,
)
from sweeper.storage.store import StoreReader

Named = Mapping[str, bool | int | float | str | None]
"""Column -> value, of those columns of a row that tell a reader which trial it is."""


def load(
    name: str | Sequence[str],
    store: str | os.PathLike[str] | Files = "results",
    preset: str | None = None,
    changes: str | None = "",
) -> pd.DataFrame:
    """Return the rows of a sweep, or of several, one per trial, with all their columns and the column `sweep`. First
    come the hyperparameters in which these rows differ.

    `preset` and `changes` are the two parts of a request's name, such as `"digits"` and `"epochs=5"`, or `""` for the
    preset as it is defined: the rows that belong to the request, as its last run found it defined. Without `preset` all
    rows are returned, and with `changes=None` all rows that were trained for the preset. Raises StoreError if no row is
    left.
    """
    files = store if isinstance(store, Files) else Files(store)
    tables, hyperparameters = [], dict[str, None]()
    for sweep in [name] if isinstance(name, str) else name:
        rows = StoreReader(files).rows(sweep)
        if rows is None:
            raise absent(files, TRIALS, sweep)
        tables.append(rows.append_column("sweep", pa.array([sweep] * len(rows), pa.string())))
        hyperparameters |= dict.fromkeys(columns_of(rows.schema).hyperparameters)
    try:
        rows = pa.concat_tables(tables, promote_options="permissive").to_pandas()
    except pa.ArrowException as error:
        raise StoreError(f"sweeps {', '.join(name)} do not fit into one table: {error}") from error
    if preset is not None and changes is not None:
        sweeps = [name] if isinstance(name, str) else name
        parts = [select_request(files, sweep, rows[rows["sweep"] == sweep], preset, changes) for sweep in sweeps]
        return _swept_first(pd.concat(parts, ignore_index=True), hyperparameters)
    rows = rows if preset is None else _select(files, rows, "preset", preset)
    rows = rows if not changes else _select(files, rows, "changes", changes)
    return _swept_first(rows, hyperparameters)


def _swept_first(rows: pd.DataFrame, hyperparameters: Iterable[str]) -> pd.DataFrame:
    """Return the rows with the hyperparameters in which they differ as their first columns."""

    def differs(values: pd.Series) -> bool:
        first = values.iloc[0]
        return not bool((values.isna() if pd.isna(first) else (values == first).fillna(False)).all())

    keys = [key for key in hyperparameters if key not in STUDY_COLUMNS]
    swept = [key for key in keys if len(rows) and differs(rows[key])]
    return rows[[*swept, *(name for name in rows if name not in swept)]]


def select_request(files: Files, sweep: str, rows: pd.DataFrame, preset: str, changes: str) -> pd.DataFrame:
    """Return those of a sweep's rows that belong to a request. Raises StoreError if there are none.

    A request that no run has listed, as in a store of an earlier version, has the rows with its preset and changes.
    """
    name = request_name(preset, changes)
    listed = read_request(files, sweep, name)
    if listed is None:
        return _select(files, _select(files, rows, "preset", preset), "changes", changes)
    if not len(chosen := listed.select(rows)):
        raise StoreError(f"store {files.display_uri}: request {name!r} of sweep {sweep!r} has no rows yet")
    return chosen


def load_request(files: Files, sweep: str, listed: RequestRows) -> pd.DataFrame:
    """Return the rows that belong to a request, in its order; empty if there are none."""
    rows = StoreReader(files).rows(sweep)
    return listed.select(pd.DataFrame({"trial_id": [], "status": []}) if rows is None else rows.to_pandas())


def load_runs(name: str, store: str | os.PathLike[str] | Files = "results") -> pd.DataFrame:
    """Return every run of the trials of a sweep: its rows, and those that `--fresh` has replaced.

    Sorted by trial and end. The column `replaced` is the time below `_replaced/`, and empty for a trial's present row.
    """
    files = store if isinstance(store, Files) else Files(store)
    runs = []
    for time in ("", *files.list(ARCHIVES)):
        tables = read_or_say(files, archive_path(time, trials_folder(name)) if time else trials_folder(name))
        if tables:
            rows = merged_rows([table for _, table in tables.values()])
            runs.append(rows.append_column("replaced", pa.array([time] * len(rows), pa.string())))
    if not runs:
        raise absent(files, TRIALS, name)
    frame = pa.concat_tables(runs, promote_options="permissive").to_pandas()
    return frame.sort_values(["trial_id", "ended"], kind="stable", ignore_index=True)


def load_replaced(files: Files, name: str, time: str) -> pd.DataFrame:
    """Return the rows of a sweep that `--fresh` replaced at one time: the name of a folder below `_replaced/`."""
    tables = read_or_say(files, archive_path(time, trials_folder(name)))
    if not tables:
        raise absent(files, TRIALS, name)
    return merged_rows([table for _, table in tables.values()]).to_pandas()


def load_trials(files: Files, name: str, trials: Sequence[str]) -> pd.DataFrame:
    """Return the rows of these trials in their order, with columns as those of `load`. Trials without a row, and rows
    of other trials, are left out."""
    order = {trial: index for index, trial in enumerate(trials)}
    table = StoreReader(files).rows(name)
    if table is None:
        raise absent(files, TRIALS, name)
    rows = table.append_column("sweep", pa.array([name] * len(table), pa.string())).to_pandas()
    rows = rows[rows["trial_id"].isin(order)]
    ordered = rows.iloc[rows["trial_id"].map(order).argsort()].reset_index(drop=True)
    return _swept_first(ordered, columns_of(table.schema).hyperparameters)


def load_history(name: str, store: str | os.PathLike[str] | Files = "results") -> pd.DataFrame:
    """Return every (trial_id, epoch, metric, value) that a sweep reported, sorted by trial, metric and epoch."""
    files = store if isinstance(store, Files) else Files(store)
    tables = read_or_say(files, history_folder(name))
    if not tables:
        raise absent(files, HISTORIES, name)
    return one_per_record(pa.concat_tables(table for _, table in tables.values())).to_pandas()


def load_history_without(name: str, files: Files, trials: Collection[str]) -> pd.DataFrame:
    """As `load_history`, of all but these trials and without nulls; empty if a sweep has no history."""
    tables = read_or_say(files, history_folder(name))
    own = [rows_except(table, [*trials]) for _, table in tables.values()]
    return one_per_record(pa.concat_tables([HISTORY.empty_table(), *own])).to_pandas().dropna(subset="value")


def load_trial_names(files: Files, name: str) -> Mapping[str, Named]:
    """Return trial_id -> the values of its row that tell a reader which trial it is: its preset, its changes, and the
    hyperparameters that identify it. A run writes them before the trial has a row. Empty if no run has."""
    names: Mapping[str, Named] | None = read_record(files, trial_names_path(name), Mapping[str, Named])
    return names or {}


def metric_columns(rows: pd.DataFrame, hyperparameters: Collection[str]) -> list[str]:
    """Return the columns of numbers that are neither of every sweep nor hyperparameters, and have a value in a row."""
    numbers = rows.select_dtypes("number").dropna(axis=1, how="all")
    return [name for name in numbers if name not in FIXED and name not in hyperparameters]


def _select(files: Files, rows: pd.DataFrame, column: str, value: str) -> pd.DataFrame:
    """Return the rows with this value. Raises StoreError, which lists the values that occur, if there are none."""
    if value not in (choices := sorted(rows[column].dropna().unique())):
        text = ", ".join(map(repr, choices)) or "none"
        raise StoreError(f"store {files.display_uri}: no rows with {column} {value!r}; there are: {text}")
    return rows[rows[column] == value].reset_index(drop=True)


def absent(files: Files, kind: str, sweep: str) -> StoreError:
    """The error for a sweep without files of a kind, `trials` or `history`. It lists those that have some."""
    others = ", ".join(name for name in sweeps_in(files.list(kind)) if name != sweep) or "none"
    return StoreError(f"store {files.display_uri}: no {kind} of sweep {sweep!r}; there are: {others}")


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


def in_order_of_ends(rows: pa.Table) -> pd.DataFrame:
    """Return rows sorted by the time they ended; those of one time by trial, and those without a time last."""
    return rows.sort_by([("ended", "ascending"), ("trial_id", "ascending")]).to_pandas()


def take_snapshot(files: Files, sweep: str) -> Snapshot:
    """Read a sweep. Rows and history may be empty. Raises StoreError if files have a foreign schema."""
    reader = StoreReader(files)
    row_files, history_files = reader.read_intact(trials_folder(sweep)), reader.read_intact(history_folder(sweep))
    reader.stored_columns(sweep, row_files)
    table = merged_rows([rows for _, rows in row_files.values()]) if row_files else Columns({}, ()).schema.empty_table()
    histories = [history for _, history in history_files.values()]
    history = one_per_record(pa.concat_tables(histories)) if histories else HISTORY.empty_table()
    return Snapshot(in_order_of_ends(table), columns_of(table.schema), history.to_pandas(), reader.damaged)
