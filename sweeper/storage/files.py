"""Atomic files in a folder or at a URI: a reader sees the old content or the new content, never a part of either.

`read_record` reads the small JSON files that a store keeps beside the rows, such as cuts and measurements.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pyarrow import ArrowException, fs

from sweeper.errors import DamagedError, SpecError, StoreError
from sweeper.masking import is_uri, masked, masked_url, remember
from sweeper.printing import print, printable
from sweeper.runtime import REAL, THREADS, Runtime
from sweeper.storage import local_disk
from sweeper.storage.filesystems import AddressError, join_address, move, open_filesystem, parse_address
from sweeper.storage.local_disk import FILE, FOLDER, LINK, OTHER, Entry, StoreIdentity
from sweeper.storage.retry import (
    NO_RETRIES,
    Result,
    RetryPolicy,
    answer_seconds,
    call_remotely,
    call_with_retries,
    is_transient,
    made_progress,
    step_of_call,
)
from trainables.json_input import MAX_BYTES, read_json

HIDDEN = (".", "_")
"""Prefixes of hidden names, which every Parquet reader and `Files.list` ignore."""
CHUNK = 4 << 20
"""Bytes of a remote file that are read at a time."""
MIN_BYTES_PER_SECOND = 256 << 10
"""Speed at which a remote store must at least take a file."""
MIN_ATTEMPT_SECONDS = 3.0
"""Seconds that the last attempt at a silent store can take."""
REST_SECONDS = 1.0
"""Seconds between two attempts at a store whose silence was reported to the user."""
LARGEST_FILE = 1 << 30
"""Bytes of the largest local file of a listing that is read whole: a sparse file of any size costs nothing to make."""
MOST_LINES = 5
"""Most lines about files of one folder; the last of more says how many there are."""
Log = Callable[[str], None]
"""Takes one line for the user."""


class Files:
    """The files under one folder: a local path, or a URI that pyarrow.fs opens (s3://, gs://, file://).

    Every `path` is relative to that folder and cannot leave it. On a local disk the folder itself may be a link, but
    none below it is followed: what lies behind one counts as absent, which a line says, nothing is written there, and
    whatever deletes or moves a link does that to the link. Transient failures are retried by `retry_policy`, and
    `log` is called with a line about them; lasting ones raise StoreError. A store at a URI that is silent for
    `answer_seconds(retry_policy)` raises StoreError, too; a line says so before, by `log` or else on stderr. After
    `pin_folder()`, a local folder that is missing or was replaced is a transient failure, too. Picklable: a copy opens
    its own connection and has no `log`.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        retry_policy: RetryPolicy = NO_RETRIES,
        log: Log | None = None,
        runtime: Runtime = REAL,
    ) -> None:
        try:
            self.uri = parse_address(os.fspath(uri))
        except AddressError as error:
            raise StoreError(f"the store cannot be opened: {error}") from error
        self.retry_policy, self._log, self.runtime = retry_policy, log, runtime
        self._opened: tuple[fs.FileSystem, str] | None = None
        self._identity: StoreIdentity | None = None
        self.remembered: dict[str, dict[str, Any]] = {}
        """By folder, what `parquet_files` remembers of files that do not change any more."""

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_log": None, "_opened": None, "remembered": {}}

    def __repr__(self) -> str:
        return f"Files({self.display_uri!r})"

    def with_retries(self, retry_policy: RetryPolicy, log: Log | None = None) -> Files:
        """The same files by the same connection, with another policy."""
        files = copy.copy(self)
        files.retry_policy, files._log = retry_policy, log
        files._opened, files.remembered = self._opened, self.remembered
        return files

    def pin_folder(self) -> None:
        """From now on accept only the folder that is at the path now, identified by `StoreIdentity` (local only)."""
        folder = self.local_folder
        if folder is not None and self._identity is None:
            self._identity = self.retry("mark", "", lambda: StoreIdentity.of(folder))

    @property
    def pinned(self) -> bool:
        return self._identity is not None

    @property
    def display_uri(self) -> str:
        """The folder, or the URI without its secrets."""
        return printable(masked_url(self.uri))

    def display_uri_of(self, path: str) -> str:
        return join_address(self.display_uri, path)

    def uri_of(self, path: str) -> str:
        """Return the address of `path`, including any secrets, for code that opens it by itself. Raises
        StoreError if a part of it is a link."""
        self._resolve(path)
        self.check_no_link(path)
        return join_address(self.uri, path)

    @property
    def local_folder(self) -> Path | None:
        """The folder if the store is on a local file system, else None."""
        filesystem, root = self._open()
        return Path(root) if isinstance(filesystem, fs.LocalFileSystem) else None

    def log(self, line: str) -> None:
        """Call the constructor's `log`. Without one, issue a warning."""
        if self._log:
            self._log(line)
        else:
            warnings.warn(printable(line), stacklevel=2)

    def read(self, path: str, most: int | None = None) -> bytes | None:
        """Return the content of the file at `path`, or None if there is no such file.

        Raises DamagedError if it is no regular file, or has more than `most` bytes.
        """
        return self._read(path, most)

    def read_start(self, path: str, size: int) -> bytes | None:
        """Return the first `size` bytes of the file at `path`, or all if it is shorter; None if there is no such
        file."""
        return self._read(path, size, start=True)

    def read_end(self, path: str, size: int) -> bytes | None:
        """Return the last `size` bytes of the file at `path`, or all if it is shorter; None if there is no such
        file."""
        return self._read(path, size, end=True)

    def _read(self, path: str, most: int | None, *, start: bool = False, end: bool = False) -> bytes | None:
        filesystem, target = self._resolve(path)
        if self._is_behind_link(path):
            return None

        def operation() -> bytes | None:
            try:
                if isinstance(filesystem, fs.LocalFileSystem):
                    return local_disk.read(Path(target), most, start=start, end=end)
                return _content(filesystem, target, most, start=start, end=end)
            except (FileNotFoundError, NotADirectoryError):  # the latter below a file
                return None

        return self.retry("read", path, operation)

    def write(self, path: str, data: bytes) -> None:
        """Create or replace the file at `path` atomically.

        A local file is written under a temporary name, then renamed. Writing an object is atomic in an object store.
        Raises StoreError if a folder of `path` is a link.
        """
        filesystem, target = self._resolve(path)
        self.check_no_link(_parent(path))

        def operation() -> None:
            if isinstance(filesystem, fs.LocalFileSystem):
                local_disk.replace(Path(target), data)
            else:
                with filesystem.open_output_stream(target) as stream:
                    stream.write(data)

        self.retry("write", path, operation, len(data))

    def delete(self, path: str) -> None:
        """Delete the file at `path`, if there is one."""
        filesystem, target = self._resolve(path)
        if self._is_behind_link(path):
            return
        is_local = isinstance(filesystem, fs.LocalFileSystem)
        delete = os.unlink if is_local else filesystem.delete_file
        self.retry("delete", path, lambda: _ignore_missing(lambda: delete(target)))

    def delete_if_unchanged(self, path: str, data: bytes) -> None:
        """Delete the file at `path` if it still holds `data`, so that what another writer has put there since stays.

        A local file that holds something else may end up under another name. In an object store, what is written in the
        milliseconds between the comparison and the deletion is lost.
        """
        filesystem, target = self._resolve(path)
        if self._is_behind_link(path):
            return
        if isinstance(filesystem, fs.LocalFileSystem):
            self.retry(
                "delete", path, lambda: _ignore_missing(lambda: local_disk.delete_if_unchanged(Path(target), data))
            )
        elif self.read(path) == data:
            self.delete(path)

    def delete_folder(self, path: str) -> None:
        """Delete the folder at `path` with its content, if there is one; of a link the link alone."""
        filesystem, target = self._resolve(path)
        if self._is_behind_link(path):
            return
        is_local = isinstance(filesystem, fs.LocalFileSystem)
        delete = (
            (lambda: local_disk.delete_folder(Path(target))) if is_local else (lambda: filesystem.delete_dir(target))
        )
        self.retry("delete", path, lambda: _ignore_missing(delete))

    def list(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files and folders in `folder` that are not hidden; empty if there is no such
        folder. Of anything else, such as a link or a named pipe, a line says that it is left out."""
        entries = self._entries(folder)
        self._say_left_out(folder, [each for each in entries if each.kind not in (FILE, FOLDER)], "a file or a folder")
        return [each.name for each in entries if each.kind in (FILE, FOLDER)]

    def list_files(self, folder: str, suffix: str) -> builtins.list[str]:
        """Return the sorted names of the files in `folder` that end with `suffix` and are not hidden. Of anything else
        with such a name, such as a folder or a link, a line says that it is left out."""
        entries = [each for each in self._entries(folder) if each.name.endswith(suffix)]
        self._say_left_out(folder, [each for each in entries if each.kind != FILE], "a file")
        return [each.name for each in entries if each.kind == FILE]

    def list_versions(self, folder: str, suffix: str) -> dict[str, Entry]:
        """Map the names that `list_files` returns to the size of the file and when it was written, which differ once it
        has been written again. Files above `LARGEST_FILE` are left out."""
        return {each.name: each for each in self._entries(folder) if _unusable(each, suffix) is None}

    def list_unusable(self, folder: str, suffix: str) -> dict[str, str]:
        """Map the names in `folder` that end in `suffix`, but are no files or are above `LARGEST_FILE`, to the reason.
        Object stores have none."""
        if self.local_folder is None:
            return {}
        reasons = {each.name: _unusable(each, suffix) for each in self._entries(folder)}
        return {name: reason for name, reason in reasons.items() if reason}

    def sizes(self, path: str = "") -> dict[str, int]:
        """Map the path of each file below a folder, or of the file at `path`, to its size in bytes, hidden ones too. Of
        anything else, such as a link, a line says that it is left out."""
        filesystem, target = self._resolve(path)
        if isinstance(filesystem, fs.LocalFileSystem):
            return self._local_sizes(path, Path(target))
        root = filesystem.normalize_path(self._open()[1]).rstrip("/")

        def operation() -> builtins.list[fs.FileInfo]:
            found: builtins.list[fs.FileInfo] = filesystem.get_file_info([target])
            if found[0].type == fs.FileType.File:
                return found
            return list(filesystem.get_file_info(fs.FileSelector(target, allow_not_found=True, recursive=True)))

        files = (info for info in self.retry("list", path, operation) if info.type == fs.FileType.File)
        return {info.path.removeprefix(f"{root}/"): info.size for info in files}

    def _local_sizes(self, path: str, target: Path) -> dict[str, int]:
        relative = _relative(path)
        if self._is_behind_link(path, itself=True):
            return {}

        def operation() -> dict[str, Entry]:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                status = target.lstat() if relative else target.stat()  # the root may be a link
                if (kind := local_disk.kind_of(status.st_mode)) != FOLDER:
                    return {"": Entry(path, kind, status.st_size)}
            return local_disk.tree(target)

        prefix = f"{relative}/" if relative else ""
        found = {
            f"{prefix}{name}".removesuffix("/"): each for name, each in self.retry("list", path, operation).items()
        }
        others = [Entry(name, each.kind) for name, each in sorted(found.items()) if each.kind != FILE]
        self._say_left_out("", others, "a file or a folder")
        return {name: each.size for name, each in found.items() if each.kind == FILE}

    def _entries(self, folder: str, prefix: str = "") -> builtins.list[Entry]:
        """The entries of `folder` that are not hidden, or those whose names begin with `prefix`, sorted by name."""
        filesystem, target = self._resolve(folder)
        if self._is_behind_link(folder, itself=True):
            return []

        def operation() -> list[Entry]:
            try:
                if isinstance(filesystem, fs.LocalFileSystem):
                    return local_disk.entries(Path(target))
                return list(map(_entry, filesystem.get_file_info(fs.FileSelector(target, allow_not_found=True))))
            except (NotADirectoryError, FileNotFoundError):  # PyArrow raises the latter for a folder just being created
                return []

        entries = sorted(self.retry("list", folder, operation), key=lambda each: each.name)
        if prefix:
            return [each for each in entries if each.name.startswith(prefix)]
        return [each for each in entries if not each.name.startswith(HIDDEN)]

    def _say_left_out(self, folder: str, entries: Sequence[Entry], law: str) -> None:
        where = f"store {self.display_uri}: '{folder}/" if folder else f"store {self.display_uri}: '"
        say_few([f"{where}{each.name}' must be {law}, but is {each.kind}; it is left out" for each in entries])

    def _link_in(self, path: str) -> str | None:
        """The first part of `path` that is a link on a local disk; None if there is none."""
        filesystem, root = self._open()
        return local_disk.link_in(root, path) if path and isinstance(filesystem, fs.LocalFileSystem) else None

    def _is_behind_link(self, path: str, *, itself: bool = False) -> bool:
        """Whether a folder of `path` is a link, or with `itself` its last part. A line says that it is left out."""
        link = self._link_in(_relative(path) if itself else _parent(path))
        if link is not None:
            self._say_left_out("", [Entry(link, LINK)], "a file or a folder")
        return link is not None

    def check_no_link(self, path: str) -> None:
        """Raise StoreError if any part of `path` is a link on a local disk, below which nothing is written."""
        if link := self._link_in(_relative(path)):
            raise StoreError(
                f"store {self.display_uri}: '{link}' is a link, but none below the folder of a store is followed; "
                "move what it leads to into its place, or give the other folder as the store"
            )

    def local_path(self, path: str) -> Path | None:
        """The place of `path` on a local disk, for code that writes there by itself; None in an object store. Raises
        StoreError if a part of it is a link."""
        self.check_no_link(path)
        folder = self.local_folder
        return None if folder is None else folder / path

    def move(self, source: str, target: str) -> bool:
        """Rename a file, or a folder with its content. Returns False if there is no `source`."""
        filesystem, old = self._resolve(source)
        _, new = self._resolve(target)
        if self._is_behind_link(source):
            return False
        self.check_no_link(_parent(target))
        return self.retry("move", source, lambda: move(filesystem, old, new))

    def clean_up(self) -> None:
        """Clean up what killed writers left more than an hour ago: see `local_disk.clean_up`. In an object store, whose
        writes leave nothing, that is a write check."""
        folder = self.local_folder
        if folder is not None:
            self.retry("tidy", "", lambda: local_disk.clean_up(folder))
            return
        now = self.runtime.now().timestamp()
        for each in self._entries("", local_disk.WRITE_CHECK):
            if each.written_ns is not None and now - each.written_ns / 1e9 > local_disk.STALE_SECONDS:
                self.delete(each.name)

    def retry(self, verb: str, path: str, operation: Callable[[], Result], size: int = 0) -> Result:
        """Call `operation` with retries. A lasting failure raises StoreError: `cannot VERB 'PATH': REASON`. `size`: the
        number of bytes that it sends."""
        what = f"cannot {verb} '{path or '.'}'"
        deadline = self.runtime.monotonic() + answer_seconds(self.retry_policy) + size / MIN_BYTES_PER_SECOND

        def guarded() -> Result:
            folder = self.local_folder if self._identity else None
            return self._identity.guard(folder, operation) if self._identity and folder else operation()

        def attempt() -> Result:
            if isinstance(self._open()[0], fs.LocalFileSystem):
                return guarded()
            return self._call_remotely(guarded, deadline)

        def message(error: BaseException) -> str:
            return f"store {self.display_uri}: {what}: {_reason(error)}"

        def on_first_failure(error: BaseException, seconds_left: float) -> None:
            if self._log:
                line = str(error) if isinstance(error, StoreError) else message(error)
                self._log(f"{line}; trying again for {seconds_left:.0f} s")

        def on_recovery(seconds: float) -> None:
            if self._log:
                self._log(f"store {self.display_uri} works again, after {seconds:.0f} s")

        try:
            return call_with_retries(
                *(attempt, self.retry_policy, on_first_failure, on_recovery),
                clock=self.runtime.monotonic,
                sleep=self.runtime.sleep,
                draw=self.runtime.draw,
            )
        except local_disk.UnusableFile as error:
            raise DamagedError(message(error)) from error
        except (OSError, ArrowException) as error:
            raise StoreError(message(error)) from error

    def each(
        self, verb: str, folder: str, act: Callable[[Files, str], Result], names: Iterable[str]
    ) -> builtins.list[Result]:
        """Return `act(files, name)` for each name, in their order. Several are called at once, with files that do not
        retry: if one fails, those that have not succeeded yet are tried again together, as `retry` does."""
        results, order = dict[str, Result](), list(names)

        def operation() -> None:
            once = self.with_retries(NO_RETRIES)

            def call(name: str) -> None:
                results[name] = act(once, name)

            left, step = [name for name in order if name not in results], step_of_call(call)
            if self.local_folder and len(left) <= THREADS:  # which takes less time than starting threads
                for name in left:
                    step(name)
            else:
                self.runtime.map(step, left)

        self.retry(verb, folder, operation)
        return [results[name] for name in order]

    def _open(self) -> tuple[fs.FileSystem, str]:
        """Return the filesystem and the store's root in it. Raises StoreError if the first call fails to open them."""
        if self._opened is None:
            if is_uri(self.uri):
                remember(self.uri)
            try:
                filesystem, root = self._open_anew()
            except (ArrowException, OSError, ValueError) as error:
                message = f"store {self.display_uri} cannot be opened: {_reason(error)}"
                raise StoreError(message) from _without_secrets(error)
            if not root.strip("/") and not isinstance(filesystem, fs.LocalFileSystem):
                raise StoreError(f"store {self.display_uri} cannot be opened: it names no bucket")
            if isinstance(filesystem, fs.LocalFileSystem) and not self._identity:
                self._check_root(Path(root))
            self._opened = filesystem, root.rstrip("/") or "/"
        return self._opened

    def _check_root(self, root: Path) -> None:
        """Raise StoreError if the folder, or one above it, is a link to what does not exist, or if it is a file."""
        if root.is_file():
            raise StoreError(f"store {self.display_uri} cannot be opened: it must be a folder, but is a file")
        if link := local_disk.dangling_link(root):
            what = "it" if link == root else f"'{link}'"
            raise StoreError(
                f"store {self.display_uri} cannot be opened: {what} is a link to '{os.readlink(link)}', which does not "
                "exist"
            )

    def _open_anew(self) -> tuple[fs.FileSystem, str]:
        if not is_uri(self.uri):
            return open_filesystem(self.uri)
        deadline = self.runtime.monotonic() + answer_seconds(self.retry_policy)
        return self._call_remotely(lambda: open_filesystem(self.uri), deadline)  # which may ask for a bucket's region

    def _call_remotely(self, operation: Callable[[], Result], deadline: float) -> Result:
        """As `call_remotely`. A silence is reported to the user, with the time for which attempts go on; until then
        transient errors are tried again, whatever the policy."""
        warned = False

        def say(seconds_left: float) -> None:
            nonlocal warned
            if not warned:
                line = (
                    f"store {self.display_uri} does not answer; trying for another {seconds_left:.0f} s, Ctrl-C stops"
                )
                print(line, file=sys.stderr, flush=True) if self._log is None else self._log(line)
            warned = True

        while True:
            try:
                left = deadline - self.runtime.monotonic()
                return call_remotely(operation, max(MIN_ATTEMPT_SECONDS, left), say)
            except (OSError, ArrowException) as error:
                if not warned or not is_transient(error) or self.runtime.monotonic() + REST_SECONDS > deadline:
                    raise
                self.runtime.sleep(REST_SECONDS)

    def _resolve(self, path: str) -> tuple[fs.FileSystem, str]:
        """Return the filesystem and the full path of `path` in it. Raises ValueError if `path` leaves the store."""
        relative = _relative(path)
        filesystem, root = self._open()
        return filesystem, f"{root}/{relative}" if relative else root


@functools.lru_cache(maxsize=4096)
def _relative(path: str) -> str:
    """Return a path in the store in its shortest form. Raises ValueError if it leaves the store."""
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts or "\\" in path or "\0" in path:
        raise ValueError(f"a name in the store must be relative, without '..', backslash and NUL, but got {path!r}")
    return str(relative) if relative.parts else ""


def _parent(path: str) -> str:
    """The folder of a path in the store; empty for its root."""
    return _relative(path).rpartition("/")[0]


_KINDS = {fs.FileType.File: FILE, fs.FileType.Directory: FOLDER}


def _entry(info: fs.FileInfo) -> Entry:
    return Entry(info.base_name, _KINDS.get(info.type, OTHER), info.size or 0, info.mtime_ns)


def _unusable(entry: Entry, suffix: str) -> str | None:
    """Why what has the name of a file with `suffix` cannot be read; None if it can, and empty for other names."""
    if not entry.name.endswith(suffix):
        return ""
    if entry.kind != FILE:
        return f"it must be a file, but is {entry.kind}"
    return str(local_disk.too_large(entry.size, LARGEST_FILE).strerror) if entry.size > LARGEST_FILE else None


def say_few(lines: Sequence[str], say: Log | None = None) -> None:
    """Call `say`, by default `say_once`, with lines about files; of many with the first ones and how many more."""
    say = say or say_once
    for line in lines[:MOST_LINES]:
        say(line)
    if len(lines) > MOST_LINES:
        say(f"... and {len(lines) - MOST_LINES:,} more lines like the last one")


@functools.cache
def say_once(line: str) -> None:
    """Print to stderr (stdout is for `--json`), once per process, since a run reads the same files several times."""
    print(printable(line), file=sys.stderr, flush=True)


def _content(filesystem: fs.FileSystem, target: str, most: int | None, *, start: bool, end: bool) -> bytes:
    """The content of a file, or with `start` or `end` at most its first or last `most` bytes. Raises UnusableFile if it
    has more."""
    chunks, left = list[bytes](), most
    with filesystem.open_input_file(target) as stream:
        if most is not None and not start and stream.size() > most:
            if not end:
                raise local_disk.too_large(stream.size(), most)
            stream.seek(stream.size() - most)
        while chunk := stream.read(CHUNK if left is None else min(CHUNK, left)):
            chunks.append(chunk)
            left = None if left is None else left - len(chunk)
            made_progress()
    return b"".join(chunks)


def _ignore_missing(operation: Callable[[], None]) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the latter below a file
        operation()


def _without_secrets(error: Exception) -> Exception:
    """The error, for the traceback of another that it causes; a copy if its text has secrets."""
    text = masked(str(error))
    return error if text == str(error) else OSError(text) if isinstance(error, OSError) else ValueError(text)


def _reason(error: BaseException) -> str:
    """The error's text in one line, without secrets, and without what Google's client adds to it."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError) and error.filename:
        text = f"{text}: {error.filename}"
    text = re.sub(r" to authenticate the request\. The request was not sent.*?error message was", "", text, flags=re.S)
    text = re.sub(r" error_info=\{.*\}", "", text, flags=re.S)
    return masked(" ".join(text.split()))


Record = TypeVar("Record")


@functools.cache
def _warned_of(folder: str) -> set[str]:
    """The damaged files of a folder that were reported to the user."""
    return set()


def _say_damaged(folder: str, path: str, problem: str) -> None:
    """Say that a file is damaged, unless that was said of many of its folder before."""
    warned = _warned_of(folder)
    if path not in warned and len(warned) <= MOST_LINES:
        warned.add(path)
        file = f"{folder}/{path.rpartition('/')[2]}" if "/" in path else f"{folder}{path}"
        law = "is damaged and counts as absent"
        say_once(f"{file}' {law}: {problem}" if len(warned) <= MOST_LINES else f"{folder}' has more such files")


def read_record(
    files: Files, path: str, kind: Any, convert: Callable[[Any], Record] = lambda record: record
) -> Record | None:
    """Return the JSON file at `path` as a `kind` (see `json_input`), converted; None if there is no such file.

    If the file is damaged or does not hold a `kind`, a line on stderr says so and the result is None. `convert` reports
    invalid content by a ValueError.
    """
    record, problem = checked_record(files, path, kind, convert)
    if problem:
        _say_damaged(f"store {files.display_uri}: '{_parent(path)}", path, problem)
    return record


def checked_record(
    files: Files, path: str, kind: Any, convert: Callable[[Any], Record] = lambda record: record
) -> tuple[Record | None, str]:
    """As `read_record`, but return what is wrong with the file instead of printing it; empty if nothing is."""
    try:
        data = files.read(path, MAX_BYTES)
        return (None if data is None else convert(read_json(kind, data))), ""
    except (ValueError, SpecError, DamagedError) as error:
        return None, " ".join(str(error).split())[:300]
