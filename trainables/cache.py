"""The user's cache folder. It holds what can be made again, some of which is executed: only this user may change it."""

import errno
import os
import pwd
import stat
from pathlib import Path


class OpenFolderError(Exception):
    """A folder that another user could replace or change, in one line that says which and what to do."""


def cache_folder() -> Path:
    """The folder of what can be made again: `sweeper` in `XDG_CACHE_HOME`, which is `~/.cache` by default."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweeper"


def check_closed(folder: Path) -> None:
    """Raise OpenFolderError if another user could change what is in a folder, or rename it or a folder above it.

    Whoever can write to a folder above it can put a folder of his own in its place, except where that one is sticky, as
    /tmp is. `folder` must be without symbolic links, because they could be changed after the check. Folders that are
    not there do not count. Raises OSError for a file or a link in place of a folder.
    """
    for path in (*reversed(folder.parents), folder):
        try:
            status = path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        mode, sticky = stat.S_IMODE(status.st_mode), bool(status.st_mode & stat.S_ISVTX) and path != folder
        if status.st_uid not in (0, os.geteuid()):
            _refuse(folder, path, f"belongs to {_user(status.st_uid)}", "")
        if mode & 0o022 and not sticky:
            _refuse(folder, path, f"has mode {mode:04o}", f"use `chmod go-w {path}`, or ")


def make_closed(folder: Path) -> None:
    """Make a folder and all that are missing above it, with mode 0700. Raises what `check_closed` raises, and OSError
    if the folder cannot be made."""
    check_closed(folder)
    for path in (*reversed(folder.parents), folder):
        if not path.exists():  # one that another process makes meanwhile is as good
            path.mkdir(mode=0o700, exist_ok=True)
    check_closed(folder)


def _refuse(folder: Path, path: Path, offence: str, choice: str) -> None:
    raise OpenFolderError(
        f"{folder} and all folders above it must belong to you or to root and be writable for no one else, because "
        f"what is in it is executed, but {path} {offence}; {choice}set XDG_CACHE_HOME to a folder of your own"
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
