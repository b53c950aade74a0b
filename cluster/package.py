"""Pack the working directory into a ZIP file, without stores, data, environments, caches and files ignored by git."""

import os
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from sweeper.spec import SpecError, user_code

LIMIT = 100 << 20
"""Largest working directory, in bytes, that Ray's job server takes."""
MARKER_FILES = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")
"""Names of entries that mark a folder as an environment or a cache."""
MODIFIED = (1980, 1, 1, 0, 0, 0)
"""Modification time of every packed file. With one fixed time, equal files make equal packages, which are sent once."""
LARGEST_FOLDERS = 3
"""Number of the largest folders that an error names."""


def contents(folder: Path, excluded: Collection[Path] = ()) -> dict[str, int]:
    """Files that a job needs: path relative to `folder` -> size in bytes.

    Hidden files and folders, linked folders and the folders in `excluded` (absolute paths) are not among them.
    """
    sizes: dict[str, int] = {}
    for root, folders, files in os.walk(folder):
        parent = Path(root)
        folders[:] = sorted(
            name for name in folders if _is_source(parent / name) and (parent / name).resolve() not in excluded
        )
        for name in sorted(files):
            path = parent / name
            if not name.startswith(".") and not name.endswith(".pyc") and path.is_file():
                sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    ignored = _ignored(folder, sizes)
    return {path: size for path, size in sizes.items() if path not in ignored}


def installed_code() -> tuple[Path, dict[str, int]]:
    """The folder of the packages that are imported, and their files: path relative to it -> size in bytes."""
    folder = Path(__file__).resolve().parents[1]
    files = {f"{name}/{path}": size for name in user_code.PACKAGES for path, size in contents(folder / name).items()}
    return folder, files


def user_files(modules: Iterable[str]) -> dict[str, Path]:
    """Path at the top of the working directory -> file, for all files of the user's modules and packages."""
    files: dict[str, Path] = {}
    for module in map(Path, modules):
        names = contents(module) if module.is_dir() else [""]
        files |= {str(PurePosixPath(module.name, name)): module / name for name in names}
    return files


def check_size(folder: Path, files: Mapping[str, int], others: Mapping[str, Path] = MappingProxyType({})) -> None:
    """Raise SpecError, naming the largest folders, if the files, of these sizes, and the `others` are larger than
    `LIMIT` together."""
    files = {**files, **{path: source.stat().st_size for path, source in others.items()}}
    total = sum(files.values())
    if total <= LIMIT:
        return
    folder_sizes = Counter[str]()
    for path, size in files.items():
        folder_sizes[_folder_of(PurePosixPath(path))] += size
    largest = ", ".join(f"{name} ({_mib(size)})" for name, size in folder_sizes.most_common(LARGEST_FOLDERS))
    raise SpecError(
        f"the working directory must not exceed {_mib(LIMIT)}, but {folder} has {_mib(total)}, most of it in "
        f"{largest}; have git ignore what the job does not need, or give another --working-dir"
    )


def pack(folder: Path, files: Iterable[str], target: Path, others: Mapping[str, Path] = MappingProxyType({})) -> None:
    """Write `files` of `folder`, and `others` under their names, to the ZIP file `target`. Raises SpecError if a file
    cannot be read."""
    with ZipFile(target, "w") as archive:
        for path, source in ({path: folder / path for path in files} | dict(others)).items():
            try:
                info = ZipInfo.from_file(source, path, strict_timestamps=False)
                data = source.read_bytes()
            except OSError as error:
                raise SpecError(f"the job's code cannot be read: {source}: {error.strerror}") from error
            info.date_time = MODIFIED
            archive.writestr(info, data, ZIP_DEFLATED)


def _folder_of(path: PurePosixPath) -> str:
    """Folder of a file, cut to two levels, such as `runs/old/`; the file itself if it is in no folder."""
    return "/".join(path.parts[:-1][:2]) + "/" if len(path.parts) > 1 else path.name


def _is_source(folder: Path) -> bool:
    """Whether a folder may hold code: not hidden, and no cache, environment or store."""
    name = folder.name
    return not (
        name.startswith(".")
        or name == "__pycache__"
        or name.endswith(".egg-info")
        or any((folder / mark).exists() for mark in MARKER_FILES)
        or any((folder / "trials").glob("sweep=*"))  # a store
    )


def _ignored(folder: Path, paths: Iterable[str]) -> set[str]:
    """Those of `paths` that git ignores; empty without git, outside a repository, or if the folder itself is ignored,
    as an environment in a repository is."""
    try:
        result = subprocess.run(
            ["git", "check-ignore", "-z", "--stdin"],
            cwd=folder,
            input="\0".join([*paths, "."]).encode(errors="surrogateescape"),
            capture_output=True,
        )
    except OSError:
        return set()
    ignored = set(result.stdout.decode(errors="surrogateescape").split("\0"))
    return set() if "." in ignored else ignored


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
