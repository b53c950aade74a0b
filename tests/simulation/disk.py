"""Every crash of a file on a local disk: what is there between any two lines of `sweeper.storage.local_disk`.

Worlds have an object store, so this runs `replace` and `delete_if_unchanged` themselves. What a killed process leaves
is what is there at a line. A disk that loses its power keeps of a file only what was synced. An exception may come at
each line, too. Then a reader sees the old content or the new one, and what else is left is hidden and cleaned up.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sweeper.storage import local_disk

FILE = "storage/local_disk.py"
"""The source below `sweeper/` that is run here."""
OLD, NEW, OTHER = b"old" * 1000, b"new" * 2000, b"other"


@dataclass(frozen=True)
class Case:
    """An operation on a file."""

    name: str
    path: str
    before: bytes | None
    """What the file has before; None if there is none."""
    after: bytes | None
    act: Callable[[Path], None]


CASES = (
    Case("a new file", "x", None, NEW, lambda path: local_disk.replace(path, NEW)),
    Case("a file that is replaced", "x", OLD, NEW, lambda path: local_disk.replace(path, NEW)),
    Case("a file in new folders", "a/b/x", None, NEW, lambda path: local_disk.replace(path, NEW)),
    Case("a file that is deleted", "x.y", OLD, None, lambda path: local_disk.delete_if_unchanged(path, OLD)),
)


def broken() -> Iterator[str]:
    """Yield what does not hold after some crash."""
    for case in CASES:
        count = 0

        def watch(disk: _Disk) -> Iterator[str]:
            nonlocal count
            count += 1
            yield from (f"killed at line {count}: {problem}" for problem in disk.wrong())

        yield from (f"{case.name}: {problem}" for problem in _run(case, watch))
        for line in range(1, count + 1):
            for error in (OSError(errno.ENOSPC, "simulated"), KeyboardInterrupt()):
                at = f"{case.name}, {type(error).__name__} at line {line}"
                yield from (f"{at}: {problem}" for problem in _run(case, functools.partial(_fail, [line], error)))
    yield from _kept()


def _fail(left: list[int], error: BaseException, disk: _Disk) -> Iterator[str]:
    """Raise an error at one line."""
    left[0] -= 1
    if not left[0]:
        raise error
    yield from ()


def _kept() -> Iterator[str]:
    """What another has written meanwhile is in some file at every line, and after the deletion."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.y"
        path.write_bytes(OTHER)
        problems = list[str]()

        def look() -> None:
            if OTHER not in [each.read_bytes() for each in path.parent.iterdir()]:
                problems.append("what was written since is deleted")

        _trace(lambda: local_disk.delete_if_unchanged(path, OLD), look)
        look()
        yield from problems


class _Disk:
    """A folder, and what of it was synced."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self._case, self._path = folder, case, folder / case.path
        if case.before is not None:
            self._path.write_bytes(case.before)
        self.synced = {os.stat(self._path).st_ino} if case.before is not None else set[int]()
        self.names: set[Path] = set()
        """Folders of which the names were synced since the last rename."""

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def wrong(self) -> Iterator[str]:
        """Yield what is wrong if the process is killed now, or the power fails."""
        found, legal = self.files(), (self._case.before, self._case.after)
        if found.get(self._path) not in legal:
            yield f"a reader sees {found.get(self._path)!r:.20} in place of {legal[0]!r:.20} or {legal[1]!r:.20}"
        for path, data in found.items():
            if path.name.startswith("."):
                continue
            if os.stat(path).st_ino not in self.synced:
                yield f"the power fails, and {path.name} lacks content that the disk does not have yet"
            if path != self._path and data != self._case.before:
                yield f"{path.name} is left where readers see it"

    def after(self) -> Iterator[str]:
        """Yield what is wrong at the end of the operation."""
        if (found := self.files().get(self._path)) != self._case.after:
            yield f"the file has {found!r:.20} in place of {self._case.after!r:.20}"
        folders = {self.folder / each for each in Path(self._case.path).parents}
        if self._case.after is not None and (lost := folders - self.names):
            yield f"the power fails, and the names in {sorted(path.name for path in lost)} are lost"
        yield from self.left()

    def left(self) -> Iterator[str]:
        """Yield what cleaning up leaves."""
        local_disk.clean_up(self.folder)
        if others := [path.name for path, data in self.files().items() if path != self._path and data != OLD]:
            yield f"{others} are left behind"


def _run(case: Case, at_line: Callable[[_Disk], Iterator[str]]) -> Iterator[str]:
    """Run an operation, and yield what is wrong at its lines and afterwards."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        disk, problems, fsync, rename = _Disk(Path(folder), case), list[str](), os.fsync, os.replace

        def synced(descriptor: int) -> None:
            fsync(descriptor)
            disk.synced.add(os.fstat(descriptor).st_ino)
            disk.names.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

        def renamed(old: Path, new: Path) -> None:
            rename(old, new)
            disk.names.clear()

        patched.setattr(os, "fsync", synced)
        patched.setattr(os, "replace", renamed)
        patched.setattr(local_disk, "STALE_SECONDS", -1.0)
        try:
            _trace(lambda: case.act(disk.folder / case.path), lambda: problems.extend(at_line(disk)))
        except (OSError, KeyboardInterrupt) as error:
            if isinstance(error, OSError) and error.strerror != "simulated":
                raise
            problems += [*disk.wrong(), *disk.left()]
        else:
            problems += disk.after()
        yield from problems


def _trace(act: Callable[[], None], at_line: Callable[[], None]) -> None:
    """Call `act`, and `at_line` before each line of `local_disk` that it runs."""

    def trace(frame: Any, event: str, _: object) -> Any:
        if frame.f_code.co_filename != local_disk.__file__:
            return None
        if event == "line":
            at_line()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
