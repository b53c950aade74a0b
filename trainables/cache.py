"""Folders that no other user can change, such as the user's cache folder, some of whose content is executed."""

import contextlib
import errno
import os
import pwd
import stat
from pathlib import Path

VARIABLE = "XDG_CACHE_HOME"
"""Environment variable that names the folder of the user's caches."""


class OpenFolderError(Exception):
    """Another user could replace or change a folder. The message is one line: the folder and the remedy."""

    def __init__(self, law: str, path: Path, offence: str, remedy: str, variable: str) -> None:
        choice = f"use `{remedy} {path}`, or " if remedy else ""
        super().__init__(f"{law}, but {path} {offence}; {choice}set {variable} to a folder of your own")


def cache_folder() -> Path:
    """The folder for data that can be recreated: `sweeper` in `XDG_CACHE_HOME`, which is `~/.cache` by default."""
    return Path(os.environ.get(VARIABLE) or Path.home() / ".cache") / "sweeper"


def check_closed(folder: Path) -> None:
    """Raise OpenFolderError if another user could change the content of a cache folder, or rename it or a folder above
    it.

    `folder` must not contain symbolic links, because they could be changed after the check. Missing folders are
    skipped. Raises OSError for a file or a link in place of a folder.
    """
    law = (
        f"{folder} and all folders above it must belong to you or to root and be writable for no one else, because its "
        "content is executed"
    )
    with contextlib.suppress(FileNotFoundError):
        check_parents(folder, law, VARIABLE)
        _check(folder, False, law, VARIABLE)


def check_parents(folder: Path, law: str, variable: str) -> None:
    """Raise OpenFolderError if another user could rename `folder` or a folder above it.

    Whoever can write to a parent folder can replace the folder below, unless the parent is sticky, like /tmp. The error
    begins with `law` and names the environment `variable` that chooses another folder. Raises FileNotFoundError if a
    parent does not exist, and as `check_closed`.
    """
    for path in reversed(folder.parents):
        _check(path, True, law, variable)


def _check(path: Path, may_be_sticky: bool, law: str, variable: str) -> None:
    """Raise OpenFolderError if another user could change which files are in a folder."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (0, os.geteuid(), _user_outside()):
        raise OpenFolderError(law, path, f"belongs to {_user(status.st_uid)}", "", variable)
    if mode & 0o022 and not (may_be_sticky and mode & stat.S_ISVTX):
        remedy = "chmod +t" if may_be_sticky and mode & 0o002 else "chmod go-w"  # all users may need it, as /tmp
        raise OpenFolderError(law, path, f"has mode {mode:04o}", remedy, variable)


def _user_outside(process: Path = Path("/proc/self"), kernel: Path = Path("/proc/sys/kernel")) -> int | None:
    """The id that stands for all users outside of this user namespace, including the machine's root. In a rootless
    container, folders of the machine belong to it. None if a user inside the namespace has this id."""
    with contextlib.suppress(OSError, ValueError):
        number = int((kernel / "overflowuid").read_text())
        ranges = [line.split() for line in (process / "uid_map").read_text().splitlines()]
        if not any(int(first) <= number < int(first) + int(count) for first, _, count in ranges):
            return number
    return None


def make_closed(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700. Raises as `check_closed`, and OSError if the folder cannot
    be made."""
    check_closed(folder)
    for path in (*reversed(folder.parents), folder):
        if not path.exists():  # a folder that another process makes meanwhile is as good
            path.mkdir(mode=0o700, exist_ok=True)
    check_closed(folder)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
