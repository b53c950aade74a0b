"""The code that this process has loaded, and the environment that it runs in: what compiled code depends on."""

import hashlib
import importlib.util
import os
import platform
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import torch

INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Folders of the standard library and of installed packages, whose versions are in `environment`."""
OWN = __name__.partition(".")[0]


def loaded_code() -> dict[str, str]:
    """Name -> hash of each loaded module of this project, and of those that were not installed, such as the user's.
    The module that was run as a program counts under its own name."""
    run = getattr(sys.modules["__main__"], "__spec__", None)
    names = {*sys.modules, *([run.name] if run else [])}
    paths = {name: _path(name) for name in sorted(names) if not name.endswith("main__")}
    return {name: file_hash(path) for name, path in paths.items() if path and _is_own(name, path)}


def is_unchanged(code: Mapping[str, str]) -> bool:
    """Whether each module, as this process has it or would import it, has this hash."""
    return all((path := _path(name)) and file_hash(path) == digest for name, digest in code.items())


def file_hash(path: str) -> str:
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()


def environment() -> list[str]:
    """PyTorch, Python, all installed packages with their versions, and the instructions of this processor."""
    folders = filter(os.path.isdir, sorted(set(INSTALLED[2:])))
    packages = [name for folder in folders for name in os.listdir(folder) if name.endswith("-info")]
    return [str(torch.__version__), sys.version, platform.machine(), *sorted(packages), *_processor()]


def _path(name: str) -> str | None:
    """The file of a module; None if it has none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec and spec.has_location else None


def _is_own(name: str, path: str) -> bool:
    return name.partition(".")[0] == OWN or not path.startswith(INSTALLED)


def _processor() -> list[str]:
    """Model and instructions of the CPU; code is compiled for these."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return [platform.processor()]
    return [
        next((line for line in lines if line.startswith(start)), "") for start in ("model name", "flags", "Features")
    ]
