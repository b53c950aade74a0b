"""Files on a local disk: replaced atomically, deleted only if unchanged, and cleaned up after a killed writer."""

import contextlib
import os
import time
import uuid
from pathlib import Path

STALE_SECONDS = 3600.0
"""Age in seconds from which a temporary file is considered left behind by a killed writer."""
TEMPORARY, MOVED = ".tmp", ".aside"
"""Suffixes of hidden files: one that is being written, and one that `delete_if_unchanged` compares and deletes."""


def replace(path: Path, data: bytes) -> None:
    """Create or replace the file atomically: write a temporary file beside it, then rename that."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _hidden(path, TEMPORARY)
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def delete_if_unchanged(path: Path, data: bytes) -> None:
    """Delete the file if it holds `data`. Raises FileNotFoundError if there is no file.

    The file is first renamed, so that no writer can replace it between the comparison and the deletion. If it holds
    something else, it comes back under a new, unique name.
    """
    moved = _hidden(path, MOVED)
    os.rename(path, moved)
    try:
        if moved.read_bytes() == data:
            moved.unlink()
    finally:
        with contextlib.suppress(FileNotFoundError):
            _restore(moved)


def clean_up(folder: Path) -> None:
    """Delete stale temporary files in the folder and below it, and restore what `delete_if_unchanged` had renamed."""
    for path in folder.rglob(".*"):
        with contextlib.suppress(FileNotFoundError):
            if path.suffix == TEMPORARY and time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()
            elif path.suffix == MOVED and time.time() - path.stat().st_ctime > STALE_SECONDS:  # ctime: of the rename
                _restore(path)


def _hidden(path: Path, suffix: str) -> Path:
    """A new hidden name `.NAME.UNIQUE.SUFFIX` beside the file."""
    return path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex}{suffix}")


def _restore(moved: Path) -> None:
    """Rename `.NAME.EXT.UNIQUE.aside` to `NAME-UNIQUE.EXT`, a name that has never been used."""
    name, unique = Path(moved.name[1:]).stem.rsplit(".", 1)
    os.rename(moved, moved.with_name(f"{Path(name).stem}-{unique}{Path(name).suffix}"))
