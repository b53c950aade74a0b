"""Files of a local disk: replaced whole, deleted only while they are what was read, and put right after a kill."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path

STALE_SECONDS = 3600.0
"""What a writer leaves for a moment and is older than this was left by one that was killed."""
TEMPORARY, ASIDE = ".tmp", ".aside"
"""Endings of hidden files: one that is being written; one that is looked at before it goes."""


def replace(path: Path, data: bytes) -> None:
    """Create or replace the file: written beside it, then renamed."""
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


def delete_same(path: Path, data: bytes) -> None:
    """Delete the file if it holds `data`. It is moved to where no writer can reach it, and looked at there; one that
    holds something else comes back under a name of its own. FileNotFoundError where there is none."""
    aside = _hidden(path, ASIDE)
    os.rename(path, aside)
    try:
        if aside.read_bytes() == data:
            aside.unlink()
    finally:
        with contextlib.suppress(FileNotFoundError):
            _bring_back(aside)


def tidy(folder: Path) -> None:
    """Put right what killed writers left in the folder and below: temporary files go, those set aside come back."""
    for path in folder.rglob(".*"):
        with contextlib.suppress(FileNotFoundError):
            if path.suffix == TEMPORARY and time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()
            elif path.suffix == ASIDE and time.time() - path.stat().st_ctime > STALE_SECONDS:  # a rename changes that
                _bring_back(path)


def _hidden(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex}{ending}")


def _bring_back(aside: Path) -> None:
    """Under a name that was never there, and that ends as it did."""
    name, unique = Path(aside.name[1:]).stem.rsplit(".", 1)
    os.rename(aside, aside.with_name(f"{Path(name).stem}-{unique}{Path(name).suffix}"))
