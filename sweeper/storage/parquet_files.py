"""The Parquet files of one folder: their bytes, reading and replacing them, damage, and compaction.

- **Bytes.** Between the last page and the footer of a file lies a SHA-256 digest over every other byte, so that a
  flipped bit anywhere is an error. Readers find pages by the offsets in the footer, so pandas and every other reader
  skip it. Layout: `PAR1`, pages, `MARK`, 32 bytes of digest, footer, 4 bytes with the footer's length, `PAR1`. A file
  without a digest, as older versions of this package wrote, is valid, too.
- **Folders.** `contents_of` reads all files without missing a row; `replace` puts one file in the place of several.
- **Damage.** `parse_file` judges a file when it is read, for every reader: its bytes, and values that no run writes.
  Commands that only read leave damaged files out, and say so (`read_or_say`). A run moves them to `_damaged`, so that
  it trains their trials again; nothing is deleted: `trials/sweep=NAME/FILE` becomes
  `_damaged/trials/sweep=NAME/TIME-FILE`. A trial whose row was only in that file no longer has a row, so it is trained
  again. A trial whose history was only in such a file still has its row; `StoreReader.trials_without_history` finds it,
  and it counts as a trial to run.
- **Compaction.** Many small files of a running sweep are merged into larger ones, in levels, as in a log-structured
  merge tree: a row is rewritten once per level, not once for every file that is written.
"""

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sweeper.errors import DAMAGED, DamagedError, DamagedFiles, StoreError
from sweeper.storage.files import LARGEST_FILE, MOST_LINES, Files, say_few
from sweeper.storage.layout import SUFFIX, damaged_folder, holds_evaluations, holds_history, timestamp
from sweeper.storage.local_disk import Entry
from sweeper.storage.retry import Result
from sweeper.storage.rows import HISTORY, IDENTITY, JUDGED, MAX_CELLS, STATUSES, is_evaluations, odd_value

MARK = bytes.fromhex("d17e8ce55c0ffee5") + b"sha256\r\n"
"""The 16 bytes before the digest."""
LARGE = 1 << 20
"""Bytes of a table from which Zstandard is worth its time: files of a cohort are no smaller with it, and take 5 ms
instead of 1.4."""
MAX_BYTES = 4 << 30
"""Most bytes of the texts of a file that is read. A file of a kilobyte can repeat one text a million times."""
MOST_COMPRESSION = {"UNCOMPRESSED": 1, "SNAPPY": 32, "LZ4": 256, "LZ4_RAW": 256, "GZIP": 2048}
"""Codec -> most bytes that a compressed byte unpacks to; of others `ANY_COMPRESSION`."""
ANY_COMPRESSION = 1 << 15
PANDAS = b"pandas"
"""Key of metadata by which pandas would make columns an index."""
_TAIL = 8
"""Bytes after the footer: its length and `PAR1`."""


def table_to_parquet(table: pa.Table) -> bytes:
    """Return the table as a Parquet file with page checksums and a digest. Equal tables give equal bytes."""
    sink, compression = io.BytesIO(), "zstd" if table.nbytes > LARGE else "snappy"
    pq.write_table(table, sink, compression=compression, write_page_checksum=True)
    data = sink.getvalue()
    footer = _footer(data)
    return b"".join((data[:footer], MARK, hashlib.sha256(data).digest(), data[footer:]))


def parquet_to_table(data: bytes, names: list[str] | None = None) -> tuple[pa.Schema, pa.Table]:
    """Return the schema of a Parquet file and its rows, restricted to the columns `names` (None: all columns).

    Names that the file lacks are ignored. Raises DamagedError if `data` is not a Parquet file, or if its digest or a
    page's checksum does not match. All columns of a file without a digest are read, even those that are not wanted, so
    that the page checksums reveal damage anywhere in it.
    """
    verified = has_digest(data)
    try:
        schema, table = _unpacked(data, lambda known: None if names is None or not verified else _present(names, known))
        schema = schema.with_metadata({key: text for key, text in (schema.metadata or {}).items() if key != PANDAS})
        table = table.replace_schema_metadata(schema.metadata)
        table.validate(full=True)  # texts are UTF-8
        return schema, table if names is None else table.select(_present(names, schema))
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedError(f"it is not a whole Parquet file ({reason})") from error


def _present(names: Sequence[str], schema: pa.Schema) -> list[str]:
    return [name for name in names if name in schema.names]


def _unpacked(data: bytes, wanted: Callable[[pa.Schema], list[str] | None]) -> tuple[pa.Schema, pa.Table]:
    """Return the schema of a file and its `wanted` columns (None: all). Raises DamagedError if these need more memory
    than a file may. Its texts are counted while they are still references to a dictionary."""
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        metadata, schema = file.metadata, file.schema_arrow
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        chunks = [group.column(index) for group in groups for index in range(metadata.num_columns)]
        cells = max(sum(chunk.num_values for chunk in chunks), metadata.num_rows * metadata.num_columns)
        if cells > MAX_CELLS:
            raise DamagedError(f"it must have at most {MAX_CELLS} values, but declares {cells}")
        unpacked = len(data) * max(
            (MOST_COMPRESSION.get(each.compression, ANY_COMPRESSION) for each in chunks), default=1
        )
        if cells * unpacked <= MAX_BYTES:  # enough even if each value were all of the file
            return schema, file.read(columns=wanted(schema), use_threads=False)
        columns = map(metadata.schema.column, range(metadata.num_columns))
        texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, read_dictionary=texts) as file:
        packed = file.read(columns=wanted(schema), use_threads=False)
    size = sum(_text_bytes(chunk) for column in packed.columns for chunk in column.chunks)
    if size > MAX_BYTES:
        raise DamagedError(f"its texts must have at most {MAX_BYTES >> 30} GiB, but have {size / 2**30:.1f}")
    return schema, packed.cast(pa.schema([schema.field(name) for name in packed.schema.names], packed.schema.metadata))


def _text_bytes(values: pa.Array) -> int:
    """The bytes of the texts to which an array refers, at any depth."""
    if pa.types.is_dictionary(values.type):
        lengths = pc.binary_length(values.dictionary).cast(pa.int64())
        return pc.sum(pc.take(lengths, values.indices)).as_py() or 0
    inner = values.flatten() if pa.types.is_nested(values.type) else []
    return sum(map(_text_bytes, inner if isinstance(inner, list) else [inner]))


def has_digest(data: bytes) -> bool:
    """Return whether the file has a digest. Raises DamagedError if it has one that does not match."""
    footer = _footer(data)
    begin = footer - len(MARK) - 32
    if begin < 0 or data[begin : begin + len(MARK)] != MARK:
        if MARK in data:
            raise DamagedError("its digest is not where the footer begins")
        return False
    view = memoryview(data)
    digest = hashlib.sha256(view[:begin])
    digest.update(view[footer:])
    if digest.digest() != data[begin + len(MARK) : footer]:
        raise DamagedError("its bytes do not match its digest")
    return True


def _footer(data: bytes) -> int:
    """Return the offset of the footer. It is negative if the data are too short or their end is damaged."""
    return len(data) - _TAIL - int.from_bytes(data[-_TAIL:-4], "little")


MERGED_PREFIXES = ("segment-", "compact-")
"""Prefixes of the names of files that hold rows moved from other files."""
_ATTEMPTS = 20
"""Number of times that `contents_of` lists a folder before it gives up."""
LONGEST_WAIT = 4.0
"""Seconds between two reads of a listing that shows files which are gone. All waits together take a minute, as long as
a network file system may show an old listing."""
SETTLED_SECONDS = 1000.0
"""Age from which an unchanged time and size of a file say that it has not changed. An object store gives times in whole
seconds, and refuses a clock that is wrong by 15 minutes."""
MOST_REMEMBERED = 32 << 20
"""Most bytes of the files of one folder that are remembered."""
Parsed = tuple[pa.Schema, pa.Table]
"""The schema of a file and its rows."""
Tables = dict[str, Parsed]
"""Maps a file's name to its schema and its rows."""


@dataclass
class RememberedFile:
    """A file that was read and is older than `SETTLED_SECONDS`. It is read again only once it has changed."""

    version: Entry
    data: bytes
    parsed: Parsed | None = None
    """With the columns that were wanted last."""


def read_tables(files: Files, folder: str, columns: list[str] | None = None) -> Tables:
    """Read every Parquet file in the folder as `contents_of` does, so without missing a row. Raises DamagedFiles if any
    of them is damaged."""
    tables, damaged = read_usable(files, folder, columns)
    if damaged:
        raise DamagedFiles(files.display_uri, damaged)
    return tables


def read_usable(files: Files, folder: str, columns: list[str] | None = None) -> tuple[Tables, dict[str, str]]:
    """Read the intact files of the folder as `contents_of` does. Returns them, and path -> reason of damaged ones."""
    tables, damaged = parse_intact(files, folder, contents_of(files, folder), columns)
    return tables, damaged | unusable_files(files, folder)


def read_or_say(files: Files, folder: str, columns: list[str] | None = None) -> Tables:
    """As `read_usable`, but say which files are damaged. Raises DamagedFiles if none is intact."""
    tables, damaged = read_usable(files, folder, columns)
    if damaged and not tables:
        raise DamagedFiles(files.display_uri, damaged)
    say_damaged(files, damaged)
    return tables


def contents_of(files: Files, folder: str) -> dict[str, bytes]:
    """Return the bytes of every Parquet file in the folder at one moment after the call began.

    Changed files are read again until two listings in a row agree: what was read is then what the folder held between
    them. If it changes at each of 20 reads, the result is of several moments. It may then lack rows that moved from one
    file to another at the last read. Files that are remembered are not read again.

    Raises StoreError if a file has vanished at the last read, too.
    """
    remembered = _remembered(files, folder)
    versions = {name: file.version for name, file in remembered.items()}
    contents = {name: file.data for name, file in remembered.items()}
    listed, wait = dict[str, Entry](), 0.1
    for _ in range(_ATTEMPTS):
        before, listed = listed, files.list_versions(folder, SUFFIX)
        if listed == versions:
            _remember(files, folder, versions, contents)
            return contents
        if listed == before:  # a cached listing shows files that are gone
            files.runtime.sleep(wait)
            wait = min(2.0 * wait, LONGEST_WAIT)
        changed = [name for name, version in listed.items() if versions.get(name) != version]
        contents = {name: data for name, data in contents.items() if name in listed} | read_all(files, folder, changed)
        versions = {name: version for name, version in listed.items() if name in contents}
    if listed.keys() == contents.keys():
        merged = {name for name in names_in(files, folder) if name.startswith(MERGED_PREFIXES)}
        if merged <= contents.keys():
            return contents
    raise StoreError(f"store {files.display_uri}: files in '{folder}' keep vanishing while they are read")


def _remembered(files: Files, folder: str) -> dict[str, RememberedFile]:
    """The files of a folder that this process remembers, by name."""
    remembered: dict[str, RememberedFile] = files.remembered.setdefault(folder, {})
    return remembered


def _remember(files: Files, folder: str, versions: Mapping[str, Entry], contents: Mapping[str, bytes]) -> None:
    """Remember those of these files that are old enough, and forget all others of the folder."""
    before, now, left = _remembered(files, folder), files.runtime.now().timestamp(), MOST_REMEMBERED
    kept = files.remembered[folder] = dict[str, RememberedFile]()
    for name, data in contents.items():
        known, written = before.get(name), versions[name].written_ns
        if written is not None and now - written / 1e9 > SETTLED_SECONDS and (left := left - len(data)) >= 0:
            kept[name] = known if known and known.data is data else RememberedFile(versions[name], data)


def names_in(files: Files, folder: str) -> list[str]:
    return files.list_files(folder, SUFFIX)


def parse(files: Files, folder: str, contents: Mapping[str, bytes], columns: list[str] | None = None) -> Tables:
    """Parse the bytes of each file. Raises DamagedFiles if any of them is damaged."""
    tables, reasons = parse_intact(files, folder, contents, columns)
    if reasons:
        raise DamagedFiles(files.display_uri, reasons)
    return tables


def parse_intact(
    files: Files, folder: str, contents: Mapping[str, bytes], columns: list[str] | None = None
) -> tuple[Tables, dict[str, str]]:
    """Parse the bytes of each file. Returns the intact files, and the path of each damaged one with the reason."""

    remembered = _remembered(files, folder)

    def parse_or_reason(name: str) -> Parsed | str:
        known = remembered.get(name)
        known = known if known and known.data is contents[name] else None
        try:
            if known and known.parsed:
                schema, table = known.parsed
                wanted = schema.names if columns is None else _present(columns, schema)
                if set(wanted) <= set(table.column_names):
                    return schema, table.select(wanted)
            parsed = parse_file(folder, contents[name], columns)
        except DamagedError as error:
            return str(error)
        if known:
            known.parsed = parsed
        return parsed

    outcomes = dict(zip(contents, files.runtime.map(parse_or_reason, contents), strict=True))
    tables = {name: parsed for name, parsed in outcomes.items() if not isinstance(parsed, str)}
    return tables, {f"{folder}/{name}": reason for name, reason in outcomes.items() if isinstance(reason, str)}


def parse_file(folder: str, data: bytes, columns: list[str] | None = None) -> Parsed:
    """As `parquet_to_table`, but a file must also have values that a run can write (`odd_value`), whatever columns are
    wanted, and one of history or evaluations their columns."""
    schema, table = parquet_to_table(data, None if columns is None else list({*columns, *JUDGED}))
    if holds_history(folder) and not schema.equals(HISTORY):
        raise DamagedError(f"its columns are {', '.join(schema.names)}, not {', '.join(HISTORY.names)}"[:300])
    if holds_evaluations(folder) and not is_evaluations(schema):
        raise DamagedError("its columns are not those of evaluations")
    for name in ("trial_id", "status", "epoch", "metric", *(IDENTITY[:2] if holds_evaluations(folder) else ())):
        if name in table.schema.names and table[name].null_count:
            raise DamagedError(f"its column {name} has nulls")
    if "status" in table.schema.names and table["status"].type == pa.string():
        for status in pc.unique(table["status"]).to_pylist():
            if status not in STATUSES:
                raise DamagedError(f"it has a trial with the status {status!r:.40}, which is none of {STATUSES}")
    if odd := odd_value(table):
        raise DamagedError(odd)
    return schema, table if columns is None else table.select(_present(columns, schema))


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
    files.each("delete", folder, lambda once, each: once.delete_if_unchanged(f"{folder}/{each}", old[each]), old)
    return len(data)


def read_all(files: Files, folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the bytes of those of the named files that exist, by name."""
    contents = files.each("read", folder, lambda once, name: once.read(f"{folder}/{name}"), names)
    return {name: data for name, data in zip(names, contents, strict=True) if data is not None}


_QUARANTINES = 20
"""Number of times that `quarantining` quarantines files before it gives up."""


def quarantining(files: Files, operation: Callable[[], Result]) -> Result:
    """Return `operation()`. Whenever it raises DamagedFiles, quarantine these files and call it again."""
    for _ in range(_QUARANTINES):
        try:
            return operation()
        except DamagedFiles as damaged:
            quarantine(files, damaged.reasons)
    return operation()


def read_intact(files: Files, folder: str, names: Sequence[str] | None = None) -> tuple[dict[str, bytes], Tables]:
    """Return the bytes and the tables of those of the named files (None: all) that exist. Quarantines damaged files."""

    def read() -> tuple[dict[str, bytes], Tables]:
        contents = contents_of(files, folder) if names is None else read_all(files, folder, names)
        return contents, parse(files, folder, contents)

    return quarantining(files, read)


def quarantine(files: Files, reasons: Mapping[str, str]) -> None:
    """Move damaged files to `_damaged` and report each in one line. `reasons` maps a file's path to what is wrong.

    Each file is read once more after the move. If it is intact, because another writer has replaced it meanwhile or
    because it was misread, it is moved back under a new, unique name.
    """
    moved = 0
    for path, reason in reasons.items():
        source = PurePosixPath(path)
        folder = str(source.parent)
        target = f"{damaged_folder(folder)}/{timestamp(files.runtime.now())}-{source.name}"
        if not files.move(path, target):
            continue
        if _damage(files, target, folder) is None:
            files.move(target, f"{folder}/{source.stem}-{files.runtime.token()[:16]}{source.suffix}")
            continue
        moved += 1
        if moved <= MOST_LINES:
            files.log(
                f"store {files.display_uri}: '{path}' is damaged: {reason}; moved to '{target}', and a run of the same "
                "command trains again whatever was only there"
            )
    if moved > MOST_LINES:
        files.log(f"store {files.display_uri}: {moved - MOST_LINES:,} more damaged files were moved to '{DAMAGED}'")


def say_damaged(files: Files, reasons: Mapping[str, str]) -> None:
    """Say of damaged files that they are left out. `reasons` maps a file's path to what is wrong."""
    remedy = f"the next run moves it to '{DAMAGED}' and makes anew what it held"
    where = f"store {files.display_uri}"
    say_few([f"{where}: '{path}' is damaged and left out: {reason}; {remedy}" for path, reason in reasons.items()])


def unusable_files(files: Files, folder: str) -> dict[str, str]:
    """Map the path of what has the name of a file of the folder but is none, such as a link, to the reason."""
    return {f"{folder}/{name}": reason for name, reason in files.list_unusable(folder, SUFFIX).items()}


def _damage(files: Files, path: str, folder: str) -> str | None:
    """Return why the file at `path` cannot be read as one of the folder, or None if it can, or if there is none."""
    try:
        if (data := files.read(path, LARGEST_FILE)) is not None:
            parse_file(folder, data, [])
    except DamagedError as error:
        return str(error)
    return None


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
            if len(contents) < 2:  # the others were merged by another writer, or quarantined as damaged
                level |= dict.fromkeys(contents)
                return
            merged = self._merge([table for _, table in tables.values()])
            name = f"segment-{self._files.runtime.token()[:16]}{SUFFIX}"
            size = replace(self._files, self._folder, contents, name, merged)
            yield name, merged
            if size > LARGEST:
                return
