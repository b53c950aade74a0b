"""The identity of a local store, so that another folder at its path is not mistaken for it.

For example, unmounting a file system reveals the empty folder that it was mounted on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from sweeper.storage.io import local_disk
from sweeper.storage.io.retry import Result

MARKER = ".store-id"
"""Hidden file in the store's root. It holds a random id that identifies the store wherever it is mounted."""
_ATTEMPTS = 3
"""Number of times that `StoreIdentity.of` reads the marker before it gives up."""
_MAX_BYTES = 4096
"""Largest marker."""


class StoreIdentity:
    """The identity of the folder that a store had when a run began.

    A folder is recognised by its device and inode. If these differ (on another machine, or after mounting again), it is
    recognised by its marker. Picklable: a copy keeps the marker only.
    """

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._verified: tuple[int, int] | None = None  # device and inode of the folder whose marker was checked

    def __getstate__(self) -> dict[str, object]:
        return {"_marker": self._marker, "_verified": None}

    @classmethod
    def of(cls, root: Path) -> StoreIdentity:
        """Identify the folder `root`. Creates its marker if it has none."""
        for _ in range(_ATTEMPTS):  # if two runs begin at once, both use the marker that is linked first
            with contextlib.suppress(FileNotFoundError):
                if marker := _read_marker(root):
                    return cls(marker)
            _make_marker(root / MARKER)
        raise OSError(errno.EIO, "its marker does not read back", str(root / MARKER))

    def guard(self, root: Path, act: Callable[[], Result]) -> Result:
        """Return `act()` if the same folder is at `root` before and after the call.

        Raises OSError (ENOTCONN) otherwise: `act` was then not called, or must be called again once the folder is back.
        The folder is kept open meanwhile, so that only a lazy unmount can remove it.
        """
        try:
            folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _gone("its folder is gone") from error
        try:
            numbers = _numbers(os.fstat(folder))
            if numbers != self._verified:
                self._check_marker(root)
                self._verified = numbers
            try:
                result = act()
            except Exception as error:
                if not _is_at(root, numbers):
                    raise _gone("its folder has gone meanwhile") from error
                raise
            if not _is_at(root, numbers):
                raise _gone("its folder has gone meanwhile")
            return result
        finally:
            os.close(folder)

    def _check_marker(self, root: Path) -> None:
        try:
            marker = _read_marker(root)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _gone("another folder is in its place") from error
        if marker != self._marker:
            raise _gone("another store is in its place")


def _read_marker(root: Path) -> str:
    return local_disk.read(root / MARKER, _MAX_BYTES).decode(errors="replace")


def _make_marker(path: Path) -> None:
    """Create the marker. An existing one is kept if the file system has hard links."""
    temporary = path.with_name(f"{MARKER}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_text(uuid.uuid4().hex)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        except OSError:  # a file system without hard links
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _is_at(root: Path, numbers: tuple[int, int]) -> bool:
    """Whether the folder with this device and inode is at `root`."""
    try:
        return _numbers(os.stat(root)) == numbers
    except OSError:
        return False


def _numbers(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _gone(reason: str) -> OSError:
    return OSError(errno.ENOTCONN, f"{reason} (was its file system unmounted?)")
