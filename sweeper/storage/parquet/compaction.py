"""Merge the many small files of a running sweep into larger ones, in levels, as in a log-structured merge tree.

A row is therefore rewritten once per level, not once for every file that is written.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from sweeper.storage.io.files import Files
from sweeper.storage.layout import SUFFIX
from sweeper.storage.parquet.damaged_files import read_intact
from sweeper.storage.parquet.parquet_folder import replace

MANY = 256
"""Number of files of one level that are merged into one file of the next.

A sweep with fewer cohorts is not compacted while it runs, so a plain `read_parquet` never coincides with a compaction.
Reading takes about a millisecond per file.
"""
LARGEST = 32 << 20
"""Size in bytes above which a merged file is not merged again."""
Merge = Callable[[Sequence[pa.Table]], pa.Table]
"""Merges the tables of several files into one."""


class Compactor:
    """Merges the files that one writer has put into one folder, so several writers can share a folder.

    Files are grouped in levels by how often their rows have been merged. See `parquet_folder.replace` for why no row is
    lost.
    """

    def __init__(self, files: Files, folder: str, merge: Merge) -> None:
        self._files, self._folder, self._merge = files, folder, merge
        self._levels: list[dict[str, None]] = []  # ordered sets of file names

    def add(self, name: str) -> Iterator[tuple[str, pa.Table]]:
        """Register the file `name`, and merge every level that is full. Yields each merged file's name and table.

        This is a generator: nothing happens until it is iterated.
        """
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
            contents, tables = read_intact(self._files, self._folder, names)
            if len(contents) < 2:  # the others were merged by another writer, or set aside as damaged
                level |= dict.fromkeys(contents)
                return
            merged = self._merge([table for _, table in tables.values()])
            name = f"segment-{uuid.uuid4().hex[:16]}{SUFFIX}"
            size = replace(self._files, self._folder, contents, name, merged)
            yield name, merged
            if size > LARGEST:
                return
