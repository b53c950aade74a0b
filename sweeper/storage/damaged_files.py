"""Damaged files of rows and histories: moved out of the way, so that a run goes on and trains their trials again.

Nothing is deleted: `trials/sweep=NAME/FILE` becomes `_damaged/trials/sweep=NAME/TIME-FILE`. Trials whose row was only
in that file have none now, so they are trained again like any other. Trials whose history was only in such a file still
have their row; `without_history` finds them, and `StoreReader` counts them as trials to run.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath

import pyarrow.compute as pc

from sweeper.errors import DAMAGED, DamagedError, DamagedFiles
from sweeper.storage.io.files import Files
from sweeper.storage.io.retry import ONCE, Result
from sweeper.storage.parquet_folder import Tables, at_once, names_in, parse_file
from sweeper.storage.schema import columns_of

_ATTEMPTS = 20


def healing(files: Files, act: Callable[[], Result]) -> Result:
    """What `act` returns after the damaged files that it comes upon have been set aside."""
    for _ in range(_ATTEMPTS):
        try:
            return act()
        except DamagedFiles as damaged:
            set_aside(files, damaged.reasons)
    return act()


def set_aside(files: Files, reasons: Mapping[str, str]) -> None:
    """Move these files to `_damaged`, and say so in a line each. A file that turns out to be whole, because another
    writer has replaced it or it was misread, comes back under a name of its own."""
    for path, reason in reasons.items():
        source = PurePosixPath(path)
        folder, now = str(source.parent), f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        target = f"{DAMAGED}/{folder}/{now}-{source.name}"
        if not files.move(path, target):
            continue
        if _reason(folder, files.read(target)) is None:
            files.move(target, f"{folder}/{source.stem}-{uuid.uuid4().hex[:16]}{source.suffix}")
            continue
        files.say(
            f"store {files.shown}: '{path}' is damaged: {reason}; moved to '{target}', and a run of the same command "
            "trains again whatever was only there"
        )


def damaged_in(files: Files, folder: str) -> dict[str, str]:
    """The damaged files among those of the folder, by path, each with the reason. Holds few of them in memory."""
    once = files.patient(ONCE)

    paths = [f"{folder}/{name}" for name in names_in(files, folder)]
    reasons = files.insist("read", folder, lambda: at_once(lambda path: _reason(folder, once.read(path)), paths))
    return {path: reason for path, reason in zip(paths, reasons, strict=True) if reason}


def without_history(rows: Tables, history: Tables) -> set[str]:
    """The trials of these rows that have a result with a metric, but no history. Every metric of a row was reported at
    its last epoch, so the history of such a trial has been lost."""
    reported = {trial for _, table in history.values() for trial in pc.unique(table["trial_id"]).to_pylist()}
    trials: set[str] = set()
    for schema, table in rows.values():
        metrics = columns_of(schema).metrics
        valid = zip(*(table[name].is_valid().to_pylist() for name in metrics), strict=True)
        columns = (table["trial_id"].to_pylist(), table["status"].to_pylist(), valid)
        trials |= {trial for trial, status, there in zip(*columns, strict=True) if status != "failed" and any(there)}
    return trials - reported


def _reason(folder: str, data: bytes | None) -> str | None:
    """Why a file of this folder with these bytes cannot be read; None where it can, or where it is gone."""
    if data is not None:
        try:
            parse_file(folder, data, [])
        except DamagedError as error:
            return str(error)
    return None
