"""What `--fresh` trains again: set aside in `_replaced/TIME` of the store, and brought back from there by `--restore`.

A file may hold rows of several requests, so rows and reports move by trial. None is lost by a crash between two steps:

1. Copies of what moves are written below `_replaced/TIME`. Every row is still where it was.
2. What stays of each file is written to a new file, and only then the old one is removed (`folder.replace`). Every row
   that moves has its copy from step 1; every row that stays is in the old file, in the new one, or in both.
3. Whole files and folders (the plan's cut, its pictures) are renamed, which leaves them in one place or the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from sweeper.errors import DamagedError, SchemaError, StoreError
from sweeper.storage.arrow_tables import from_bytes, only, to_bytes, without
from sweeper.storage.io.files import Files
from sweeper.storage.parquet_folder import SUFFIX, contents_of, replace
from sweeper.storage.schema import Columns, columns_of
from sweeper.storage.store import OWNED, checkpoint_path

FOLDER = "_replaced"
ROWS, HISTORY = OWNED[:2]
OTHERS = (*OWNED[2:], f"{OWNED[3]}/halved")
"""Folders of one sweep whose entries move whole."""


@dataclass(frozen=True)
class TrialSelection:
    """The trials that a request trains again, and what else is theirs alone."""

    trials: Collection[str]
    """Ids."""
    studies: Collection[str] = ()
    """Ids of studies, all of whose trials are meant: later ones follow from earlier ones."""
    paths: Sequence[str] = ()
    """Files and folders of the store."""

    def of(self, rows: pa.Table) -> list[str]:
        """Ids of the trials of these rows that are meant."""
        mask = pc.is_in(rows["trial_id"], pa.array(list(self.trials), pa.string()))
        if "study_id" in rows.schema.names:
            mask = pc.or_(mask, pc.is_in(rows["study_id"], pa.array(list(self.studies), pa.string())))
        return list(rows["trial_id"].filter(mask).to_pylist())


@dataclass(frozen=True)
class SetAside:
    """What was set aside, would be, or was brought back."""

    folder: str
    """Where in the store it is; empty where nothing has moved."""
    rows: int
    files: int
    """Of rows and history, whole or in part."""
    unusable: int
    """Those of them that cannot be read, or hold another schema: they move whole, and their rows are not counted."""

    @property
    def text(self) -> str:
        """`8 rows, from 3 files of rows and history`."""
        unusable = f", {self.unusable} of which cannot be used" if self.unusable else ""
        return f"{self.rows} rows, from {self.files} files of rows and history{unusable}"


@dataclass(frozen=True)
class _Part:
    """What of one file moves."""

    folder: str
    name: str
    data: bytes
    """The whole file."""
    moved: pa.Table | None
    """None: all of it, for it cannot be used."""
    rest: pa.Table | None


def survey(files: Files, sweep: str, chosen: TrialSelection, columns: Columns) -> SetAside:
    """What `set_aside` would move; changes nothing."""
    return _counted("", _parts(files, sweep, chosen, columns))


def set_aside(
    files: Files, sweep: str, chosen: TrialSelection, columns: Columns | None = None, but: str | None = None
) -> SetAside | None:
    """Move the rows and history of these trials, and their paths, to a new `_replaced/TIME`; None if there is nothing.

    Files that cannot be read, or whose rows do not go with `columns`, move whole: a run could not use them. Files whose
    names begin with `but` stay.
    """
    folder = f"{FOLDER}/{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    parts = [part for part in _parts(files, sweep, chosen, columns) if not (but and part.name.startswith(but))]
    for part in parts:
        data = part.data if part.moved is None else to_bytes(part.moved)
        files.write(f"{folder}/{part.folder}/{part.name}", data)
    for part in parts:
        if part.rest is None or not len(part.rest):
            files.delete_same(f"{part.folder}/{part.name}", part.data)
        else:
            name = f"segment-{uuid.uuid4().hex[:16]}{SUFFIX}"
            replace(files, part.folder, {part.name: part.data}, name, part.rest)
    moved = [files.move(path, f"{folder}/{path}") for path in chosen.paths]
    return _counted(folder, parts) if parts or any(moved) else None


def restore(files: Files, sweep: str, time: str) -> SetAside:
    """Bring back what `set_aside` has moved to `_replaced/TIME`, after setting aside what has taken its place since.

    Files that cannot be used stay there. StoreError where nothing of the sweep is there.
    """
    times = files.list(FOLDER)
    if time not in times:
        raise StoreError(
            f"store {files.shown}: nothing was set aside at {time!r}; there are: {', '.join(times) or 'none'}"
        )
    source = f"{FOLDER}/{time}"
    every = _parts(files, sweep, None, None, f"{source}/")
    parts = [part for part in every if part.moved is not None]
    paths = [
        f"{folder}/{name}"
        for folder in (other.format(sweep) for other in OTHERS)
        for name in files.list(f"{source}/{folder}")
        if f"{folder}/{name}" != OTHERS[-1].format(sweep)
    ]
    if not parts and not paths:
        there = [one for one in times if files.list(f"{FOLDER}/{one}/{ROWS.format(sweep)}")]
        raise StoreError(
            f"store {files.shown}: nothing of sweep {sweep!r} is in {source}; there are: {', '.join(there) or 'none'}"
        )
    trials = {trial for part in parts if part.moved is not None for trial in part.moved["trial_id"].to_pylist()}
    prefix = f"restored-{time}-"
    set_aside(
        files, sweep, TrialSelection(trials, paths=paths), but=prefix
    )  # what a run cut off before has brought back stays
    for part in reversed(parts):  # history before rows: a row means that all of its trial is there
        files.write(f"{part.folder.removeprefix(source + '/')}/{prefix}{part.name}", part.data)
    for path in paths:
        files.move(f"{source}/{path}", path)
    for part in parts:
        files.delete(f"{part.folder}/{part.name}")
    if len(parts) == len(every):
        files.delete_folder(source)
    return _counted(source, parts)


def fresh_checkpoints(files: Files, sweep: str, folder: str | None) -> Callable[[str], str]:
    """Cohort -> path of its checkpoint; one that an earlier run left there is set aside when it is first asked for.

    Which cohorts there are is known only as they are dispatched, and a cohort of another request keeps its checkpoint.
    """
    left = set(files.list(OWNED[2].format(sweep)))
    target = folder or f"{FOLDER}/{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"

    def path_of(cohort: str) -> str:
        path = checkpoint_path(sweep, cohort)
        if (name := path.rsplit("/", 1)[1]) in left:
            left.discard(name)
            files.move(path, f"{target}/{path}")
        return path

    return path_of


def _parts(
    files: Files, sweep: str, chosen: TrialSelection | None, columns: Columns | None, below: str = ""
) -> list[_Part]:
    """Of the files of rows, then of those of history, what is of the chosen trials (None: everything)."""
    trials: set[str] = set(chosen.trials) if chosen else set()
    found = []
    for kind in (ROWS, HISTORY):
        folder = below + kind.format(sweep)
        for name, data in contents_of(files, folder).items():
            try:
                schema, table = from_bytes(data)
                if kind == ROWS:
                    there = columns_of(schema)
                    _ = columns and there.union(columns)
            except (DamagedError, SchemaError):
                found.append(_Part(folder, name, data, None, None))
                continue
            if kind == ROWS and chosen:
                trials.update(chosen.of(table))
            moved = only(table, list(trials)) if chosen else table
            if len(moved):
                found.append(_Part(folder, name, data, moved, without(table, list(trials)) if chosen else None))
    return found


def _counted(folder: str, parts: Sequence[_Part]) -> SetAside:
    rows = sum(len(part.moved) for part in parts if part.moved is not None and ROWS.split("/")[0] in part.folder)
    return SetAside(folder, rows, len(parts), sum(part.moved is None for part in parts))
