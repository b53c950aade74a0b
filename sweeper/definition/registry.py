"""The available sweeps: by name, each a module of `search_spaces`, or a user's own, by a file or a module."""

import functools
import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Literal

from sweeper.definition.function_sweep import FunctionSweep, name_of_command, sweep_of_function
from sweeper.definition.paper import Paper
from sweeper.definition.space import parts_of
from sweeper.definition.sweep import Sweep
from sweeper.definition.user_code import search_folder
from sweeper.errors import SpecError
from sweeper.names import LAW, is_name
from trainables.functions.command import Command
from trainables.validation import MANY, unknown

MAX_REASON = 400
"""Maximum number of characters of the reason why a sweep's file cannot be read."""
ATTRIBUTE = "SWEEP"
"""Name of the value that defines a sweep."""


_references: dict[str, str] = {}
"""Name of a sweep of the user's own in a store -> the reference by which this process found it last."""
_folder_of: dict[str, str] = {}
"""The same name -> the folder of the file that defines it, else the working directory then."""


def names() -> list[str]:
    """Return the sorted names of all sweeps: the modules of `search_spaces` that do not begin with `_`."""
    return sorted(module.name for module in pkgutil.iter_modules(map(str, _folders())) if module.name[0] != "_")


def papers() -> Mapping[str, Paper]:
    """Return name in commands -> paper, of those that the sweeps that ship repeat."""
    found: Mapping[str, Paper] = importlib.import_module("search_spaces._papers").PAPERS
    return found


def find(reference: str) -> Sweep:
    """Return a sweep, with its name in the store. `reference` and errors: see `definition`."""
    return definition(reference)[0]


def folder_of(name: str) -> str:
    """Return the folder of the file that defines a sweep, by its name; the working directory without a file."""
    return _folder_of.get(name, os.getcwd())


def find_command(line: str, metrics_from: Literal["report", "stdout"] = "report") -> FunctionSweep:
    """Return the sweep of a command. Raises SpecError for one without keys."""
    name = name_of_command(line)
    check_own_name(name, f"the command is named '{name}'; write a sweep's file")
    _references[name], _folder_of[name] = line, os.getcwd()
    try:
        return sweep_of_function(str(Command(line, metrics_from)), line, name)
    except ValueError as error:
        raise SpecError(str(error)) from None


def as_named(name: str) -> str:
    """Return where this process has a sweep from: the file or the module that defines it, or its name in a store."""
    return _references.get(name, name)


def is_command_line(reference: str) -> bool:
    """Return whether a reference is meant as the line of a command: it has a brace, which no other name has."""
    return "{" in reference


def is_plain_name(reference: str) -> bool:
    """Return whether a reference is a name, and neither a file nor a module with the name of a value."""
    return not (reference.endswith(".py") or os.sep in reference or ":" in reference or is_command_line(reference))


def is_findable(reference: str) -> bool:
    """Return whether a command finds a definition by what was typed: not by a name that only the store knows."""
    return reference in names() or not is_plain_name(reference)


def name_in_store(reference: str) -> str:
    """Return the name that a sweep has in a store: what was typed, or that of the sweep which a file or a module
    defines. Raises SpecError for what is no name, and as `definition`."""
    if not is_plain_name(reference):
        return find(reference).name
    if not is_name(reference):
        raise SpecError(f"the name of a sweep {LAW}, but got {reference!r}")
    return reference


def definition(reference: str) -> tuple[Sweep, ModuleType]:
    """Return a sweep, with its name in the store, and the module that defines it.

    `reference` is the name of a module of `search_spaces`, a file (`path/to/my_sweep.py`) or a module
    (`package.module`). A file or module can be followed by `:ATTRIBUTE`, the name of the value; by default `SWEEP`.
    Modules are found from the working directory. The folder of a file becomes one that modules are imported from.
    A value can be a function, and a line with keys in braces is a command: their sweep is made here. Raises SpecError,
    with one line, if there is no such sweep, or if its file cannot be imported.
    """
    if is_command_line(reference):
        return find_command(reference), sys.modules[__name__]
    path, _, attribute = reference.partition(":")
    if attribute not in ("", ATTRIBUTE) and path in names():
        raise SpecError(
            f"a sweep that ships has one value, {ATTRIBUTE}, but got {reference!r}; its presets are named by --preset"
        )
    file = Path(path).expanduser()
    if path.endswith(".py") or os.sep in path or ("." in path and os.path.isfile(path)):
        if file.resolve().parent in _folders() and not attribute:
            return definition(file.stem)
        return _named(_of_file(file, reference), reference, attribute, file.stem)
    if "." in path or ":" in reference:
        return _named(_of_module(path, reference), reference, attribute, path.rpartition(".")[2])
    if reference not in names():
        own = f"; to run the file {reference}.py, write {reference}.py" if os.path.isfile(f"{reference}.py") else ""
        law = _part_of_sweeps(reference) or unknown("sweep", reference, names(), "--list shows all")
        raise SpecError(f"{law}{own}")
    return _shipped(reference)


def _part_of_sweeps(name: str) -> str:
    """Return which sweeps that ship have the preset, the method or the data set of this name; empty if none."""
    nouns = {"method": "method", "preset": "preset", "dataset": "data set"}
    for key, noun in nouns.items():
        if found := [sweep for sweep in names() if name in _values(sweep, key)]:
            listed = ", ".join(found[:MANY]) + (f" and {len(found) - MANY} more" if len(found) > MANY else "")
            how = f"--preset {name}" if key == "preset" else f"--axis {key}={name}"
            return f"'{name}' is a {noun}, not a sweep; sweeps with it, which {how} selects, are: {listed}"
    return ""


def _values(sweep: str, key: str) -> Collection[object]:
    """The values of a key in the first preset of a sweep that ships, or the names of all; none if it cannot be read."""
    try:
        presets = _shipped(sweep)[0].presets
    except SpecError:
        return ()
    if key == "preset":
        return presets
    return {value for part in parts_of(next(iter(presets.values()))) for value in part.values(key)}


@functools.cache  # a process that describes or plans several requests builds a sweep once
def _shipped(name: str) -> tuple[Sweep, ModuleType]:
    module = _imported(lambda: importlib.import_module(f"search_spaces.{name}"), name, _folders())
    return replace(_sweep(module, name, f"search_spaces/{name}.py", ATTRIBUTE), name=name), module


def check_own_name(name: str, got: str) -> None:
    """Raise SpecError if a sweep that ships has the name of one of the user's. `got`: what the user did, and should."""
    if name in names():
        raise SpecError(f"the name of a sweep of your own must not be that of one that ships, but {got}")


def _of_file(file: Path, reference: str) -> ModuleType:
    """Execute a file as the module of its name, as it is now."""
    if not os.path.isfile(file):  # unlike `Path.is_file`, it raises no error for a name that is too long
        what = "is a folder" if os.path.isdir(file) else "does not exist"
        raise SpecError(f"sweep '{reference}' cannot be read: {file} {what}; a sweep of your own is a Python file")
    if file.suffix != ".py":
        raise SpecError(f"sweep '{reference}' cannot be read: the name of a Python file must end with .py")
    path, name = file.resolve(), file.stem
    other = sys.modules.get(name)
    if name in sys.stdlib_module_names or (other and getattr(other, "__file__", None) != str(path)):
        raise SpecError(f"sweep '{reference}' cannot be read: there is another module '{name}'; rename {file.name}")
    search_folder(path.parent)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[name] = module

    def execute() -> ModuleType:
        loader.exec_module(module)
        return module

    try:
        return _imported(execute, reference, [path.parent])
    except SpecError:
        del sys.modules[name]
        raise


def _of_module(name: str, reference: str) -> ModuleType:
    search_folder(Path.cwd())
    if not all(part.isidentifier() for part in name.split(".")):
        raise SpecError(
            f"no sweep '{reference}'; it must be a name (--list shows all), a file (path/to/my_sweep.py) or a module "
            "(package.module:SWEEP)"
        )
    try:
        return _imported(lambda: importlib.import_module(name), reference, [Path.cwd().resolve()])
    except SpecError as error:
        parent, _, last = name.rpartition(".")
        if callable(getattr(sys.modules.get(parent), last, None)):
            raise SpecError(f"{error}; for the function write {parent}:{last}") from error
        raise


def _imported(load: Callable[[], ModuleType], reference: str, folders: Collection[Path]) -> ModuleType:
    """Return the module that `load` imports. `folders` are those whose files an error names."""
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise SpecError(f"sweep '{reference}' cannot be read: {_reason(error, folders)}") from error


def _named(module: ModuleType, reference: str, attribute: str, default: str) -> tuple[Sweep, ModuleType]:
    """Return the user's sweep that a module defines, and the module. Its name is `default` if it has none itself."""
    attribute = attribute or ATTRIBUTE
    sweep = _sweep(module, reference, Path(module.__file__ or module.__name__).name, attribute)
    name = sweep.name or (default if attribute == ATTRIBUTE else f"{default}.{attribute}")
    check_own_name(name, f"'{reference}' is named '{name}'; write Sweep(name=...) or rename the file")
    file = Path(module.__file__ or "")
    in_folder = reference.partition(":")[0].endswith(".py")
    _references[name], _folder_of[name] = reference, str(file.resolve().parent) if in_folder else os.getcwd()
    return replace(sweep, name=name), module


def _sweep(module: ModuleType, reference: str, file: str, attribute: str) -> Sweep:
    sweep = getattr(module, attribute, None)
    if isinstance(sweep, Sweep):
        return sweep
    if callable(sweep) and not isinstance(sweep, type):
        method = f"{module.__name__}:{attribute}"
        return sweep_of_function(method, sweep, f"{module.__name__.rpartition('.')[2]}.{attribute}")
    raise SpecError(
        f"sweep '{reference}' cannot be read: {file} must define {attribute}, a sweeper.Sweep, but "
        + (f"defines {attribute} of type {type(sweep).__name__}" if hasattr(module, attribute) else "defines none")
    )


def _folders() -> list[Path]:
    """The folders of the sweeps that ship."""
    return [Path(folder) for folder in importlib.import_module("search_spaces").__path__]


def _reason(error: BaseException, folders: Collection[Path]) -> str:
    """Return in one line where in `folders` an import failed, and why."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno))
    inside = [
        (Path(file), line)
        for file, line in frames
        if set(Path(file).parents) & set(folders) and "site-packages" not in Path(file).parts
    ]
    location = ""
    if inside:
        file, line = inside[-1]
        location = f"{'search_spaces/' if file.parent in _folders() else ''}{file.name}, line {line}: "
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    error_type = "" if isinstance(error, SpecError) else f"{type(error).__name__}: "
    return f"{location}{error_type}{' '.join(text.split())}"[:MAX_REASON]
