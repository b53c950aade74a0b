"""Read files of NumPy arrays, which workers wrote beside the sheets of a trial."""

import io
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from sweeper.storage.io.files import Files

Figure = TypeVar("Figure")


def read_arrays(files: Files, path: str, parse: Callable[[Mapping[str, Any]], Figure]) -> Figure | None:
    """Return `parse` of the arrays at `path`, by name. None if there is no such file, or if it is damaged, about which
    a line is logged."""
    data = files.read(path)
    if data is None:
        return None
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return parse(arrays)
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds for a damaged file
        files.log(f"store {files.display_uri}: '{path}' cannot be shown: {error}")
        return None
