"""Tensors that take long to make, kept in a file that all processes of a machine share in memory."""

import os
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor


def cached_tensors(path: Path, lock: Path, make: Callable[[], Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """The named tensors in the file at `path`, which are mapped into memory and verified by their checksum.

    If there is no such file, or it is damaged, `make()` makes the tensors, and a new file is renamed into place. The
    file `lock` is locked meanwhile: of several processes one makes the tensors, and none sees a half-written file.
    Raises OSError if the file cannot be written.
    """
    from filelock import FileLock

    if tensors := _read(path):
        return tensors
    with FileLock(lock):
        if tensors := _read(path):
            return tensors
        tensors = make()
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".cache-") as staging:
            written = Path(staging, path.name)
            torch.save({"tensors": dict(tensors), "checksum": _checksum(tensors)}, written)
            os.replace(written, path)
        return tensors


def _read(path: Path) -> Mapping[str, Tensor] | None:
    """The tensors of a file; None if it does not exist or is damaged."""
    try:
        content = torch.load(path, mmap=True, weights_only=True)
        return content["tensors"] if content["checksum"] == _checksum(content["tensors"]) else None
    except Exception:  # a damaged file can hold anything in place of tensors
        return None


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 of all names, types, shapes and values."""
    checksum = 0
    for name, tensor in tensors.items():
        checksum = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), checksum)
        checksum = zlib.crc32(tensor.contiguous().numpy().data, checksum)
    return checksum
