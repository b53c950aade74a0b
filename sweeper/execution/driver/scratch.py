"""Scratch folders of drivers: closed to other users, and removed by the next run after a kill -9.

A scratch folder `sweep-XXXXXXXX` in the temporary folder has mode 0700 and contains

- `driver.lock`, which the driver keeps locked (flock) while it lives. The operating system releases the lock when the
  driver dies, so a lock that can be taken means that no driver needs the folder any more;
- `r`, the folder for Ray. Ray opens its own folders to every user (mode 0777), but no other user can reach them here.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from sweeper.errors import ClusterError
from trainables.cache import OpenFolderError, check_parents

PREFIX, LOCK, INNER = "sweep-", "driver.lock", "r"
LONGEST_HOME = 22
"""Most characters of a temporary folder that leave room for Ray's socket paths, which have at most 107 bytes on Linux
and 103 on macOS. Temporary folders of macOS and of batch systems are often longer."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder that no other user can reach, and remove it at the end.

    Folders of drivers that were killed are removed first. Raises ClusterError if it cannot be made, or if other users
    can replace the contents of the temporary folder.
    """
    home = scratch_home()
    with _making():
        _check_home(home)
        remove_abandoned(home)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))  # mode 0700
        lock = _locked(folder)
    try:
        inner = folder / INNER
        with _making():
            inner.mkdir(mode=0o700)
        yield inner
    finally:
        _remove(folder)
        os.close(lock)


@contextlib.contextmanager
def _making() -> Iterator[None]:
    """Context that raises ClusterError instead of OSError."""
    try:
        yield
    except OSError as error:
        raise ClusterError(f"cannot make a scratch folder: {error}") from error


def scratch_home() -> Path:
    """Return the temporary folder, or `/tmp` if its path is too long for Ray's sockets."""
    home = os.path.realpath(tempfile.gettempdir())
    return Path("/tmp" if len(home) > LONGEST_HOME else home)


def _check_home(home: Path) -> None:
    """Raise ClusterError if another user can rename what is in `home`, `home` itself or a folder above it."""
    law = "folders above scratch files must belong to you or to root and be writable for no one else, or be sticky"
    try:
        check_parents(home / PREFIX, law, "TMPDIR")
    except OpenFolderError as error:
        raise ClusterError(f"cannot make a scratch folder: {error}") from error


def remove_abandoned(home: Path) -> None:
    """Remove this user's scratch folders in `home` whose driver has died and that no process uses any more."""
    for folder in home.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, without a lock file, or gone meanwhile
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    """Raises BlockingIOError if the folder's driver lives, FileNotFoundError if no driver has made the folder."""
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():  # a link, or somebody else's
        return
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _in_use(folder / INNER):
            _remove(folder)
    finally:
        os.close(lock)


def _locked(folder: Path) -> int:
    """Make and lock the folder's lock file, and return its file descriptor.

    The file gets its name after it is locked, so other drivers never see it unlocked while this process lives.
    """
    unnamed = folder / f"{LOCK}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unnamed.rename(folder / LOCK)
    return lock


def _in_use(folder: Path) -> bool:
    """Whether a process of this user uses the folder. Ray's processes outlive a killed driver by some seconds."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid() and _mentions(process, f"{folder}/"):
                return True
    return False


def _mentions(process: psutil.Process, below: str) -> bool:
    """Whether a process has a path with `below` in its command line, as working directory or as open file."""
    paths = (*process.cmdline(), process.cwd(), *(file.path for file in process.open_files()))
    return any(below in f"{path}/" for path in paths)


def _remove(folder: Path) -> None:
    """Remove a scratch folder, its lock file last: a folder that cannot be removed now is still known as a driver's."""
    shutil.rmtree(folder / INNER, ignore_errors=True)
    if not (folder / INNER).exists():
        shutil.rmtree(folder, ignore_errors=True)
