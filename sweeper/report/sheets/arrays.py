"""Read files of NumPy arrays, which workers wrote beside the sheets of a trial."""

import io
import math
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from sweeper.storage.files import Files

Figure = TypeVar("Figure")
MAX_BYTES = 64 << 20
"""Largest size of a file, and of its arrays, in bytes."""


def read_arrays(files: Files, path: str, parse: Callable[[Mapping[str, Any]], Figure]) -> Figure | None:
    """Return `parse` of the arrays at `path`, by name. None if there is no such file, or if it is damaged, about which
    a line is logged."""
    try:
        data = files.read(path, MAX_BYTES)
        if data is None:
            return None
        _check_sizes(data)
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return parse(arrays)
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds for a damaged file
        files.log(f"store {files.display_uri}: '{path}' cannot be shown: {error}")
        return None


def _check_sizes(data: bytes) -> None:
    """Raise ValueError if arrays declare more bytes than they have or may have: NumPy would allocate them first."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if (size := sum(member.file_size for member in archive.infolist())) > MAX_BYTES:
            raise ValueError(f"its arrays must have at most {MAX_BYTES >> 20} MiB, but declare {size / 2**20:.1f}")
        for member in archive.infolist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                shape, _, kind = header[version](stream)
            if math.prod(shape) * kind.itemsize > member.file_size:
                raise ValueError(f"array {member.filename} declares {shape} values, more than its bytes hold")
