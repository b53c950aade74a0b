"""Files of data sets on disk, written once even if several processes need them, and verified by checksums: downloads of
published files, and tensors that take long to compute.
"""

import contextlib
import io
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path

import torch
from torch import Tensor

from trainables.data.errors import DataError, DownloadError


def ensure_downloaded(
    name: str,
    root: Path,
    files: Sequence[tuple[Path, str]],
    archive: tuple[str, str],
    url: str,
    fetch: Callable[[Path], object],
    advice: str = "",
) -> None:
    """Make sure that the `files` (path below `root`, MD5) of the data set `name` exist and are intact. An empty MD5
    means that the reader verifies the file.

    If none of them exists, `fetch(folder)` downloads them into a temporary folder. If `root` contains the `archive`
    (name, MD5), it is placed in that folder, so that `fetch` needs no download. The files are then renamed into place
    under a lock, so that no process sees a half-written data set. Existing files are never overwritten.

    Raises DownloadError if the download fails, with the archive's `url` and the `advice` on another source, and
    DataError if a file is missing, corrupt or not a regular file.
    """
    from filelock import FileLock

    check_regular(root / path for path in (*(path for path, _ in files), Path(archive[0])))
    if not any((root / path).exists() for path, _ in files):
        try:
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f".{name}.lock"):
                if not any((root / path).exists() for path, _ in files):
                    _download(root, {path.parts[0] for path, _ in files}, archive, fetch)
        except (OSError, RuntimeError, HTTPException) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DownloadError(
                f"{name} is absent from {root} and its download failed ({reason}); put {archive[0]} there, from {url}"
                f"{advice and f', {advice}'}"
            ) from error
    for path, md5 in files:
        if md5:
            verify_checksum(name, root / path, md5, root / path.parts[0])


def check_regular(paths: Iterable[Path]) -> None:
    """Raises DataError for an existing path that is not a regular file, because reading a named pipe would block."""
    for path in paths:
        if path.exists() and not path.is_file():
            raise DataError(f"{path} must be a file, but is a folder, named pipe, device or socket; remove it")


def verify_checksum(name: str, path: Path, md5: str, remove: Path) -> None:
    """Raises DataError unless the file at `path` has the MD5 checksum `md5`. The message advises to remove `remove`."""
    from torchvision.datasets.utils import check_integrity

    if not check_integrity(path, md5):
        state = "does not have its published checksum" if path.exists() else "is missing"
        raise DataError(f"{name} is corrupt: {path} {state}; remove {remove} to have it downloaded again")


def _download(root: Path, entries: set[str], archive: tuple[str, str], fetch: Callable[[Path], object]) -> None:
    """Fetch into a temporary folder and rename its `entries` into `root`. torchvision's progress bar is hidden."""
    file, md5 = archive
    with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as staging:
        if (root / file).exists():
            verify_checksum("the archive", root / file, md5, root / file)
            Path(staging, file).symlink_to((root / file).resolve())
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            fetch(Path(staging))
        for entry in entries:
            os.replace(Path(staging, entry), root / entry)


def cached_tensors(path: Path, lock: Path, make: Callable[[], Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """The named tensors in the file at `path`, mapped into memory and verified by their checksum.

    If the file is missing or damaged, `make()` computes the tensors, and a new file is renamed into place. The file
    `lock` is locked meanwhile, so that only one process computes the tensors and none sees a half-written file. Raises
    OSError if the file cannot be written.
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
        check_regular([path])
        content = torch.load(path, mmap=True, weights_only=True)
        return content["tensors"] if content["checksum"] == _checksum(content["tensors"]) else None
    except Exception:  # a damaged file can contain anything instead of tensors
        return None


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 of all names, types, shapes and values."""
    checksum = 0
    for name, tensor in tensors.items():
        checksum = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), checksum)
        checksum = zlib.crc32(tensor.contiguous().numpy().data, checksum)
    return checksum
