"""A change of a store that is killed anywhere."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweeper.storage.files import Files
from sweeper.storage.store import Store

CHANGES = ("write", "delete", "delete_if_unchanged", "delete_folder", "move")
"""Methods of `Files` that change a store."""


class Crash(BaseException):
    """Stands for SIGKILL: no handler runs after it."""


def crashed_copies(
    monkeypatch: pytest.MonkeyPatch, store: Store, act: Callable[[Store], object]
) -> Iterator[tuple[int, Store]]:
    """Yield a number of changes and a copy of the store in which `act` was killed after so many, for each number up to
    the last at which it is not done; of a folder that is deleted, when one of its files is gone."""
    for after in itertools.count():
        copy = Store(shutil.copytree(store.files.uri, f"{store.files.uri}-{after}"))
        with monkeypatch.context() as patches:
            _limit(patches, after)
            try:
                act(copy)
            except Crash:
                pass
            else:
                return
        yield after, copy


def _limit(patches: pytest.MonkeyPatch, changes: int) -> None:
    """Make all stores crash at the change that follows so many."""
    left = [changes]

    def limited(name: str) -> None:
        change = getattr(Files, name)

        def once(files: Files, path: str, *arguments: object) -> object:
            if left[0] <= 0:
                if name == "delete_folder" and (inner := sorted(files.sizes(path))):
                    (Path(files.uri) / inner[0]).unlink()
                raise Crash
            left[0] -= 1
            return change(files, path, *arguments)

        patches.setattr(Files, name, once)

    for name in CHANGES:
        limited(name)
