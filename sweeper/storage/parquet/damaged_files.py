"""Find damaged files of rows and history and move them to `_damaged`, so that a run trains their trials again.

Nothing is deleted: `trials/sweep=NAME/FILE` becomes `_damaged/trials/sweep=NAME/TIME-FILE`. A trial whose row was only
in that file no longer has a row, so it is trained again. A trial whose history was only in such a file still has its
row; `StoreReader.trials_without_history` finds it, and it counts as a trial to run.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from sweeper.errors import DAMAGED, DamagedError, DamagedFiles
from sweeper.storage.io.files import Files
from sweeper.storage.io.retry import NO_RETRIES, Result
from sweeper.storage.layout import SUFFIX, timestamp
from sweeper.storage.parquet.parquet_folder import (
    Tables,
    contents_of,
    map_parallel,
    names_in,
    parse,
    parse_file,
    read_all,
)

NO_FILE = "it is no file, but a folder, named pipe, device or socket"
_ATTEMPTS = 20
"""Number of times that `quarantining` quarantines files before it gives up."""


def quarantining(files: Files, operation: Callable[[], Result]) -> Result:
    """Return `operation()`. Whenever it raises DamagedFiles, quarantine these files and call it again."""
    for _ in range(_ATTEMPTS):
        try:
            return operation()
        except DamagedFiles as damaged:
            quarantine(files, damaged.reasons)
    return operation()


def read_intact(files: Files, folder: str, names: Sequence[str] | None = None) -> tuple[dict[str, bytes], Tables]:
    """Return the bytes and the tables of those of the named files (None: all) that exist. Quarantines damaged files."""

    def read() -> tuple[dict[str, bytes], Tables]:
        contents = contents_of(files, folder) if names is None else read_all(files, folder, names)
        return contents, parse(files, folder, contents)

    return quarantining(files, read)


def quarantine(files: Files, reasons: Mapping[str, str]) -> None:
    """Move damaged files to `_damaged` and report each in one line. `reasons` maps a file's path to what is wrong.

    Each file is read once more after the move. If it is intact, because another writer has replaced it meanwhile or
    because it was misread, it is moved back under a new, unique name.
    """
    for path, reason in reasons.items():
        source = PurePosixPath(path)
        folder = str(source.parent)
        target = _target(folder, source.name)
        if not files.move(path, target):
            continue
        if reason != NO_FILE and _damage(folder, files.read(target)) is None:
            files.move(target, f"{folder}/{source.stem}-{uuid.uuid4().hex[:16]}{source.suffix}")
            continue
        files.log(
            f"store {files.display_uri}: '{path}' is damaged: {reason}; moved to '{target}', and a run of the same "
            "command trains again whatever was only there"
        )


def no_files(files: Files, folder: str) -> dict[str, str]:
    """Map the path of what has the name of a file of the folder but is none, such as a named pipe, to the reason."""
    return {f"{folder}/{name}": NO_FILE for name in files.list_others(folder, SUFFIX)}


def find_damaged(files: Files, folder: str) -> dict[str, str]:
    """Map the path of each damaged file of the folder to the reason. Reads the files in parallel, a few at a time."""
    once = files.with_retries(NO_RETRIES)
    paths = [f"{folder}/{name}" for name in names_in(files, folder)]
    reasons = files.retry("read", folder, lambda: map_parallel(lambda path: _damage(folder, once.read(path)), paths))
    damaged = {path: reason for path, reason in zip(paths, reasons, strict=True) if reason}
    return damaged | no_files(files, folder)


def _target(folder: str, name: str) -> str:
    return f"{DAMAGED}/{folder}/{timestamp()}-{name}"


def _damage(folder: str, data: bytes | None) -> str | None:
    """Return why a file of the folder with these bytes cannot be read, or None if it can, or if `data` is None."""
    if data is not None:
        try:
            parse_file(folder, data, [])
        except DamagedError as error:
            return str(error)
    return None
