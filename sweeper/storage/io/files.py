"""Atomic files in a folder or at a URI: a reader sees the old content or the new content, never a part of either."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from pyarrow import ArrowException, fs

from sweeper.errors import StoreError
from sweeper.storage.io import local_disk as disk
from sweeper.storage.io.address import AddressError, join_address, parse_address, show_address
from sweeper.storage.io.filesystem import move, open_filesystem
from sweeper.storage.io.retry import NO_RETRIES, Result, RetryPolicy, call_with_retries
from sweeper.storage.io.store_identity import StoreIdentity

HIDDEN = (".", "_")
"""Prefixes of hidden names, which every Parquet reader and `Files.list` ignore."""


class Files:
    """The files under one folder: a local path, or a URI that pyarrow.fs opens (s3://, gs://, file://).

    Every `path` is relative to that folder and cannot leave it. Transient failures are retried according to `patience`,
    and `say` is called with a line about them. Failures raise StoreError. After `hold_on()`, a local folder that is
    missing or was replaced is a transient failure, too. Picklable: a copy opens its own connection and has no `say`.
    """

    def __init__(
        self, uri: str | os.PathLike[str], patience: RetryPolicy = NO_RETRIES, say: Callable[[str], None] | None = None
    ) -> None:
        try:
            self.uri = parse_address(os.fspath(uri))
        except AddressError as error:
            raise StoreError(f"the store cannot be opened: {error}") from error
        self.patience, self._say = patience, say
        self._opened: tuple[fs.FileSystem, str] | None = None
        self._identity: StoreIdentity | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_say": None, "_opened": None}

    def __repr__(self) -> str:
        return f"Files({self.shown!r})"

    def patient(self, patience: RetryPolicy, say: Callable[[str], None] | None = None) -> Files:
        """Return the same files with another retry policy and another `say`."""
        files = Files(self.uri, patience, say)
        files._opened, files._identity = self._opened, self._identity
        return files

    def hold_on(self) -> None:
        """From now on accept only the folder that is at the path now, identified by `StoreIdentity` (local only)."""
        folder = self.local
        if folder is not None and self._identity is None:
            self._identity = self.insist("mark", "", lambda: StoreIdentity.of(folder))

    @property
    def shown(self) -> str:
        """The folder, or the URI without its secrets."""
        return show_address(self.uri)

    def shown_at(self, path: str) -> str:
        """Return the address of `path` without secrets."""
        return join_address(self.shown, path)

    @property
    def local(self) -> Path | None:
        """The folder if the store is on a local file system, else None."""
        filesystem, root = self._open()
        return Path(root) if isinstance(filesystem, fs.LocalFileSystem) else None

    def say(self, line: str) -> None:
        """Pass a line to the `say` of the constructor. Without one, issue a warning."""
        if self._say:
            self._say(line)
        else:
            warnings.warn(line, stacklevel=2)

    def read(self, path: str) -> bytes | None:
        """Return the content of the file at `path`, or None if there is no such file."""
        filesystem, target = self._at(path)

        def act() -> bytes | None:
            try:
                if isinstance(filesystem, fs.LocalFileSystem):
                    return Path(target).read_bytes()
                with filesystem.open_input_file(target) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

        return self.insist("read", path, act)

    def write(self, path: str, data: bytes) -> None:
        """Create or replace the file at `path` atomically.

        A local file is written under a temporary name, then renamed. Writing an object is atomic in an object store.
        """
        filesystem, target = self._at(path)

        def act() -> None:
            if isinstance(filesystem, fs.LocalFileSystem):
                disk.replace(Path(target), data)
            else:
                with filesystem.open_output_stream(target) as stream:
                    stream.write(data)

        self.insist("write", path, act)

    def delete(self, path: str) -> None:
        """Delete the file at `path`, if there is one."""
        filesystem, target = self._at(path)
        self.insist("delete", path, lambda: _unless_absent(lambda: filesystem.delete_file(target)))

    def delete_same(self, path: str, data: bytes) -> None:
        """Delete the file at `path` if it still holds `data`, so that what another writer has put there since stays.

        A local file that holds something else may end up under another name. In an object store, what is written in the
        milliseconds between the comparison and the deletion is lost.
        """
        filesystem, target = self._at(path)
        if isinstance(filesystem, fs.LocalFileSystem):
            self.insist("delete", path, lambda: _unless_absent(lambda: disk.delete_same(Path(target), data)))
        elif self.read(path) == data:
            self.delete(path)

    def delete_folder(self, path: str) -> None:
        """Delete the folder at `path` with its content, if there is one."""
        filesystem, target = self._at(path)
        self.insist("delete", path, lambda: _unless_absent(lambda: filesystem.delete_dir(target)))

    def address(self, path: str) -> str:
        """Return the URI or the absolute path of `path`, including any secrets, for code that opens it by itself."""
        self._at(path)
        return join_address(self.uri, path)

    def list(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files and folders in `folder`, without hidden ones.

        The list is empty if there is no such folder.
        """
        filesystem, target = self._at(folder)

        def act() -> list[fs.FileInfo]:
            try:
                return list(filesystem.get_file_info(fs.FileSelector(target, allow_not_found=True)))
            except (NotADirectoryError, FileNotFoundError):  # PyArrow raises the latter for a folder just being created
                return []

        entries = self.insist("list", folder, act)
        return sorted(info.base_name for info in entries if not info.base_name.startswith(HIDDEN))

    def move(self, source: str, target: str) -> bool:
        """Rename a file, or a folder with its content. Returns False if there is no `source`."""
        filesystem, old = self._at(source)
        _, new = self._at(target)
        return self.insist("move", source, lambda: move(filesystem, old, new))

    def check_writable(self) -> None:
        """Write, read and delete a small probe file. Raises StoreError if that fails.

        A local folder that is read-only from the start raises immediately, without retries.
        """
        folder = self.local
        if (
            folder is not None
            and self._identity is None
            and folder.is_dir()
            and os.statvfs(folder).f_flag & os.ST_RDONLY
        ):
            raise StoreError(f"store {self.shown}: cannot write: {os.strerror(errno.EROFS)}")
        probe = f".probe-{uuid.uuid4().hex}"
        self.write(probe, b"probe")
        if self.read(probe) != b"probe":
            raise StoreError(f"store {self.shown}: a file written there does not read back")
        self.delete(probe)

    def tidy(self) -> None:
        """Clean up what killed writers left (local only): see `local_disk.tidy`.

        Files younger than an hour are not touched, because a running writer may be using them.
        """
        folder = self.local
        if folder is not None:
            self.insist("tidy", "", lambda: disk.tidy(folder))

    def free_bytes(self) -> int | None:
        """Return the free space of the disk in bytes, or None for an object store."""
        folder = self.local
        if folder is None:
            return None
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def insist(self, verb: str, path: str, act: Callable[[], Result]) -> Result:
        """Call `act` with retries and return its result. A lasting failure raises StoreError.

        The error's line is `store STORE: cannot VERB 'PATH': REASON`. `path` is only used in that line.
        """

        def guarded() -> Result:
            folder = self.local if self._identity else None
            return self._identity.guard(folder, act) if self._identity and folder else act()

        def failure(error: BaseException) -> str:
            return f"store {self.shown}: cannot {verb} '{path or '.'}': {_reason(error)}"

        def waiting(error: BaseException) -> None:
            if self._say:
                line = str(error) if isinstance(error, StoreError) else failure(error)
                self._say(f"{line}; trying again for {self.patience.seconds:.0f} s")

        def went_on(seconds: float) -> None:
            if self._say:
                self._say(f"store {self.shown} works again, after {seconds:.0f} s")

        try:
            return call_with_retries(guarded, self.patience, waiting, went_on)
        except (OSError, ArrowException) as error:
            raise StoreError(failure(error)) from error

    def _open(self) -> tuple[fs.FileSystem, str]:
        """Return the filesystem and the store's root in it, opened once. Raises StoreError if that fails."""
        if self._opened is None:
            try:
                filesystem, root = open_filesystem(self.uri)
            except (ArrowException, OSError, ValueError) as error:
                reason = _reason(error).replace(self.uri, self.shown)
                raise StoreError(f"store {self.shown} cannot be opened: {reason}") from error
            if not root.strip("/") and not isinstance(filesystem, fs.LocalFileSystem):
                raise StoreError(f"store {self.shown} cannot be opened: it names no bucket")
            self._opened = filesystem, root.rstrip("/") or "/"
        return self._opened

    def _at(self, path: str) -> tuple[fs.FileSystem, str]:
        """Return the filesystem and the full path of `path` in it. Raises ValueError if `path` leaves the store."""
        relative = PurePosixPath(path)
        if relative.is_absolute() or ".." in relative.parts or "\\" in path or "\0" in path:
            raise ValueError(f"a name in the store must be relative, without '..', backslash and NUL, but got {path!r}")
        filesystem, root = self._open()
        return filesystem, f"{root}/{relative}" if relative.parts else root


def _unless_absent(act: Callable[[], None]) -> None:
    with contextlib.suppress(FileNotFoundError):
        act()


def _reason(error: BaseException) -> str:
    """Return the error's text in one line, without the user and the password of a URI."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError) and error.filename:
        text = f"{text}: {error.filename}"
    return re.sub(r"://[^/@\s]*@", "://", " ".join(text.split()))
