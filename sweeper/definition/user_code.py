"""The user's own modules, which define sweeps and methods: where they are imported from, and what a cluster is sent."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trainables.own_code import KINDS
from trainables.validation import is_own

if TYPE_CHECKING:
    from sweeper.definition.sweep import Sweep

from sweeper.errors import SpecError

PACKAGES = ("sweeper", "trainables", "search_spaces")
"""The packages of this project, which a wheel has and a job is sent."""

CODE_KEYS = ("method", *KINDS)
"""Keys whose values may name code of the user's own."""
LIBRARIES = (
    *("PIL", "filelock", "matplotlib", "mlflow", "msgspec", "numpy", "optuna", "pandas", "psutil", "pyarrow", "ray"),
    *("requests", "rich", "safetensors", "scipy", "sklearn", "tabulate", "tenacity", "tensorboardX", "threadpoolctl"),
    *("torch", "torchmetrics", "torchvision", "vl_convert", "wandb", "yaml"),
)
"""Installed packages that this project imports."""

_folders: list[str] = []


def own_code(sweep: Sweep) -> frozenset[str]:
    """Return the code of the user's own that the presets of a sweep name."""
    parts = [part for preset in sweep.presets for part in sweep.parts(preset)]
    values = (str(value) for part in parts for key in CODE_KEYS for value in part.values(key))
    return frozenset(filter(is_own, values))


def search_folder(folder: Path) -> None:
    """Import modules from this folder, too, before all others, as Python does for the folder of a script. Raises
    SpecError for a folder in which a module has the name of an installed package, which could not be imported then."""
    is_of_packages = {"site-packages", "dist-packages"} & {*folder.resolve().parts}
    for name in () if is_of_packages else LIBRARIES:
        if hiding := next((each for each in (f"{name}.py", f"{name}/__init__.py") if (folder / each).is_file()), None):
            raise SpecError(
                f"a module in a sweep's folder must not have the name of an installed package, but {folder / hiding} "
                f"hides {name}; rename it"
            )
    for name in ("trainables", "search_spaces"):  # first, so that a folder with the same names cannot replace them
        importlib.import_module(name)
    path = str(folder.resolve())
    if path not in _folders:
        _folders.insert(0, path)
    if path not in sys.path:
        sys.path.insert(0, path)
        importlib.invalidate_caches()


def folders() -> tuple[str, ...]:
    """Absolute paths of the folders that modules are imported from, the latest first."""
    return tuple(_folders)


def modules() -> tuple[str, ...]:
    """Absolute paths of the files and packages that have been imported from `folders`, sorted.

    Each is a whole package or a single file at the top level of a folder, so that a package is never sent in part.
    """
    imported = sys.modules.copy().items()  # a copy: another thread may be importing
    top = (module for name, module in imported if "." not in name and name not in (*PACKAGES, "tests", "__main__"))
    origins = filter(None, map(_origin, top))
    return tuple(sorted({str(origin) for origin in origins if str(origin.parent) in _folders}))


def _origin(module: ModuleType) -> Path | None:
    """The file of a module, or the folder of a package; None if it is built in."""
    if paths := list(getattr(module, "__path__", ())):
        return Path(paths[0])
    file = getattr(module, "__file__", None)
    return Path(file) if file and file.endswith(".py") else None
