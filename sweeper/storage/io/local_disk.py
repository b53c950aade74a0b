"""Files on a local disk: replaced atomically, deleted only if unchanged, and cleaned up after a killed writer."""

import contextlib
import errno
import os
import stat
import time
import uuid
from pathlib import Path

STALE_SECONDS = 3600.0
"""Age in seconds from which a temporary file is considered left behind by a killed writer."""
TEMPORARY, MOVED = ".tmp", ".aside"
"""Suffixes of hidden files: one that is being written, and one that `delete_if_unchanged` compares and deletes."""
PROBE = ".probe-"
"""Prefix of the name of a hidden file that checks whether a store can be written."""


class UnusableFile(OSError):
    """What is at a path is no regular file, or is larger than its reader allows."""


def read(path: Path, most: int | None = None, *, start: bool = False) -> bytes:
    """Return the content of a regular file.

    Raises UnusableFile if it has more than `most` bytes, or with `start` returns as many of its first bytes. A named
    pipe, a device or a folder is never read: that could take forever. It is UnusableFile, too.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise UnusableFile(errno.EINVAL, f"it must be a file, but is {kind_of(status.st_mode)}")
    with open(descriptor, "rb") as stream:
        if most is None:
            return stream.read()
        if status.st_size > most and not start:
            raise too_large(status.st_size, most)
        return stream.read(most)


def kind_of(mode: int) -> str:
    """What is at a path that is no regular file, by the mode of its status."""
    return "a folder" if stat.S_ISDIR(mode) else "a named pipe" if stat.S_ISFIFO(mode) else "a device or a socket"


def too_large(size: int, most: int) -> UnusableFile:
    return UnusableFile(errno.EFBIG, f"it must have at most {most / 2**20:g} MiB, but has {size / 2**20:.1f}")


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
    """Delete stale temporary files and probes in the folder and below it, and restore what `delete_if_unchanged` had
    renamed."""
    for path in folder.rglob(".*"):
        with contextlib.suppress(FileNotFoundError):
            disposable = path.suffix == TEMPORARY or path.name.startswith(PROBE)
            if disposable and time.time() - path.stat().st_mtime > STALE_SECONDS:
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
