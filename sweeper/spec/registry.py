"""The available sweeps, found by name: each is a module of `search_spaces`."""

import importlib
import pkgutil
import traceback
from pathlib import Path

from sweeper.errors import SpecError
from sweeper.spec.grid import unknown
from sweeper.spec.sweep import Sweep

MAX_REASON = 400
"""Maximum number of characters of the reason why a sweep's file cannot be read."""


def names() -> list[str]:
    """Return the sorted names of all sweeps: the modules of `search_spaces` that do not begin with `_`."""
    folder = importlib.import_module("search_spaces")
    return sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if module.name[0] != "_")


def find(name: str) -> Sweep:
    """Return the sweep of that name. Raises SpecError if there is none, or if its file cannot be imported."""
    if name not in names():
        raise SpecError(unknown("sweep", name, names()))
    try:
        module = importlib.import_module(f"search_spaces.{name}")
    except (Exception, SystemExit) as error:
        raise SpecError(f"sweep '{name}' cannot be read: {_reason(error)}") from error
    sweep = getattr(module, "SWEEP", None)
    if not isinstance(sweep, Sweep):
        raise SpecError(
            f"sweep '{name}' cannot be read: search_spaces/{name}.py must define SWEEP, a sweeper.spec.Sweep, but "
            + (f"defines SWEEP of type {type(sweep).__name__}" if hasattr(module, "SWEEP") else "defines none")
        )
    return sweep


def _reason(error: BaseException) -> str:
    """Return in one line where in `search_spaces` an import failed, and why."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno))
    folders = [Path(folder) for folder in importlib.import_module("search_spaces").__path__]
    inside = [(Path(file), line) for file, line in frames if Path(file).parent in folders]
    location = f"search_spaces/{inside[-1][0].name}, line {inside[-1][1]}: " if inside else ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    error_type = "" if isinstance(error, SpecError) else f"{type(error).__name__}: "
    return f"{location}{error_type}{' '.join(text.split())}"[:MAX_REASON]
