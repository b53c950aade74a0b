"""Checks of a store before a run: whether it can be written, and how much space its disk has."""

import errno
import os
import shutil
import uuid

from sweeper.errors import StoreError
from sweeper.storage.io.files import Files
from sweeper.storage.io.local_disk import PROBE
from sweeper.storage.io.store_identity import MARKER
from sweeper.storage.layout import FOLDERS

MIN_FREE_BYTES = 64 << 20
"""Least free space of a local store's disk at the start of a run."""


def check_writable(files: Files) -> None:
    """Write, read and delete a small probe file. Raises StoreError if that fails.

    A local folder that is read-only from the start raises immediately, without retries.
    """
    folder = files.local_folder
    if folder is not None and not files.pinned and folder.is_dir() and os.statvfs(folder).f_flag & os.ST_RDONLY:
        raise StoreError(f"store {files.display_uri}: cannot write: {os.strerror(errno.EROFS)}")
    probe = f"{PROBE}{uuid.uuid4().hex}"
    files.write(probe, b"probe")
    if files.read(probe) != b"probe":
        raise StoreError(f"store {files.display_uri}: a file written there does not read back")
    files.delete(probe)


def check_no_folder_of_a_store(files: Files) -> None:
    """Raise StoreError if a local store would lie in a folder of another one, such as `results/trials`, whose readers
    would take its files for their own."""
    folder = files.local_folder
    if folder is None:
        return
    for outer in folder.absolute().parents:
        inner = folder.absolute().relative_to(outer).parts[0]
        if inner in FOLDERS and (outer / MARKER).exists():
            raise StoreError(
                f"store {files.display_uri} must not be in the store {outer}, whose folder '{inner}' it would be in; "
                f"use --store {outer}, or a folder outside it"
            )


def check_free_space(files: Files) -> None:
    """Raise StoreError if the disk of a local store has less than `MIN_FREE_BYTES` free."""
    folder = files.local_folder
    if folder is None:
        return
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise StoreError(
            f"store {files.display_uri} must have {MIN_FREE_BYTES >> 20} MiB free, but has {free >> 20}; make room, or "
            "use another --store"
        )
