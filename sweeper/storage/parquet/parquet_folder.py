"""The Parquet files of one folder: read together without missing a row, and replaced by one file with all rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from sweeper.errors import DamagedError, DamagedFiles, StoreError
from sweeper.storage.io.files import Files
from sweeper.storage.io.retry import NO_RETRIES, Result
from sweeper.storage.layout import SUFFIX
from sweeper.storage.parquet.parquet_file import parquet_to_table, table_to_parquet
from sweeper.storage.parquet.schema import HISTORY, STATUSES

THREADS = 8
"""Number of files that are read or deleted in parallel, which hides the latency of an object store."""
MERGED_PREFIXES = ("segment-", "compact-")
"""Prefixes of the names of files that hold rows moved from other files."""
_ATTEMPTS = 20
"""Number of times that `contents_of` lists a folder before it gives up."""
Tables = dict[str, tuple[pa.Schema, pa.Table]]
"""Maps a file's name to its schema and its rows."""


def read_tables(files: Files, folder: str, columns: list[str] | None = None) -> Tables:
    """Read every Parquet file in the folder as `contents_of` does, so without missing a row. Raises DamagedFiles."""
    return parse(files, folder, contents_of(files, folder), columns)


def contents_of(files: Files, folder: str) -> dict[str, bytes]:
    """Return the bytes of every Parquet file in the folder, without missing a row that was there when the call began.

    A compaction writes the merged file before it deletes the old ones. Two things can go wrong meanwhile, and after
    either of them the folder is listed and read again:

    1. A listed file is gone when it is read. Its rows are in a merged file, which the listing may lack.
    2. The listing lacks both the old files and the merged one. The merged file existed before the old ones were
       deleted, so a second listing shows a merged file that was not read.

    Raises StoreError if this happens 20 times in a row.
    """
    for _ in range(_ATTEMPTS):
        names = names_in(files, folder)
        contents = read_all(files, folder, names)
        merged = {name for name in names_in(files, folder) if name.startswith(MERGED_PREFIXES)}
        if len(contents) == len(names) and merged <= contents.keys():
            return contents
    raise StoreError(f"store {files.display_uri}: files in '{folder}' keep vanishing while they are read")


def names_in(files: Files, folder: str) -> list[str]:
    return files.list_files(folder, SUFFIX)


def parse(files: Files, folder: str, contents: Mapping[str, bytes], columns: list[str] | None = None) -> Tables:
    """Parse the bytes of each file. Raises DamagedFiles if any of them is damaged."""
    tables, reasons = parse_intact(folder, contents, columns)
    if reasons:
        raise DamagedFiles(files.display_uri, reasons)
    return tables


def parse_intact(
    folder: str, contents: Mapping[str, bytes], columns: list[str] | None = None
) -> tuple[Tables, dict[str, str]]:
    """Parse the bytes of each file. Returns the intact files, and the path of each damaged one with the reason."""

    def parse_or_reason(name: str) -> tuple[pa.Schema, pa.Table] | str:
        try:
            return parse_file(folder, contents[name], columns)
        except DamagedError as error:
            return str(error)

    outcomes = dict(zip(contents, map_parallel(parse_or_reason, contents), strict=True))
    tables = {name: parsed for name, parsed in outcomes.items() if not isinstance(parsed, str)}
    return tables, {f"{folder}/{name}": reason for name, reason in outcomes.items() if isinstance(reason, str)}


def parse_file(folder: str, data: bytes, columns: list[str] | None = None) -> tuple[pa.Schema, pa.Table]:
    """As `parquet_to_table`, but files below `history/` must also have exactly the columns of a history."""
    schema, table = parquet_to_table(data, columns)
    if folder.startswith("history/") and not schema.equals(HISTORY):
        raise DamagedError(f"its columns are {', '.join(schema.names)}, not {', '.join(HISTORY.names)}"[:300])
    for name in ("trial_id", "status", "epoch", "metric"):
        if name in table.schema.names and table[name].null_count:
            raise DamagedError(f"its column {name} has nulls")
    if "status" in table.schema.names and table["status"].type == pa.string():
        for status in pc.unique(table["status"]).to_pylist():
            if status not in STATUSES:
                raise DamagedError(f"it has a trial with the status {status!r:.40}, which is none of {STATUSES}")
    return schema, table


def replace(files: Files, folder: str, old: dict[str, bytes], name: str, table: pa.Table) -> int:
    """Write `table` as `name`, then delete the `old` files (name -> bytes as read). Returns the new size in bytes.

    `table` holds every row of the old files that is kept in this folder. `name` must never have been used. No row is
    lost, even if several writers do this at once:

    1. A writer deletes a file only after it has written a newer file that holds the same rows. So of all files that
       ever held a row, the newest is never deleted.
    2. An old file is deleted only if its bytes are still those in `old`. Rows that another writer has put into it since
       stay there.
    """
    data = table_to_parquet(table)
    files.write(f"{folder}/{name}", data)
    once = files.with_retries(NO_RETRIES)

    def remove(old_name: str) -> None:
        once.delete_if_unchanged(f"{folder}/{old_name}", old[old_name])

    files.retry("delete", folder, lambda: map_parallel(remove, old))
    return len(data)


def read_all(files: Files, folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the bytes of those of the named files that exist, by name."""
    once = files.with_retries(NO_RETRIES)
    contents = files.retry("read", folder, lambda: map_parallel(lambda name: once.read(f"{folder}/{name}"), names))
    return {name: data for name, data in zip(names, contents, strict=True) if data is not None}


def map_parallel(act: Callable[[str], Result], names: Iterable[str]) -> list[Result]:
    """Call `act` for each name in a pool of threads. Returns the results in the order of `names`.

    `act` should not retry by itself, because nothing can interrupt a thread that sleeps between two attempts. A single
    name is not worth a thread.
    """
    names = list(names)
    if len(names) <= 1:
        return [act(name) for name in names]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(act, names))
