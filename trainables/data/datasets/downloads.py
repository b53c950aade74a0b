"""Download published files once, even if several processes need them, and verify their checksums."""

import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path

from trainables.data.errors import DataError


def ensure_downloaded(
    name: str,
    root: Path,
    files: Sequence[tuple[Path, str]],
    archive: tuple[str, str],
    url: str,
    fetch: Callable[[Path], object],
) -> None:
    """Make sure that the `files` (path below `root`, MD5) of the data set `name` exist and are intact.

    If none of them exists, `fetch(folder)` downloads them into a temporary folder. If `root` holds the `archive` (name,
    MD5), `fetch` finds it in that folder and needs no download. Then the files are renamed into place under a lock, so
    that no process sees a half-written data set. Existing files are never overwritten.

    Raises DataError if the download fails, with the `url` to get the archive from, or if a file is missing or corrupt.
    """
    from filelock import FileLock

    if not any((root / path).exists() for path, _ in files):
        try:
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f".{name}.lock"):
                if not any((root / path).exists() for path, _ in files):
                    _download(root, {path.parts[0] for path, _ in files}, archive, fetch)
        except (OSError, RuntimeError, HTTPException) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DataError(
                f"{name} is absent from {root} and its download failed ({reason}); put {archive[0]} there, from {url}"
            ) from error
    for path, md5 in files:
        verify_checksum(name, root / path, md5, root / path.parts[0])


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
