"""Methods of the user: imported by `package.module:Class` or by an entry point, and refused if their class breaks the
contract. What they compute is checked by `trainables.training.checks.method_check`."""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import traceback
import typing
from collections.abc import Collection, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from trainables.contract import Capability, ImageMethod, Method, PairsMethod

GROUP = "sweeper.methods"
"""Entry point group of installed methods."""
TYPES = (bool, int, float, str)
"""Types that a hyperparameter can have, each also with None."""


class ContractError(ValueError):
    """A method breaks the contract (`trainables.contract`). The message states the law and the offender."""

    def __init__(self, name: str, law: str, got: str, choices: Collection[object] = ()) -> None:
        there_are = f"; there are: {', '.join(map(str, choices))}" if choices else ""
        super().__init__(f"the method {name} breaks the contract of methods: {law}, but got {got}{there_are}")


@functools.cache
def installed_methods() -> Mapping[str, EntryPoint]:
    """Entry points of installed packages in the group `sweeper.methods`, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load_method(name: str) -> type[Method]:
    """The class that `package.module:Class` or an entry point names. Raises ValueError, with one line, if it cannot be
    imported or is not a method."""
    point = installed_methods().get(name)
    module, _, attribute = (point.value if point else name).partition(":")
    try:
        cls: Any = importlib.import_module(module)
        for part in attribute.split("."):
            cls = getattr(cls, part)
    except Exception as error:
        raise ValueError(f"the method {name} cannot be imported: {reason(error, module)}") from error
    check_class(name, cls)
    method: type[Method] = cls
    return method


def check_class(name: str, cls: Any) -> None:
    """Raise ContractError if a class lacks what a method declares (see `trainables.contract`)."""
    if not (inspect.isclass(cls) and issubclass(cls, Method)):
        kind = f"the class {cls.__name__}" if inspect.isclass(cls) else f"a value of type {type(cls).__name__}"
        raise ContractError(name, "it must be a subclass of trainables.contract.ImageMethod (or Method)", kind)
    if cls.task == "images" and not issubclass(cls, ImageMethod):
        raise ContractError(
            name, "a method of the task images must be a subclass of ImageMethod", "one of Method alone"
        )
    _check_config(name, getattr(cls, "Config", None))
    fields = {field.name: field.default for field in dataclasses.fields(cls.Config)}
    for key in sorted(cls.fusible):
        if key not in fields:
            raise ContractError(name, "every name in fusible must be a field of Config", repr(key), fields)
        if isinstance(fields[key], bool) or not isinstance(fields[key], int | float):
            raise ContractError(name, "a fusible hyperparameter must be a number", f"{key}={fields[key]!r}")
    known = typing.get_args(Capability)
    for capability in sorted(cls.capabilities):
        if capability not in known:
            raise ContractError(name, "a capability must be one of those that exist", repr(capability), known)
        undefined = (None, *(getattr(base, capability, None) for base in (ImageMethod, PairsMethod)))
        inherits = getattr(cls, capability, None) in undefined
        if inherits and capability != "embed":
            raise ContractError(name, f"a method with the capability {capability!r} must define it", "none")
    if issubclass(cls, ImageMethod) and bool(cls.scores) != ("score" in cls.capabilities):
        law = "scores must name what score() returns, and be empty without that capability"
        raise ContractError(name, law, f"scores={cls.scores!r}")


def _check_config(name: str, config: object) -> None:
    """Raise ContractError unless `config` is a frozen dataclass of plain hyperparameters with defaults."""
    if not (inspect.isclass(config) and dataclasses.is_dataclass(config)):
        raise ContractError(name, "Config must be a frozen dataclass of its hyperparameters", f"Config={config!r}")
    if not vars(config)["__dataclass_params__"].frozen:
        raise ContractError(name, "Config must be frozen: write @dataclass(frozen=True)", "@dataclass")
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        kinds = set(typing.get_args(hints[field.name]) or (hints[field.name],)) - {type(None)}
        if len(kinds) != 1 or not kinds <= set(TYPES):
            law = "a hyperparameter must be a bool, int, float or str"
            raise ContractError(name, law, f"{field.name} of type {field.type}")
        if field.default is dataclasses.MISSING:
            raise ContractError(name, "every field of Config must have a default", f"{field.name} without one")


def reason(error: BaseException, module: str) -> str:
    """One line: where in the files of the package of `module` an exception was raised, its type, and its text."""
    package = importlib.util.find_spec(module.partition(".")[0]) if module.partition(".")[0].isidentifier() else None
    origins = [*(package.submodule_search_locations or ()), package.origin] if package else []
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(origin and Path(origin) in (Path(frame.filename), *Path(frame.filename).parents) for origin in origins)
    ]
    where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""
    return f"{where}{type(error).__name__}: {' '.join(str(error).split())}"[:400]
