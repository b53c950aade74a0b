"""The address of a store, a folder or a URI `scheme://...`, and the filesystem of pyarrow that opens it."""

import contextlib
import copy
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pyarrow import fs

from sweeper.masking import is_uri, masked_url
from sweeper.storage.retry import made_progress

_GOOGLE = {"retry_limit_seconds": "10"}
"""Its client retries by itself, by default for a quarter of an hour, in which nobody would learn the reason."""
SCHEMES: Mapping[str, Mapping[str, str]] = {
    "file": {},
    "s3": {"allow_delayed_open": "true"},  # else a small file takes three requests
    **{"gs": _GOOGLE, "gcs": _GOOGLE},
    **{"abfs": {}, "abfss": {}, "hdfs": {}, "viewfs": {}},
}
"""Schemes of the URIs that pyarrow opens -> their options that are set unless the user has set them."""
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]*):"


class AddressError(ValueError):
    """The address cannot be that of a store. The message is one line."""


def parse_address(text: str) -> str:
    """Return a URI unchanged, or a folder as an absolute path. Raises AddressError for anything else."""
    if "\0" in text:
        raise AddressError(f"a store's name must not contain NUL, but got {masked_url(text)!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise AddressError(f"a store's name must be valid UTF-8, but got {masked_url(text)!r}") from None
    match = re.match(_SCHEME, text)
    if not match:
        return os.path.abspath(os.path.expanduser(text))
    scheme = match[1]
    if not text.startswith("//", match.end()):
        shown = f"{scheme}:{text[match.end() :].rpartition('@')[2]}"  # without the user and the password
        raise AddressError(
            f"a store must be a folder or a URI with ://, but got '{shown}'; write {scheme.lower()}://... for a URI, "
            f"or './{shown}' for a folder of that name"
        )
    if scheme not in SCHEMES:
        raise AddressError(f"a store's URI must begin with one of {', '.join(SCHEMES)}, but got {scheme}://...")
    return text


def join_address(address: str, path: str) -> str:
    """Return the address of `path` in the store. The options of a URI stay at the end."""
    base, question_mark, options = address.partition("?") if is_uri(address) else (address, "", "")
    return f"{base.rstrip('/')}/{path}{question_mark}{options}"


def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem, and the path of the store's root in it."""
    if not is_uri(uri):
        return fs.LocalFileSystem(), uri
    scheme = uri.partition("://")[0]
    for option, value in SCHEMES.get(scheme, {}).items():
        if option not in uri:
            uri += f"{'&' if '?' in uri else '?'}{option}={value}"
    filesystem, root = fs.FileSystem.from_uri(uri)
    if scheme == "s3" and (copied := copy.copy(filesystem)).equals(filesystem):
        filesystem = copied  # it tries a request 3 times; one from a URI 30 times, for 99 s if nothing answers
    return filesystem, root


def move(filesystem: fs.FileSystem, old: str, new: str) -> bool:
    """Rename a file, or a folder with its content. Returns False if `old` does not exist."""
    if isinstance(filesystem, fs.LocalFileSystem):
        if not os.path.lexists(old):
            return False
        Path(new).parent.mkdir(parents=True, exist_ok=True)
        os.replace(old, new)
        return True
    kind = filesystem.get_file_info(old).type
    if kind == fs.FileType.NotFound:
        return False
    if kind == fs.FileType.File:
        filesystem.move(old, new)
    else:  # an object store cannot rename a folder, so its objects are moved one by one
        for info in filesystem.get_file_info(fs.FileSelector(old, recursive=True)):
            if info.type == fs.FileType.File:
                filesystem.move(info.path, new + info.path[len(old) :])
                made_progress()
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(old)
    return True
