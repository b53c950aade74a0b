"""Are all image files whole? Asked once, by their first and last bytes, before anything expensive starts.

A file that begins and ends as a JPEG or PNG does passes; every other is decoded, so that none is refused that would
serve. A hole in the middle of a file is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from PIL import Image, UnidentifiedImageError

from trainables.data.errors import DataError
from trainables.data.folders import rgb

ENDS = ((b"\xff\xd8\xff", b"\xff\xd9"), (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"))
"""The first and the last bytes of a JPEG and of a PNG."""
TAIL = 64
"""Bytes read from the end; zeros that pad a file are passed over."""
CHUNK = 1024
THREADS = 32
"""Reading waits for the disk, or the network's."""


def check(name: str, paths: Sequence[str]) -> None:
    """DataError, one line, with the first of the image files of the set `name` that cannot be read, and how many."""
    with ThreadPoolExecutor(THREADS) as pool:
        chunks = pool.map(_broken, (paths[start : start + CHUNK] for start in range(0, len(paths), CHUNK)))
        broken = [found for chunk in chunks for found in chunk]
    if broken:
        path, reason = broken[0]
        raise DataError(
            f"{len(broken)} of {len(paths)} images of {name} cannot be read, the first is {path} ({reason}); "
            "remove or replace them"
        )


def _broken(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Those that cannot be read, each with the reason."""
    return [(path, reason) for path in paths if (reason := _fault(path))]


def _fault(path: str) -> str | None:
    try:
        if _ends_well(path):
            return None
        if not os.path.getsize(path):
            return "empty"
        with Image.open(path) as image:
            rgb(image)
    except UnidentifiedImageError:
        return "not an image"
    except OSError as error:
        return error.strerror or "cut off"
    except Exception as error:
        return " ".join(str(error).split()) or type(error).__name__
    return None


def _ends_well(path: str) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        head = os.pread(file, 8, 0)
        tail = os.pread(file, TAIL, max(0, os.fstat(file).st_size - TAIL)).rstrip(b"\0")
    finally:
        os.close(file)
    return any(head.startswith(first) and tail.endswith(last) for first, last in ENDS)
