"""A SHA-256 digest inside a Parquet file, over every other byte of it, so that a flipped bit anywhere is an error.

The digest lies between the last page and the footer. Readers find pages by the offsets in the footer, so pandas and
every other reader skip it. A file without a digest is valid, too; older versions of this package wrote such files.

Layout: `PAR1`, pages, `MARK`, 32 bytes of digest, footer, 4 bytes with the footer's length, `PAR1`.
"""

from __future__ import annotations

import hashlib

from sweeper.errors import DamagedError

MARK = bytes.fromhex("d17e8ce55c0ffee5") + b"sha256\r\n"
"""The 16 bytes before the digest."""
_SIZE = len(MARK) + 32
"""Bytes of the mark and the digest together."""
_TAIL = 8
"""Bytes after the footer: its length and `PAR1`."""


def add_digest(data: bytes) -> bytes:
    """Return the Parquet file with its digest inserted, which makes it 48 bytes longer."""
    footer = _footer(data)
    return b"".join((data[:footer], MARK, hashlib.sha256(data).digest(), data[footer:]))


def has_digest(data: bytes) -> bool:
    """Return whether the file has a digest. Raises DamagedError if it has one that does not match."""
    footer = _footer(data)
    begin = footer - _SIZE
    if begin < 0 or data[begin : begin + len(MARK)] != MARK:
        if MARK in data:
            raise DamagedError("its digest is not where the footer begins")
        return False
    view = memoryview(data)
    digest = hashlib.sha256(view[:begin])
    digest.update(view[footer:])
    if digest.digest() != data[begin + len(MARK) : footer]:
        raise DamagedError("its bytes do not match its digest")
    return True


def _footer(data: bytes) -> int:
    """Return the offset of the footer. It is negative if the data are too short or their end is damaged."""
    return len(data) - _TAIL - int.from_bytes(data[-_TAIL:-4], "little")
