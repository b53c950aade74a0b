"""Opens pyarrow's filesystem for a store's address, and renames files and folders in any filesystem."""

import contextlib
import os
from pathlib import Path

from pyarrow import fs

from sweeper.masking import is_uri


def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem, and the path of the store's root in it."""
    if not is_uri(uri):
        return fs.LocalFileSystem(), uri
    if uri.startswith("s3://") and "allow_delayed_open" not in uri:
        uri += f"{'&' if '?' in uri else '?'}allow_delayed_open=true"  # else a small file takes three requests
    filesystem, root = fs.FileSystem.from_uri(uri)
    return filesystem, root


def move(filesystem: fs.FileSystem, old: str, new: str) -> bool:
    """Rename a file, or a folder with its content. Returns False if `old` does not exist."""
    kind = filesystem.get_file_info(old).type
    if kind == fs.FileType.NotFound:
        return False
    if isinstance(filesystem, fs.LocalFileSystem):
        Path(new).parent.mkdir(parents=True, exist_ok=True)
        os.replace(old, new)
    elif kind == fs.FileType.File:
        filesystem.move(old, new)
    else:  # an object store cannot rename a folder, so its objects are moved one by one
        for info in filesystem.get_file_info(fs.FileSelector(old, recursive=True)):
            if info.type == fs.FileType.File:
                filesystem.move(info.path, new + info.path[len(old) :])
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(old)
    return True
