"""Which folder a local store is: one that takes its place, as beneath an unmounted file system, is not taken for it."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from sweeper.storage.io.retry import Result

MARKER = ".store-id"
"""Hidden file in the store's root. Its text, made once, names the store wherever and however often it is mounted."""
_ATTEMPTS = 3


class StoreIdentity:
    """The folder that a store was when a run began.

    It is known by device and inode, and where these differ (another machine, mounted again) by its marker. Picklable: a
    copy on another machine knows the marker alone.
    """

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._known: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_marker": self._marker, "_known": None}

    @classmethod
    def of(cls, root: Path) -> StoreIdentity:
        """The identity of the folder `root`, which gets a marker if it has none."""
        for _ in range(_ATTEMPTS):  # two runs may begin at once: whoever links first has named it
            with contextlib.suppress(FileNotFoundError):
                if marker := (root / MARKER).read_text(errors="replace"):
                    return cls(marker)
            _make_marker(root / MARKER)
        raise OSError(errno.EIO, "its marker does not read back", str(root / MARKER))

    def guard(self, root: Path, act: Callable[[], Result]) -> Result:
        """What `act` returns, having found the same folder at `root` before and after.

        OSError (ENOTCONN) otherwise: then `act` has not run, or has to run again once the folder is back. The folder
        is open meanwhile, so that only a lazy unmount can come between.
        """
        try:
            folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _gone("its folder is gone") from error
        try:
            here = _numbers(os.fstat(folder))
            if here != self._known:
                self._check_marker(root)
                self._known = here
            try:
                result = act()
            except Exception as error:
                if not _is_at(root, here):
                    raise _gone("its folder has gone meanwhile") from error
                raise
            if not _is_at(root, here):
                raise _gone("its folder has gone meanwhile")
            return result
        finally:
            os.close(folder)

    def _check_marker(self, root: Path) -> None:
        try:
            marker = (root / MARKER).read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _gone("another folder is in its place") from error
        if marker != self._marker:
            raise _gone("another store is in its place")


def _make_marker(path: Path) -> None:
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
    try:
        return _numbers(os.stat(root)) == numbers
    except OSError:
        return False


def _numbers(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _gone(how: str) -> OSError:
    return OSError(errno.ENOTCONN, f"{how} (was its file system unmounted?)")
