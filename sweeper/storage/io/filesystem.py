"""A store's address -> pyarrow's filesystem, and what pyarrow has no one call for."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pyarrow import fs

from sweeper.storage.io.address import is_uri


def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """The filesystem, and the store's root in it. S3's small files take three requests unless they are opened late."""
    if not is_uri(uri):
        return fs.LocalFileSystem(), uri
    late = uri.startswith("s3://") and "allow_delayed_open" not in uri
    filesystem, root = fs.FileSystem.from_uri(
        f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true" if late else uri
    )
    return filesystem, root


def move(filesystem: fs.FileSystem, old: str, new: str) -> bool:
    """Rename a file, or a folder with all that is in it; False where there is none."""
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
