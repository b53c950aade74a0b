"""The working directory as one file: the code, without stores, data, environments, caches and what git ignores."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from sweeper.spec import SpecError

LIMIT = 100 << 20
"""Bytes that Ray's job server takes."""
MARKS = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")
"""A folder that has one of these is an environment or a cache."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in a package, so that the same files make the same package and are sent once."""
NAMED = 3


def contents(folder: Path, left_out: Collection[Path] = ()) -> dict[str, int]:
    """Path below `folder` -> bytes, of what a job needs. Nothing hidden, and no folder that is a link, is among it.

    `left_out`: absolute folders.
    """
    found: dict[str, int] = {}
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = sorted(
            name for name in folders if _is_source(here / name) and (here / name).resolve() not in left_out
        )
        for name in sorted(files):
            path = here / name
            if not name.startswith(".") and not name.endswith(".pyc") and path.is_file():
                found[path.relative_to(folder).as_posix()] = path.stat().st_size
    ignored = _ignored(folder, found)
    return {path: size for path, size in found.items() if path not in ignored}


def check_size(folder: Path, files: Mapping[str, int]) -> None:
    """SpecError where Ray would not take it; names what is largest."""
    total = sum(files.values())
    if total <= LIMIT:
        return
    places = Counter[str]()
    for path, size in files.items():
        places[_place(PurePosixPath(path))] += size
    largest = ", ".join(f"{place} ({_mib(size)})" for place, size in places.most_common(NAMED))
    raise SpecError(
        f"the working directory must not exceed {_mib(LIMIT)}, but {folder} has {_mib(total)}, most of it in "
        f"{largest}; have git ignore what the job does not need, or give another --working-dir"
    )


def pack(folder: Path, files: Iterable[str], target: Path) -> None:
    """Write `files` of `folder` as a ZIP file. SpecError for one that cannot be read."""
    with ZipFile(target, "w") as archive:
        for path in files:
            try:
                info, data = (
                    ZipInfo.from_file(folder / path, path, strict_timestamps=False),
                    (folder / path).read_bytes(),
                )
            except OSError as error:
                raise SpecError(f"the job's code cannot be read: {folder / path}: {error.strerror}") from error
            info.date_time = EPOCH
            archive.writestr(info, data, ZIP_DEFLATED)


def _place(path: PurePosixPath) -> str:
    """The folder to name for a file, at most two deep, or the file where it is in none."""
    return "/".join(path.parts[:-1][:2]) + "/" if len(path.parts) > 1 else path.name


def _is_source(folder: Path) -> bool:
    name = folder.name
    return not (
        name.startswith(".")
        or name == "__pycache__"
        or name.endswith(".egg-info")
        or any((folder / mark).exists() for mark in MARKS)
        or any((folder / "trials").glob("sweep=*"))  # a store
    )


def _ignored(folder: Path, paths: Iterable[str]) -> set[str]:
    """Those that git ignores; none where there is no git or no repository."""
    try:
        answer = subprocess.run(
            ["git", "check-ignore", "-z", "--stdin"],
            cwd=folder,
            input="\0".join(paths).encode(errors="surrogateescape"),
            capture_output=True,
        )
    except OSError:
        return set()
    return set(answer.stdout.decode(errors="surrogateescape").split("\0"))


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
