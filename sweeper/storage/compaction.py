"""Small files of a running sweep -> larger ones, now and then: a row is rewritten once a level, not once a file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from sweeper.storage.damaged_files import healing
from sweeper.storage.io.files import Files
from sweeper.storage.parquet_folder import SUFFIX, Tables, parse, read_all, replace

MANY = 256
"""So many files of one level become one of the next. A sweep of fewer cohorts is not folded while it runs, and so plain
readers never meet a folding; a reader takes about a millisecond a file."""
LARGEST = 32 << 20
"""Bytes of a file that is folded no more."""
Merge = Callable[[Sequence[pa.Table]], pa.Table]


class Compactor:
    """The files that one writer has put into one folder, in levels by how often they have been folded.

    A writer folds none but its own, however many others write there. See `replace` for why no row is lost.
    """

    def __init__(self, files: Files, folder: str, merge: Merge) -> None:
        self._files, self._folder, self._merge = files, folder, merge
        self._levels: list[dict[str, None]] = []

    def add(self, name: str) -> Iterator[tuple[str, pa.Table]]:
        """This file is there now. Gives the files that this and others were folded into, with what they hold."""
        if any(name in level for level in self._levels):
            return
        for depth in range(len(self._levels) + 1):
            if depth == len(self._levels):
                self._levels.append({})
            level = self._levels[depth]
            level[name] = None
            if len(level) < MANY:
                return
            names = list(level)
            level.clear()
            contents, tables = healing(self._files, partial(self._read, names))
            if len(contents) < 2:  # another writer has compacted them
                level |= dict.fromkeys(contents)
                return
            merged = self._merge([table for _, table in tables.values()])
            name = f"segment-{uuid.uuid4().hex[:16]}{SUFFIX}"
            size = replace(self._files, self._folder, contents, name, merged)
            yield name, merged
            if size > LARGEST:
                return

    def _read(self, names: Sequence[str]) -> tuple[dict[str, bytes], Tables]:
        """Those of the files that are there, as bytes and parsed. Raises DamagedFiles."""
        contents = read_all(self._files, self._folder, names)
        return contents, parse(self._files, self._folder, contents)
