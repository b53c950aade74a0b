"""Check that all image files are complete, by their first and last bytes, before anything expensive starts.

A file that begins and ends like a JPEG or PNG passes. All others are decoded, so that no readable file is refused.
Damage in the middle of a file is not detected.
"""

import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from PIL import UnidentifiedImageError

from trainables.data.errors import DataError
from trainables.data.image_files.decoding import open_image, rgb

ENDS = ((b"\xff\xd8\xff", b"\xff\xd9"), (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"))
"""The first and last bytes of a JPEG and of a PNG."""
TAIL = 64
"""Bytes read from the end of a file. Zeros that pad the end are ignored."""
CHUNK = 1024
"""Files that a thread checks at a time."""
THREADS = 32
"""Many threads, because each waits for the disk or the network most of the time."""


def check_image_files(name: str, paths: Sequence[str]) -> None:
    """Raises DataError if image files of the data set `name` cannot be read. The one-line message says how many, and
    names the first with the reason."""
    with ThreadPoolExecutor(THREADS) as pool:
        chunks = [paths[start : start + CHUNK] for start in range(0, len(paths), CHUNK)]
        faults = [fault for chunk in pool.map(lambda chunk: [*map(_fault, chunk)], chunks) for fault in chunk]
    broken = [(path, fault) for path, fault in zip(paths, faults, strict=True) if fault]
    if broken:
        path, reason = broken[0]
        raise DataError(
            f"{len(broken)} of {len(paths)} images of {name} cannot be read, the first is {path} ({reason}); "
            "remove or replace them"
        )


def _fault(path: str) -> str | None:
    """Why a file cannot be read; None if it can."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return "not a file"
        if _ends_well(path):
            return None
        if not os.path.getsize(path):
            return "empty"
        with open_image(path) as image:
            rgb(image)
    except UnidentifiedImageError:
        return "not an image"
    except OSError as error:
        return error.strerror or "cut off"
    except Exception as error:
        return " ".join(str(error).split()) or type(error).__name__
    return None


def _ends_well(path: str) -> bool:
    """Whether the file begins and ends like a JPEG or PNG."""
    with open(path, "rb", buffering=0) as file:
        head = os.pread(file.fileno(), 8, 0)
        tail = os.pread(file.fileno(), TAIL, max(0, os.fstat(file.fileno()).st_size - TAIL)).rstrip(b"\0")
    return any(head.startswith(first) and tail.endswith(last) for first, last in ENDS)
