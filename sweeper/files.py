"""Bytes at a URI, atomically: a reader sees the old file or the new one, never half of either."""

import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pyarrow import ArrowException, fs

HIDDEN = (".", "_")
"""Names that begin so are ignored by every Parquet reader, and by `Files.list`."""
STALE_SECONDS = 3600.0
"""A temporary file older than this was left by a writer that was killed."""


class StoreError(Exception):
    """The store cannot do what was asked; the message is one line for the person at the terminal."""


class Files:
    """The files under one folder: a local path, or a URI that pyarrow.fs opens (s3://, gs://, file://).

    Every `path` is relative to that folder and cannot leave it. Picklable: a copy opens its own connection.
    """

    def __init__(self, uri: str | os.PathLike[str]) -> None:
        text = os.fspath(uri)
        self.uri = text if "://" in text else os.path.abspath(os.path.expanduser(text))
        self._opened: tuple[fs.FileSystem, str] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"uri": self.uri, "_opened": None}

    def __repr__(self) -> str:
        return f"Files({self.shown!r})"

    @property
    def shown(self) -> str:
        """The URI without the credentials or the options that it may carry."""
        return re.sub(r"://[^/@]*@", "://", self.uri).split("?", 1)[0]

    @property
    def local(self) -> Path | None:
        """The folder, where it is one of this machine's."""
        filesystem, root = self._open()
        return Path(root) if isinstance(filesystem, fs.LocalFileSystem) else None

    def read(self, path: str) -> bytes | None:
        """The bytes at `path`; None where there is no such file."""
        filesystem, target = self._at(path)
        with self._failures("read", path):
            try:
                if isinstance(filesystem, fs.LocalFileSystem):
                    return Path(target).read_bytes()
                with filesystem.open_input_file(target) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def write(self, path: str, data: bytes) -> None:
        """Create or replace `path`. Local files are written beside it, then renamed; an object's PUT is atomic."""
        filesystem, target = self._at(path)
        with self._failures("write", path):
            if isinstance(filesystem, fs.LocalFileSystem):
                _replace(Path(target), data)
            else:
                with filesystem.open_output_stream(target) as stream:
                    stream.write(data)

    def delete(self, path: str) -> None:
        """Remove the file at `path`, if there is one."""
        filesystem, target = self._at(path)
        with self._failures("delete", path), contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(target)

    def delete_folder(self, path: str) -> None:
        """Remove the folder at `path` with all that is in it, if there is one."""
        filesystem, target = self._at(path)
        with self._failures("delete", path), contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(target)

    def address(self, path: str) -> str:
        """The URI, or the absolute path, of `path`: for those who open it themselves."""
        self._at(path)
        base, mark, options = self.uri.partition("?") if "://" in self.uri else (self.uri, "", "")
        return f"{base.rstrip('/')}/{path}{mark}{options}"

    def list(self, folder: str = "") -> list[str]:
        """The names in `folder`, files and folders, sorted, none hidden; empty where there is no such folder."""
        filesystem, target = self._at(folder)
        with self._failures("list", folder):
            try:
                found = filesystem.get_file_info(fs.FileSelector(target, allow_not_found=True))
            except NotADirectoryError:
                return []
        return sorted(info.base_name for info in found if not info.base_name.startswith(HIDDEN))

    def move(self, source: str, target: str) -> bool:
        """Rename a file or a folder with all that is in it; False where there is no `source`."""
        filesystem, old = self._at(source)
        _, new = self._at(target)
        with self._failures("move", source):
            kind = filesystem.get_file_info(old).type
            if kind == fs.FileType.NotFound:
                return False
            if isinstance(filesystem, fs.LocalFileSystem):
                Path(new).parent.mkdir(parents=True, exist_ok=True)
                os.replace(old, new)
            elif kind == fs.FileType.File:
                filesystem.move(old, new)
            else:  # an object store has no folders to rename: object by object
                for info in filesystem.get_file_info(fs.FileSelector(old, recursive=True)):
                    if info.type == fs.FileType.File:
                        filesystem.move(info.path, new + info.path[len(old) :])
                with contextlib.suppress(FileNotFoundError):
                    filesystem.delete_dir(old)
        return True

    def check_writable(self) -> None:
        """Write and remove a small probe; StoreError says in one line why it cannot be done."""
        probe = f".probe-{uuid.uuid4().hex}"
        self.write(probe, b"probe")
        if self.read(probe) != b"probe":
            raise StoreError(f"store {self.shown}: what is written there does not read back")
        self.delete(probe)

    def tidy(self) -> None:
        """Remove the temporary files that killed writers left (local only; those of living writers are young)."""
        folder = self.local
        if folder is None:
            return
        for path in folder.rglob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError), self._failures("delete", path.name):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()

    def free_bytes(self) -> int | None:
        """What the disk still takes; None where nobody can say (an object store)."""
        folder = self.local
        if folder is None:
            return None
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def _open(self) -> tuple[fs.FileSystem, str]:
        if self._opened is None:
            try:
                filesystem, root = fs.FileSystem.from_uri(self.uri)
            except (ArrowException, OSError, ValueError) as error:
                raise StoreError(f"store {self.shown} cannot be opened: {_reason(error)}") from error
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

    @contextlib.contextmanager
    def _failures(self, verb: str, path: str) -> Iterator[None]:
        """Anything that the filesystem refuses, as one line that names the store, the file and the reason."""
        try:
            yield
        except (OSError, ArrowException) as error:
            raise StoreError(f"store {self.shown}: cannot {verb} '{path or '.'}': {_reason(error)}") from error


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError) and error.filename:
        text = f"{text}: {error.filename}"
    return re.sub(r"://[^/@\s]*@", "://", " ".join(text.split()))
