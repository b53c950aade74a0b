"""What another user of this machine can do: tests that run as root become `nobody` for a moment."""

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """This process has the rights of a user who owns nothing, and comes back."""
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def below(folder: Path) -> list[Path]:
    """The folder and all that is in it, at this moment."""
    return [folder, *(Path(root, name) for root, folders, files in os.walk(folder) for name in (*folders, *files))]


def reached_by_nobody(paths: Iterable[Path]) -> list[str]:
    """What another user can do with these paths, a line each: look, read, list, write, connect."""
    with as_nobody():
        return [f"{verb} {path}" for path in paths for verb, act in ACTS.items() if _can(act, path)]


def open_parents(path: Path) -> list[str]:
    """Folders above `path` in which other users can rename what is not theirs."""
    modes = {parent: stat.S_IMODE(parent.stat().st_mode) for parent in path.parents}
    return [f"{mode:o} {parent}" for parent, mode in modes.items() if mode & 0o002 and not mode & stat.S_ISVTX]


def _can(act: Callable[[Path], object], path: Path) -> bool:
    try:
        act(path)
    except OSError:  # also where it has gone meanwhile, or is another kind of file
        return False
    return True


def _connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


ACTS: dict[str, Callable[[Path], object]] = {
    "look at": os.lstat,
    "read": lambda path: path.open("rb").close(),
    "append to": lambda path: path.open("ab").close(),
    "list": os.listdir,
    "write in": lambda path: (path / "planted").touch(),
    "connect to": _connect,
}
