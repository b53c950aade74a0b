"""Results that `--fresh` replaces: archived in `_replaced/TIME` of the store, and brought back by `--restore TIME`.

A file may hold rows of several requests, so rows and history are moved trial by trial. A crash between two steps loses
nothing:

1. Copies of everything that moves are written below `_replaced/TIME`. Every row is still in its old place, too. A mark
   says so until all copies are there. A folder that still has it holds nothing that was archived: it is not restored,
   and the next archive of the sweep deletes it.
2. For each old file, the rows that stay are written to a new file, and only then the old file is deleted
   (`parquet_folder.replace`). Every row that moves has its copy from step 1. Every row that stays is in the old file,
   in the new one, or in both.
3. Whole files and folders (the plan's cut, its pictures, the trials' sample grids, models and logs) are renamed. Each
   is in the old place or in the new one.
"""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sweeper.errors import DamagedError, SchemaError, StoreError
from sweeper.storage.files import Files
from sweeper.storage.layout import (
    ARCHIVES,
    LOG_SUFFIX,
    MODEL_SUFFIX,
    SUFFIX,
    archive_path,
    copying_path,
    history_folder,
    logs_folder,
    models_folder,
    new_archive,
    sample_grids_folder,
    trials_folder,
    whole_folders,
)
from sweeper.storage.parquet_files import contents_of, parquet_to_table, read_usable, replace, table_to_parquet
from sweeper.storage.rows import Columns, columns_of, rows_except, rows_of


@dataclass(frozen=True)
class TrialSelection:
    """The trials that a request trains again, and the files that belong to them alone."""

    trials: Collection[str]
    studies: Collection[str] = ()
    """Ids of studies. All their trials are selected, because later proposals of a study depend on earlier results."""
    paths: Sequence[str] = ()
    """Files and folders, as paths in the store; they move in this order."""

    def select(self, rows: pa.Table) -> list[str]:
        """Return the ids of the selected trials among these rows."""
        mask = pc.is_in(rows["trial_id"], pa.array(list(self.trials), pa.string()))
        if "study_id" in rows.schema.names:
            mask = pc.or_(mask, pc.is_in(rows["study_id"], pa.array(list(self.studies), pa.string())))
        return list(rows["trial_id"].filter(mask).to_pylist())


@dataclass(frozen=True)
class ArchiveSummary:
    """How much was archived, would be archived, or was brought back."""

    folder: str
    """Folder of the store that holds it, or held it before it was brought back; empty if nothing has moved."""
    rows: int
    files: int
    """Number of files of rows and history that the rows come from, in whole or in part."""
    unusable: int
    """How many of these files are damaged or have another schema. They move as a whole; their rows are not counted."""

    @property
    def text(self) -> str:
        """One line for the terminal, e.g. `8 rows, from 3 files of rows and history`."""
        unusable = f", {self.unusable} of which cannot be used" if self.unusable else ""
        return f"{self.rows} rows, from {self.files} files of rows and history{unusable}"


@dataclass(frozen=True)
class _MovedRows:
    """The part of one file that moves."""

    folder: str
    name: str
    is_rows: bool
    """Whether it is a file of rows; else it is one of history."""
    data: bytes
    """Content of the whole file."""
    moved: pa.Table | None
    """The rows that move; None if the file is unusable and so moves as a whole."""
    kept: pa.Table | None
    """The rows that stay; None if the whole file moves."""


def preview_archive(files: Files, sweep: str, selection: TrialSelection, columns: Columns) -> ArchiveSummary:
    """Return what `archive` would move, without changing anything."""
    return _summary("", _parts(files, sweep, selection, columns))


def archive(files: Files, sweep: str, selection: TrialSelection, columns: Columns) -> ArchiveSummary | None:
    """Move the rows, the history, the sample grids, models, logs and the paths of the chosen trials to a new
    `_replaced/TIME`. None if there are none.

    Files that are damaged, or whose columns cannot be combined with `columns`, move as a whole, because a run could not
    use them.
    """
    parts, grids = _parts(files, sweep, selection, columns), sample_grids_folder(sweep)
    trials = {*selection.trials, *_trials(parts)}
    of_trials = [f"{grids}/{trial}" for trial in files.list(grids) if trial in trials]
    for folder, suffix in ((models_folder(sweep), MODEL_SUFFIX), (logs_folder(sweep), LOG_SUFFIX)):
        of_trials += [f"{folder}/{name}" for name in files.list(folder) if name.removesuffix(suffix) in trials]
    return _archive(files, sweep, parts, [*selection.paths, *of_trials])


def _archive(files: Files, sweep: str, parts: Sequence[_MovedRows], paths: Sequence[str]) -> ArchiveSummary | None:
    """Move these parts, files and folders to a new `_replaced/TIME`. None if there are none."""
    for time in files.list(ARCHIVES):
        if _is_copying(files, sweep, time):
            files.delete_folder(f"{ARCHIVES}/{time}")
    folder = new_archive(files.runtime.now())
    mark = copying_path(folder, sweep)
    if parts:
        files.write(mark, b"")
    for part in parts:
        data = part.data if part.moved is None else table_to_parquet(part.moved)
        files.write(f"{folder}/{part.folder}/{part.name}", data)
    if parts:
        files.delete(mark)
    for part in parts:
        if part.kept is None or not len(part.kept):
            files.delete_if_unchanged(f"{part.folder}/{part.name}", part.data)
        else:
            name = f"segment-{files.runtime.token()[:16]}{SUFFIX}"
            replace(files, part.folder, {part.name: part.data}, name, part.kept)
    moved = [files.move(path, f"{folder}/{path}") for path in paths]
    return _summary(folder, parts) if parts or any(moved) else None


def holds(files: Files, sweep: str, time: str) -> bool:
    """Whether `_replaced/TIME` has something of a sweep."""
    folders = (trials_folder(sweep), history_folder(sweep), *whole_folders(sweep))
    return time in _times(files, sweep) and any(files.list(archive_path(time, folder)) for folder in folders)


def _times(files: Files, sweep: str) -> list[str]:
    """The times at which something was archived, in whatever sweep."""
    return [time for time in files.list(ARCHIVES) if not _is_copying(files, sweep, time)]


def _is_copying(files: Files, sweep: str, time: str) -> bool:
    """Whether a run that archived results of the sweep ended before it had copied them, and so before it moved any."""
    return files.read(copying_path(f"{ARCHIVES}/{time}", sweep)) is not None


def archived_times(files: Files, sweep: str, time: str) -> list[str]:
    """The times at which something was archived. Raises StoreError unless `time` is one of them."""
    times = _times(files, sweep)
    if time not in times:
        raise StoreError(
            f"store {files.display_uri}: nothing was archived at {time!r}; there are: {', '.join(times) or 'none'}"
        )
    return times


def restore(files: Files, sweep: str, time: str) -> ArchiveSummary:
    """Bring back what `archive` moved to `_replaced/TIME`. Results that replaced it since are archived in turn.

    The history of a run that did not end is brought back for trials without a row alone. Unusable files stay in
    `_replaced/TIME`. Raises StoreError if that folder holds nothing of the sweep.
    """
    times = archived_times(files, sweep, time)
    source = f"{ARCHIVES}/{time}"
    candidates = _parts(files, sweep, None, None, f"{source}/")
    parts = [part for part in candidates if part.moved is not None]
    folders = whole_folders(sweep)
    paths = [f"{folder}/{name}" for folder in folders for name in files.list(f"{source}/{folder}")]
    paths = [path for path in paths if path != folders[-1]]
    if not files.sizes(source):  # an interrupted `restore` has brought everything back already
        files.delete_folder(source)
        return _summary(source, ())
    if not parts and not paths:
        usable = ", ".join(other for other in times if files.list(archive_path(other, trials_folder(sweep))))
        reason = f"nothing of sweep {sweep!r} is in {source}; there are: {usable or 'none'}"
        raise StoreError(f"store {files.display_uri}: {reason}")
    prefix = f"restored-{time}-"
    with_rows = _trials([part for part in parts if part.is_rows])
    stored, _ = read_usable(files, trials_folder(sweep), ["trial_id"])
    results = {trial for _, table in stored.values() for trial in table["trial_id"].to_pylist()} - with_rows
    parts = [dataclasses.replace(part, moved=rows_except(part.moved, [*results])) for part in parts]
    replaced = _parts(files, sweep, TrialSelection(with_rows), None, history_of=_trials(parts))
    # Files with the prefix stay: an interrupted `restore` has brought them back already.
    _archive(files, sweep, [part for part in replaced if not part.name.startswith(prefix)], paths)
    for path in paths:  # rows come last, and history before them, because a row means that its trial is complete
        files.move(f"{source}/{path}", path)
    for part in reversed(parts):
        if part.moved is not None and len(part.moved):
            folder = part.folder.removeprefix(f"{source}/")
            files.write(f"{folder}/{prefix}{part.name}", table_to_parquet(part.moved))
    for part in parts:
        files.delete(f"{part.folder}/{part.name}")
    if len(parts) == len(candidates):
        files.delete_folder(source)
    return _summary(source, parts)


def _parts(
    files: Files,
    sweep: str,
    selection: TrialSelection | None,
    columns: Columns | None,
    below: str = "",
    history_of: Collection[str] = (),
) -> list[_MovedRows]:
    """Return the part of each file, rows first and then history, that belongs to the selected trials (None: to any).

    The sweep's folders are looked up in the folder `below`, which is "" or ends with a slash. Files without any
    selected trial are left out. `history_of`: trials of which the history alone is selected.
    """
    trials: set[str] = set(selection.trials) if selection else set()
    parts = []
    for folder, is_rows in ((below + trials_folder(sweep), True), (below + history_folder(sweep), False)):
        for name, data in contents_of(files, folder).items():
            try:
                schema, table = parquet_to_table(data)
                if is_rows:
                    columns_of(schema).union(columns or Columns({}, ()))
            except (DamagedError, SchemaError):
                parts.append(_MovedRows(folder, name, is_rows, data, None, None))
                continue
            if is_rows and selection:
                trials.update(selection.select(table))
            selected = list(trials if is_rows else trials.union(history_of))
            moved = rows_of(table, selected) if selection else table
            if len(moved):
                kept = rows_except(table, selected) if selection else None
                parts.append(_MovedRows(folder, name, is_rows, data, moved, kept))
    return parts


def _trials(parts: Sequence[_MovedRows]) -> set[str]:
    """The trials whose rows or history move."""
    return {trial for part in parts if part.moved is not None for trial in part.moved["trial_id"].to_pylist()}


def _summary(folder: str, parts: Sequence[_MovedRows]) -> ArchiveSummary:
    rows = sum(len(part.moved) for part in parts if part.moved is not None and part.is_rows)
    return ArchiveSummary(folder, rows, len(parts), sum(part.moved is None for part in parts))
