"""Pack the working directory into a ZIP file, without secrets, stores, data, environments, caches and files ignored by
git."""

import errno
import os
import re
import stat
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from sweeper.definition import SpecError, user_code

LIMIT = 100 << 20
"""Largest working directory, in bytes, that Ray's job server takes."""
MARKER_FILES = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")
"""Names of entries that mark a folder as an environment or a cache."""
MODIFIED = (1980, 1, 1, 0, 0, 0)
"""Modification time of every packed file. With one fixed time, equal files make equal packages, which are sent once."""
CODE_SUFFIXES, DOCUMENT_SUFFIXES = (".py", ".pyi"), (".md", ".rst")
_STAGES = ("local", "dev", "development", "test", "stage", "staging", "prod", "production", "live", "secret", "secrets")
_SETTINGS = ("", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".txt", ".csv")
SECRET_NAMES = (
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.ppk", "*.p12", "*.pfx", "*.jks"),
    *("*.keystore", "*.kdbx", "*.gpg", "*.env", "kubeconfig*", "*.kubeconfig", "auth_token", "*.token"),
    *("client_secret*.json", "service[-_]account*.json", "application_default_credentials*", "terraform.tfstate*"),
    *("htpasswd", "netrc", "_netrc", "npmrc", "pypirc", "pgpass", "*.tfvars", "rootkey*.csv", "*accesskeys*.csv"),
    *(f"{name}.{stage}" for name in ("env", "*.env") for stage in _STAGES),
    *(
        f"{name}{suffix}"
        for name in ("*credentials", "*secret", "*secrets", "*token", "*password", "*passwords", "*api*key")
        for suffix in _SETTINGS
    ),
)
"""Names of files that hold secrets, in small letters. Hidden ones, such as `.env` and `.netrc`, are never sent."""
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY|^PuTTY-User-Key-File-\d+: ", re.MULTILINE)
SECRET_JSON = re.compile(
    rb'"(private_key|client_secret|refresh_token|(aws_)?secret_access_key)"\s*:\s*"[^"]', re.IGNORECASE
)
"""What the JSON file of a service account has, or of a user's credentials."""
SECRET_SETTING = re.compile(
    rb"""^[ \t]*(export[ \t]+)?["']?[\w.-]*(secret_access_key|client_secret)["']?[ \t]*[=:][ \t]*"""
    rb"""["']?[\w/+=~-]+["']?,?[ \t]*([#;].*)?\r?$""",
    re.IGNORECASE | re.MULTILINE,
)
"""A line of settings, such as those of rclone, that has a key itself, unlike `${AWS_SECRET_ACCESS_KEY}`."""
TOKEN = re.compile(
    rb"\b(A[KS]IA[0-9A-Z]{16}(?<!EXAMPLE)|gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{60,}|glpat-[\w-]{20}|hf_[A-Za-z]{34}"
    rb"|xox[abprs]-[\w-]{20,}|sk-(proj-|ant-)?[A-Za-z0-9]{32,})(?![\w-])"
)
"""Keys and tokens of AWS, GitHub, GitLab, Hugging Face, Slack and OpenAI, whose beginning says what they are. The keys
of AWS's documentation end in EXAMPLE."""
_BEFORE_JSON = b"\xef\xbb\xbf\xff\xfe \t\r\n"
"""Bytes before the first bracket of a JSON file: marks of encodings and white space."""
_COPY = re.compile(
    r"(~|[ ._-]*[(](copy ?)?\d*[)]|[.]\d[\dtz:_-]*"
    r"|[ ._-]+(copy ?\d*|backup|bak|disabled|old|orig|save?|sw[a-p]|tmp)|[.]txt)$"
)
"""What the name of a copy ends in, such as `~`, `.bak`, ` (copy)`, ` - Copy`, `(1)`, `.2024-01-31` and a second suffix
`.txt`, in small letters."""
LARGEST_FOLDERS = 3
"""Number of the largest folders that an error names."""


@dataclass(frozen=True)
class PackageContents:
    """What is sent of a folder."""

    files: Mapping[str, int]
    """Path relative to the folder -> size in bytes."""
    secrets: Sequence[str] = ()
    """Files that are left out because their names or their contents are those of secrets."""


def contents(folder: Path, excluded: Collection[Path] = (), *, links_may_leave: bool = False) -> PackageContents:
    """Return which files of a folder a job needs.

    Hidden files and folders and the folders in `excluded` (absolute paths) are not among them, nor what only looks like
    a file: pipes, sockets and devices. A symbolic link is sent as what it leads to. Raises SpecError if that lies
    outside the folder, unless `links_may_leave`, or if a folder cannot be read.
    """
    root = Path(os.path.realpath(folder))
    targets = {path: Path(os.path.realpath(path)) for path in _sources(folder, excluded, root)}
    relative = {path: path.relative_to(folder).as_posix() for path in targets}
    inside = {path: target.relative_to(root) for path, target in targets.items() if target.is_relative_to(root)}
    asked = {path: inside[path].as_posix() if path in inside else relative[path] for path in targets}
    ignored = _ignored(folder, {*asked.values(), *(relative[path] for path in targets if path.is_symlink())})
    wanted = {
        path: target
        for path, target in targets.items()
        if not {asked[path], relative[path]} & ignored
        and not any(part.startswith(".") for part in (inside[path].parts if path in inside else ()))
    }
    for path, target in wanted.items():
        if path not in inside and not links_may_leave:
            raise SpecError(
                f"a symbolic link must not leave the folder that is sent, but {path} leads to {target}; replace it by "
                "a copy, or have git ignore it"
            )
    files = {path: target for path, target in wanted.items() if target.is_file()}
    secrets = [path for path, target in files.items() if any(map(is_secret, (path, target)))]
    return PackageContents(
        {relative[path]: target.stat().st_size for path, target in files.items() if path not in secrets},
        [relative[path] for path in secrets],
    )


def _sources(folder: Path, excluded: Collection[Path], root: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the files below a folder that are not hidden, and the links that lead out of `root`, in order.

    `above` are the real paths of the folders around it: a link to one of them is left out, as it has no end.
    """
    real = os.path.realpath(folder)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise SpecError(f"the job's code cannot be read: {folder}: {error.strerror}") from error
    for entry in entries:
        path, target = Path(entry.path), Path(os.path.realpath(entry.path))
        if path.is_dir():
            if not _is_source(path) or target in excluded or str(target) in (*above, real):
                continue
            if entry.is_symlink() and not target.is_relative_to(root):
                yield path
            else:
                yield from _sources(path, excluded, root, (*above, real))
        elif path.is_file() and not entry.name.startswith(".") and not entry.name.endswith(".pyc"):
            yield path


def is_secret(file: Path) -> bool:
    """Whether the name or the content of a file is that of a key, a password or a token. Python files are code, which
    has no such name and may mention what settings have; only a token itself is looked for in them."""
    is_code, name = file.suffix in CODE_SUFFIXES, _original(file.name)
    if not is_code and any(fnmatchcase(name, pattern) for pattern in SECRET_NAMES):
        return True
    try:
        content = _read(file, LIMIT + 1)  # a larger one is not sent
    except OSError:  # `pack` says so
        return False
    content = content.replace(b"\0", b"")  # of text in UTF-16
    if is_code or TOKEN.search(content):
        return TOKEN.search(content) is not None
    is_json = ".json" in name or content.lstrip(_BEFORE_JSON).startswith((b"{", b"["))
    patterns = {PRIVATE_KEY: True, SECRET_SETTING: not name.endswith(DOCUMENT_SUFFIXES), SECRET_JSON: is_json}
    return any(applies and pattern.search(content) for pattern, applies in patterns.items())


def _original(name: str) -> str:
    """The name in small letters of the file that one with this name is a copy of, perhaps of a copy."""
    name = name.lower().removeprefix("copy of ")
    while True:
        stem, dot, suffix = name.rpartition(".")
        shorter = _COPY.sub("", name) or name
        if shorter == name and dot and stem:
            shorter = f"{_COPY.sub('', stem) or stem}{dot}{suffix}"
        if shorter == name:
            return name
        name = shorter


def installed_code() -> tuple[Path, PackageContents]:
    """The folder of the packages that are imported, and their files relative to it."""
    folder = Path(__file__).resolve().parents[2]
    files = {
        f"{name}/{path}": size
        for name in user_code.PACKAGES
        for path, size in contents(folder / name, links_may_leave=True).files.items()  # installers may link them
    }
    return folder, PackageContents(files)


def user_files(modules: Iterable[str]) -> tuple[dict[str, Path], list[str]]:
    """Path at the top of the working directory -> file, for all files of the user's modules and packages; and the
    secrets among them, which are left out."""
    files: dict[str, Path] = {}
    secrets: list[str] = []
    for module in map(Path, modules):
        found = contents(module) if module.is_dir() else PackageContents({"": 0})
        files |= {str(PurePosixPath(module.name, name)): module / name for name in found.files}
        secrets += [str(PurePosixPath(module.name, name)) for name in found.secrets]
    return files, secrets


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
                info.date_time = MODIFIED
                archive.writestr(info, _read(source), ZIP_DEFLATED)
            except OSError as error:
                raise SpecError(f"the job's code cannot be read: {source}: {error.strerror}") from error
            except UnicodeEncodeError as error:
                raise SpecError(f"a file that is sent must have a name in UTF-8, but got {str(source)!r}") from error


def _read(file: Path, size: int = -1) -> bytes:
    """Return the first `size` bytes of a file, or all. Raises OSError at once if it is a pipe or a device by now."""
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return stream.read(size)


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
