"""Opens pyarrow's filesystem for a store's address, and renames files and folders in any filesystem."""

import contextlib
import copy
import os
from pathlib import Path

from pyarrow import fs

from sweeper.masking import is_uri
from sweeper.storage.io.remote_call import made_progress

GCS_RETRY_SECONDS = 10
"""Seconds for which the client of Google's storage retries by itself. Its default is a quarter of an hour, in which
nobody would learn the reason."""
_OPTIONS = {
    "s3": ("allow_delayed_open", "true"),  # else a small file takes three requests
    "gs": ("retry_limit_seconds", GCS_RETRY_SECONDS),
    "gcs": ("retry_limit_seconds", GCS_RETRY_SECONDS),
}
"""Scheme -> option of its URIs that is set unless the user has."""


def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem, and the path of the store's root in it."""
    if not is_uri(uri):
        return fs.LocalFileSystem(), uri
    scheme = uri.partition("://")[0]
    option, value = _OPTIONS.get(scheme, ("", ""))
    if option and option not in uri:
        uri += f"{'&' if '?' in uri else '?'}{option}={value}"
    filesystem, root = fs.FileSystem.from_uri(uri)
    if scheme == "s3" and (copied := copy.copy(filesystem)).equals(filesystem):
        filesystem = copied  # it tries a request 3 times; one from a URI 30 times, for 99 s if nothing answers
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
                made_progress()
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(old)
    return True
