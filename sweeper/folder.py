"""The Parquet files of one folder: read as they are at a moment, and replaced by one that holds all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from sweeper.digest import DamagedError
from sweeper.files import Files, StoreError
from sweeper.patience import ONCE, Result
from sweeper.rows import from_bytes, to_bytes
from sweeper.schema import SchemaError

SUFFIX = ".parquet"
READERS = 8
"""Files that are read or removed at a time: an object store takes long over each, and little over several."""
_ATTEMPTS = 20


def read_tables(files: Files, folder: str, columns: list[str] | None = None) -> dict[str, tuple[pa.Schema, pa.Table]]:
    """Every file's schema and rows, by name; listed again where a writer moved rows between listing and reading."""
    return parse(files, folder, contents_of(files, folder), columns)


def contents_of(files: Files, folder: str) -> dict[str, bytes]:
    for _ in range(_ATTEMPTS):
        names = [name for name in files.list(folder) if name.endswith(SUFFIX)]
        found = read_all(files, folder, names)
        if len(found) == len(names):
            return found
    raise StoreError(f"store {files.shown}: files in '{folder}' keep vanishing while they are read")


def parse(
    files: Files, folder: str, contents: Mapping[str, bytes], columns: list[str] | None = None
) -> dict[str, tuple[pa.Schema, pa.Table]]:
    def one(name: str) -> tuple[pa.Schema, pa.Table]:
        try:
            return from_bytes(contents[name], columns)
        except (SchemaError, DamagedError) as error:
            raise StoreError(f"store {files.shown}: cannot use '{folder}/{name}': {error}") from error

    return dict(zip(contents, at_once(one, contents), strict=True))


def replace(files: Files, folder: str, old: dict[str, bytes], name: str, table: pa.Table) -> int:
    """Put `table` there as `name`, and then remove the old files, which hold nothing else. Returns its bytes.

    The name must never have been used. Then no row is lost, whoever else does the same: of all files that ever held a
    row, the newest is never removed, for whoever removes one has written a newer. And what another writer has put into
    an old file since it was read stays there.
    """
    data = to_bytes(table)
    files.write(f"{folder}/{name}", data)
    once = files.patient(ONCE)

    def remove(name: str) -> None:
        once.delete_same(f"{folder}/{name}", old[name])

    files.insist("delete", folder, lambda: at_once(remove, old))
    return len(data)


def read_all(files: Files, folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """By name, of those that are there."""
    once = files.patient(ONCE)
    found = files.insist("read", folder, lambda: at_once(lambda name: once.read(f"{folder}/{name}"), names))
    return {name: data for name, data in zip(names, found, strict=True) if data is not None}


def at_once(act: Callable[[str], Result], names: Iterable[str]) -> list[Result]:
    """The results, in order. Threads have no patience of their own, for nothing can interrupt their sleep."""
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(act, names))
