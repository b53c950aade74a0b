"""The Parquet files of one folder: read as they are at a moment, and replaced by one that holds all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from sweeper.errors import DamagedError, DamagedFiles, StoreError
from sweeper.storage.arrow_tables import from_bytes, to_bytes
from sweeper.storage.io.files import Files
from sweeper.storage.io.retry import ONCE, Result
from sweeper.storage.schema import HISTORY

SUFFIX = ".parquet"
READERS = 8
"""Files that are read or removed at a time: an object store takes long over each, and little over several."""
FOLDED = ("segment-", "compact-")
"""How the names of files begin that hold what others held before."""
_ATTEMPTS = 20
Tables = dict[str, tuple[pa.Schema, pa.Table]]
"""By a file's name its schema and its rows."""


def read_tables(files: Files, folder: str, columns: list[str] | None = None) -> Tables:
    """Every file's schema and rows, by name; listed again where a writer moved rows between listing and reading.
    Raises DamagedFiles."""
    return parse(files, folder, contents_of(files, folder), columns)


def contents_of(files: Files, folder: str) -> dict[str, bytes]:
    """The bytes of every file, with no row missing that was there when this was called.

    A file that has vanished was folded, so the folder is listed again. A listing that takes place during a folding may
    also lack both the old files and the new one, which was there before the old ones were removed; so a second listing
    shows it.
    """
    for _ in range(_ATTEMPTS):
        names = names_in(files, folder)
        found = read_all(files, folder, names)
        folded = {name for name in names_in(files, folder) if name.startswith(FOLDED)}
        if len(found) == len(names) and folded <= found.keys():
            return found
    raise StoreError(f"store {files.shown}: files in '{folder}' keep vanishing while they are read")


def names_in(files: Files, folder: str) -> list[str]:
    """The names of the folder's Parquet files."""
    return [name for name in files.list(folder) if name.endswith(SUFFIX)]


def parse(files: Files, folder: str, contents: Mapping[str, bytes], columns: list[str] | None = None) -> Tables:
    """The schema and the rows of each of these files. Raises DamagedFiles."""
    tables, reasons = parse_intact(folder, contents, columns)
    if reasons:
        raise DamagedFiles(files.shown, reasons)
    return tables


def parse_intact(
    folder: str, contents: Mapping[str, bytes], columns: list[str] | None = None
) -> tuple[Tables, dict[str, str]]:
    """The schema and the rows of each file that can be read, and by its path why each other one cannot."""

    def one(name: str) -> tuple[pa.Schema, pa.Table] | str:
        try:
            return parse_file(folder, contents[name], columns)
        except DamagedError as error:
            return str(error)

    found = dict(zip(contents, at_once(one, contents), strict=True))
    tables = {name: one for name, one in found.items() if not isinstance(one, str)}
    return tables, {f"{folder}/{name}": one for name, one in found.items() if isinstance(one, str)}


def parse_file(folder: str, data: bytes, columns: list[str] | None = None) -> tuple[pa.Schema, pa.Table]:
    """The schema and the rows of a file of this folder. Raises DamagedError."""
    schema, table = from_bytes(data, columns)
    if folder.startswith("history/") and not schema.equals(HISTORY):
        raise DamagedError(f"its columns are {', '.join(schema.names)}, not {', '.join(HISTORY.names)}")
    return schema, table


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
