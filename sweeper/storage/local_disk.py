"""Files on a local disk: replaced atomically, deleted only if unchanged, and cleaned up after a killed writer.

No link below a store's root is followed: what a store holds may come from somebody else, whose link can lead to a
private key, or back to its own folder.

`StoreIdentity` recognises the folder of a store, so that another folder at its path is not mistaken for it: unmounting
a file system, for example, reveals the empty folder that it was mounted on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sweeper.storage.retry import Result

STALE_SECONDS = 3600.0
"""Age in seconds from which a temporary file is considered left behind by a killed writer."""
TEMPORARY, MOVED = ".tmp", ".aside"
"""Suffixes of hidden files: one that is being written, and one that `delete_if_unchanged` compares and deletes."""
WRITE_CHECK = ".write-check-"
"""Prefix of the name of a hidden file that checks whether a store can be written."""
_UNIQUE = "[0-9a-f]{32}"
_WRITTEN = re.compile(
    rf"[.](.+)[.]({_UNIQUE})({re.escape(TEMPORARY)}|{re.escape(MOVED)})|{re.escape(WRITE_CHECK)}{_UNIQUE}", re.DOTALL
)
"""Names of the hidden files that this program writes and deletes; see `_hidden`."""


FILE, FOLDER, LINK, PIPE, OTHER = "a file", "a folder", "a link", "a named pipe", "a device or a socket"
"""What can be at a path."""


class UnusableFile(OSError):
    """What is at a path is no regular file, or is larger than its reader allows."""


@dataclass(frozen=True)
class Entry:
    """What a folder has under one name."""

    name: str
    kind: str
    """One of `FILE`, `FOLDER`, `LINK`, `PIPE` and `OTHER`."""
    size: int = 0
    written_ns: int | None = None
    """When it was written, in nanoseconds since 1970; None if the store does not say."""


def entries(folder: Path) -> list[Entry]:
    """Return what is in a folder. Raises FileNotFoundError or NotADirectoryError if there is none."""
    found = list[Entry]()
    with os.scandir(folder) as listing:
        for each in listing:
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                status = each.stat(follow_symlinks=False)
                found.append(Entry(each.name, kind_of(status.st_mode), status.st_size, status.st_mtime_ns))
    return found


def tree(path: Path) -> dict[str, Entry]:
    """Map the path of everything below a folder but folders, relative to it, to what is there; empty if there is no
    such folder."""
    found, folders = dict[str, Entry](), [""]
    while folders:
        folder = folders.pop()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # deleted meanwhile
            for entry in entries(path / folder):
                if entry.kind == FOLDER:
                    folders.append(f"{folder}{entry.name}/")
                else:
                    found[f"{folder}{entry.name}"] = entry
    return found


def link_in(root: str, path: str) -> str | None:
    """Return the first part of a path below `root` that is a link; None if there is none."""
    whole = root
    for part in path.split("/"):
        whole = f"{whole}/{part}"
        if os.path.islink(whole):
            return whole[len(root) + 1 :]
    return None


def dangling_link(root: Path) -> Path | None:
    """Return `root`, or the folder above it, that is a link to what does not exist; None if there is none."""
    for path in (root, *root.parents):
        if os.path.lexists(path):
            return None if os.path.exists(path) else path
    return None


def read(path: Path, most: int | None = None, *, start: bool = False, end: bool = False, follow: bool = False) -> bytes:
    """Return the content of a regular file.

    Raises UnusableFile if it has more than `most` bytes, or with `start` or `end` returns as many of its first or last
    bytes. A named pipe, a device or a folder is never read: that could take forever. It is UnusableFile, too, and so is
    a link unless `follow` is set.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ENXIO or (error.errno == errno.ELOOP and path.is_symlink()):
            raise _no_file(LINK if path.is_symlink() else OTHER) from error
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise _no_file(kind_of(status.st_mode))
    with open(descriptor, "rb") as stream:
        if most is None:
            return stream.read()
        if status.st_size > most and not start:
            if not end:
                raise too_large(status.st_size, most)
            stream.seek(status.st_size - most)
        return stream.read(min(most, status.st_size))


def _no_file(kind: str) -> UnusableFile:
    return UnusableFile(errno.EINVAL, f"it must be a file, but is {kind}")


def kind_of(mode: int) -> str:
    """What is at a path, by the mode of its status."""
    kinds = {stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK, stat.S_IFIFO: PIPE}
    return kinds.get(stat.S_IFMT(mode), OTHER)


def too_large(size: int, most: int) -> UnusableFile:
    return UnusableFile(errno.EFBIG, f"it must have at most {most / 2**20:g} MiB, but has {size / 2**20:.1f}")


def replace(path: Path, data: bytes) -> None:
    """Create or replace the file atomically: write a temporary file beside it, then rename that. When this returns, the
    disk has the content and the name, also of folders that were made for it."""
    changed = [path.parent]
    while not changed[-1].exists():
        changed.append(changed[-1].parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _hidden(path, TEMPORARY)
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        for folder in changed:
            _sync_names(folder)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync_names(folder: Path) -> None:
    """Wait until the disk has the names in the folder, on file systems that can say so."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def delete_folder(path: Path) -> None:
    """Delete a folder with its content, or what is there in its place, such as a link. Raises FileNotFoundError if
    nothing is there, and NotADirectoryError for a file."""

    def ignore_missing(act: object, name: str, failure: tuple[type[BaseException], BaseException, object]) -> None:
        if name == whole or not isinstance(failure[1], FileNotFoundError):
            raise failure[1]

    whole, kind = str(path), kind_of(path.lstat().st_mode)
    if kind == FILE:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), whole)
    if kind == FOLDER:
        shutil.rmtree(whole, onerror=ignore_missing)
    else:
        path.unlink()


def delete_if_unchanged(path: Path, data: bytes) -> None:
    """Delete the file if it holds `data`. Raises FileNotFoundError if there is no file.

    The file is first renamed, so that no writer can replace it between the comparison and the deletion. If it holds
    something else, it comes back under a new, unique name.
    """
    moved = _hidden(path, MOVED)
    os.rename(path, moved)
    try:
        with contextlib.suppress(UnusableFile):
            if read(moved) == data:
                moved.unlink()
    finally:
        with contextlib.suppress(FileNotFoundError):
            _restore(moved)


def clean_up(folder: Path) -> None:
    """Delete stale temporary files and write checks in the folder and below it, and restore what
    `delete_if_unchanged` had renamed. Leaves alone all but regular files with the names that this program gives."""
    for path in folder.rglob(".*"):
        if not _WRITTEN.fullmatch(path.name):
            continue
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                continue
            if path.suffix != MOVED and time.time() - status.st_mtime > STALE_SECONDS:
                path.unlink()
            elif path.suffix == MOVED and time.time() - status.st_ctime > STALE_SECONDS:  # ctime: of the rename
                _restore(path)


def _hidden(path: Path, suffix: str) -> Path:
    """A new hidden name `.NAME.UNIQUE.SUFFIX` beside the file."""
    return path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex}{suffix}")


def _restore(moved: Path) -> None:
    """Rename `.NAME.EXT.UNIQUE.aside` to `NAME-UNIQUE.EXT`, a name that has never been used, unless it exists."""
    name, unique = Path(moved.name[1:]).stem.rsplit(".", 1)
    restored = moved.with_name(f"{Path(name).stem}-{unique}{Path(name).suffix}")
    if not os.path.lexists(restored):
        os.rename(moved, restored)


MARKER = ".store-id"
"""Hidden file in the store's root. It holds a random id that identifies the store wherever it is mounted."""
_ATTEMPTS = 3
"""Number of times that `StoreIdentity.of` reads the marker before it gives up."""
_MAX_BYTES = 4096
"""Largest marker."""


class StoreIdentity:
    """The identity of the folder that a store had when a run began.

    A folder is recognised by its device and inode. If these differ (on another machine, or after mounting again), it is
    recognised by its marker. Picklable: a copy keeps the marker and the host only. A process that never had the folder,
    on another host, takes its absence for a lasting failure: its node more likely lacks the folder than waits for it.
    """

    def __init__(self, marker: str) -> None:
        self._marker, self._host = marker, socket.gethostname()
        self._verified: tuple[int, int] | None = None  # device and inode of the folder whose marker was checked

    def __getstate__(self) -> dict[str, object]:
        return {"_marker": self._marker, "_host": self._host, "_verified": None}

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
            raise self._absent("its folder is gone") from error
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

    def _absent(self, reason: str) -> OSError:
        """The error for a folder that is not there."""
        host = socket.gethostname()
        if self._verified or host == self._host:
            return _gone(reason)
        law = f"a store in a folder must be on all nodes, but it is on {self._host} and not on {host}"
        return OSError(errno.ENODEV, f"{law}; use a folder that they share, or s3:// or gs://")

    def _check_marker(self, root: Path) -> None:
        try:
            marker = _read_marker(root)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._absent("another folder is in its place") from error
        if marker != self._marker:
            raise self._absent("another store is in its place")


def _read_marker(root: Path) -> str:
    return read(root / MARKER, _MAX_BYTES).decode(errors="replace")


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
