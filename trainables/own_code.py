"""The user's own methods, data sets, encoders and views, named as `package.module:NAME`.

A name may come from data: a row or a model's file. Therefore `import_own`, which executes a module, is called only with
names that the user gives. All other code looks up what was imported before, with `imported_own`.
"""

import contextlib
import importlib
import importlib.util
import io
import pdb
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainables.validation import is_own

KINDS: Mapping[str, str] = {"dataset": "data set", "encoder": "encoder", "augmentation": "views"}
"""Keys other than `method` whose values may name the user's own code -> what that code is."""

_imported: dict[str, Any] = {}


class NotImportedError(ValueError):
    """A name `package.module:NAME` that was not given to `import_own`."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"the {kind} {name!r:.80} neither ships nor is installed; trainables.own_code.import_own imports it, which "
            "runs its code"
        )
        self.kind, self.name = kind, name


def import_own(kind: str, name: str) -> Any:
    """Import the object named `package.module:NAME` and make it known to `imported_own`. `kind` describes it in errors.

    This executes a module, so the name must come from the user (a sweep file, an option or an argument), never from
    data. Raises ValueError, with one line, if it cannot be imported.
    """
    if name not in _imported:
        module, _, attribute = name.partition(":")
        try:
            value: Any = importlib.import_module(module)
            for part in attribute.split("."):
                value = getattr(value, part)
        except Exception as error:
            raise ValueError(f"the {kind} {name} cannot be imported: {reason(error, module)}") from error
        _imported[name] = value
    return _imported[name]


def imported_own(kind: str, name: str) -> Any:
    """The object that `import_own` imported by this name. Raises NotImportedError if it was not imported."""
    if name not in _imported:
        raise NotImportedError(kind, name)
    return _imported[name]


def import_named(values: Mapping[str, Any]) -> None:
    """Import the user's own data set, encoder and views that a trial's values name. Never call it with values from a
    store. Raises as `import_own`."""
    for key, kind in KINDS.items():
        if is_own(name := str(values.get(key, ""))):
            import_own(kind, name)


@contextlib.contextmanager
def trial_call() -> Iterator[None]:
    """Context manager and decorator for trial runs of the user's code: breakpoints are ignored, and its printed output
    appears on standard error only if it fails."""
    debugger: Any = next(each for each in pdb.Pdb.__mro__ if "set_trace" in vars(each))  # Bdb before Python 3.14
    printed, hook, set_trace = io.StringIO(), sys.breakpointhook, debugger.set_trace
    sys.breakpointhook = debugger.set_trace = lambda *_, **__: None
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except Exception:
        print(printed.getvalue(), end="", file=sys.stderr)
        raise
    finally:
        sys.breakpointhook, debugger.set_trace = hook, set_trace


def reason(error: BaseException, module: str) -> str:
    """One line on an exception: where it was raised in the files of the package of `module`, its type, and its text."""
    package = importlib.util.find_spec(module.partition(".")[0]) if module.partition(".")[0].isidentifier() else None
    origins = [*(package.submodule_search_locations or ()), package.origin] if package else []
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(origin and Path(origin) in (Path(frame.filename), *Path(frame.filename).parents) for origin in origins)
    ]
    where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""
    text = " ".join(str(error).split())
    return (f"{where}{type(error).__name__}" + (f": {text}" if text else ""))[:400]
