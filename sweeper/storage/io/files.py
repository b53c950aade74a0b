"""Bytes at a URI, atomically: a reader sees the old file or the new one, never half of either."""

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
from sweeper.storage.io.retry import ONCE, Result, RetryPolicy, insist
from sweeper.storage.io.store_identity import StoreIdentity

HIDDEN = (".", "_")
"""Names that begin so are ignored by every Parquet reader, and by `Files.list`."""


class Files:
    """The files under one folder: a local path, or a URI that pyarrow.fs opens (s3://, gs://, file://).

    Every `path` is relative to that folder and cannot leave it. What fails and may pass is tried again as long as
    `patience` lasts; `say` is told so in a line. Once `hold_on` was called, a local folder that is missing, or another
    one, is such a failure. Picklable: a copy opens its own connection, and says nothing.
    """

    def __init__(
        self, uri: str | os.PathLike[str], patience: RetryPolicy = ONCE, say: Callable[[str], None] | None = None
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
        """The same files with another patience."""
        files = Files(self.uri, patience, say)
        files._opened, files._identity = self._opened, self._identity
        return files

    def hold_on(self) -> None:
        """From now on, use this very folder alone, whatever is found at its path later (local stores only)."""
        folder = self.local
        if folder is not None and self._identity is None:
            self._identity = self.insist("mark", "", lambda: StoreIdentity.of(folder))

    @property
    def shown(self) -> str:
        """The folder, or the URI without the secrets that it may carry."""
        return show_address(self.uri)

    def shown_at(self, path: str) -> str:
        """The same of `path`."""
        return join_address(self.shown, path)

    @property
    def local(self) -> Path | None:
        """The folder, where it is one of this machine's."""
        filesystem, root = self._open()
        return Path(root) if isinstance(filesystem, fs.LocalFileSystem) else None

    def say(self, line: str) -> None:
        """Pass a line to the `say` of the constructor; without one, issue a warning."""
        if self._say:
            self._say(line)
        else:
            warnings.warn(line, stacklevel=2)

    def read(self, path: str) -> bytes | None:
        """The bytes at `path`; None where there is no such file."""
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
        """Create or replace `path`. Local files are written beside it, then renamed; an object's PUT is atomic."""
        filesystem, target = self._at(path)

        def act() -> None:
            if isinstance(filesystem, fs.LocalFileSystem):
                disk.replace(Path(target), data)
            else:
                with filesystem.open_output_stream(target) as stream:
                    stream.write(data)

        self.insist("write", path, act)

    def delete(self, path: str) -> None:
        """Remove the file at `path`, if there is one."""
        filesystem, target = self._at(path)
        self.insist("delete", path, lambda: _unless_absent(lambda: filesystem.delete_file(target)))

    def delete_same(self, path: str, data: bytes) -> None:
        """Remove the file at `path` if it holds `data`: not what another writer has put there since.

        A local file that holds something else may come out under another name. In an object store a write within the
        milliseconds between looking and removing is lost.
        """
        filesystem, target = self._at(path)
        if isinstance(filesystem, fs.LocalFileSystem):
            self.insist("delete", path, lambda: _unless_absent(lambda: disk.delete_same(Path(target), data)))
        elif self.read(path) == data:
            self.delete(path)

    def delete_folder(self, path: str) -> None:
        """Remove the folder at `path` with all that is in it, if there is one."""
        filesystem, target = self._at(path)
        self.insist("delete", path, lambda: _unless_absent(lambda: filesystem.delete_dir(target)))

    def address(self, path: str) -> str:
        """The URI, or the absolute path, of `path`: for those who open it themselves."""
        self._at(path)
        return join_address(self.uri, path)

    def list(self, folder: str = "") -> list[str]:
        """The names in `folder`, files and folders, sorted, none hidden; empty where there is no such folder."""
        filesystem, target = self._at(folder)

        def act() -> list[fs.FileInfo]:
            try:
                return list(filesystem.get_file_info(fs.FileSelector(target, allow_not_found=True)))
            except (NotADirectoryError, FileNotFoundError):  # PyArrow says the latter of a folder that is just made
                return []

        found = self.insist("list", folder, act)
        return sorted(info.base_name for info in found if not info.base_name.startswith(HIDDEN))

    def move(self, source: str, target: str) -> bool:
        """Rename a file or a folder with all that is in it; False where there is no `source`."""
        filesystem, old = self._at(source)
        _, new = self._at(target)
        return self.insist("move", source, lambda: move(filesystem, old, new))

    def check_writable(self) -> None:
        """Write and remove a small probe; StoreError says in one line why it cannot be done. What is read-only from the
        start is not waited for."""
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
            raise StoreError(f"store {self.shown}: what is written there does not read back")
        self.delete(probe)

    def tidy(self) -> None:
        """Put right what killed writers left (local only; what living writers work on is young): temporary files go,
        and files that were to be looked at before they go come back."""
        folder = self.local
        if folder is not None:
            self.insist("tidy", "", lambda: disk.tidy(folder))

    def free_bytes(self) -> int | None:
        """What the disk still takes; None where nobody can say (an object store)."""
        folder = self.local
        if folder is None:
            return None
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def insist(self, verb: str, path: str, act: Callable[[], Result]) -> Result:
        """What `act` returns; what the filesystem refuses as a line that names the store, the file and the reason."""

        def at_home() -> Result:
            folder = self.local if self._identity else None
            return self._identity.guard(folder, act) if self._identity and folder else act()

        def refusal(error: Exception) -> str:
            return f"store {self.shown}: cannot {verb} '{path or '.'}': {_reason(error)}"

        def waiting(error: Exception) -> None:
            if self._say:
                line = str(error) if isinstance(error, StoreError) else refusal(error)
                self._say(f"{line}; trying again for {self.patience.seconds:.0f} s")

        def went_on(seconds: float) -> None:
            if self._say:
                self._say(f"store {self.shown} works again, after {seconds:.0f} s")

        try:
            return insist(at_home, self.patience, waiting, went_on)
        except (OSError, ArrowException) as error:
            raise StoreError(refusal(error)) from error

    def _open(self) -> tuple[fs.FileSystem, str]:
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
        """The filesystem and the full name of `path` in it."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path:
            raise ValueError(f"a name in the store is relative and has no '..', but got {path!r}")
        filesystem, root = self._open()
        return filesystem, f"{root}/{pure}" if pure.parts else root


def _unless_absent(act: Callable[[], None]) -> None:
    with contextlib.suppress(FileNotFoundError):
        act()


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError) and error.filename:
        text = f"{text}: {error.filename}"
    return re.sub(r"://[^/@\s]*@", "://", " ".join(text.split()))
