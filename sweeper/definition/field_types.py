"""The types of what a sweep's file writes, checked where it is written."""

import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin

from sweeper.errors import SpecError

WORDS: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    types.NoneType: "None",
}
"""Type -> what a reader calls it. A class of a definition has its own name."""
NUMBERS: Mapping[object, type] = {int: Integral, float: Real}
"""Type -> all that counts as one, such as numbers of NumPy. True and false do not."""
IMPORTED_LATER = {"BaseDistribution": Any, "Claim": Any}
"""Classes that the definitions name and do not import. The fields that hold them check them."""


def check_types(definition: Any, apart: Collection[str] = ()) -> None:
    """Raise SpecError for a field of a frozen dataclass whose value is not of the field's type. A list in place of a
    tuple becomes one. The fields `apart` convert and check their values themselves."""
    kind: Any = type(definition)
    for name, hint in _hints(kind).items():
        if name in apart:
            continue
        value = getattr(definition, name)
        if get_origin(hint) is tuple and isinstance(value, list):
            value = tuple(value)
            object.__setattr__(definition, name, value)
        if not _is_a(value, hint):
            single = get_origin(hint) is tuple and _is_a(value, get_args(hint)[0])
            raise _refusal(definition, name, _words(hint), "; put it into a tuple: (..., )" if single else "")


def check_mapping(definition: Any, *names: str) -> None:
    """Raise SpecError for a field that is no mapping."""
    for name in names:
        if not isinstance(getattr(definition, name), Mapping):
            raise _refusal(definition, name, "a mapping")


def _refusal(definition: Any, name: str, wanted: str, remedy: str = "") -> SpecError:
    kind, value = type(definition).__name__, getattr(definition, name)
    return SpecError(f"`{kind}.{name}` must be {wanted}, but got {_words(type(value))}: {value!r:.60}{remedy}")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Name of each field -> its type."""
    hints = typing.get_type_hints(kind, localns=IMPORTED_LATER)
    return {field.name: hints[field.name] for field in fields(kind)}


def _is_a(value: object, hint: Any) -> bool:
    """Whether the value is of the type. A whole number is a number; true and false are none. Two things are not
    checked here but where they are used: which choice of a Literal it is, and what a mapping in a mapping has."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any or origin is Literal:
        return True
    if origin in (Union, types.UnionType):
        return any(_is_a(value, part) for part in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if parts[-1] is Ellipsis:
            return all(_is_a(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(_is_a, value, parts))
    if _is_mapping(hint) and parts:
        inner = Mapping if _is_mapping(parts[1]) else parts[1]
        return isinstance(value, Mapping) and all(
            _is_a(key, parts[0]) and _is_a(item, inner) for key, item in value.items()
        )
    if hint in NUMBERS:
        return isinstance(value, NUMBERS[hint]) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _is_mapping(hint: Any) -> bool:
    return get_origin(hint) is not None and issubclass(get_origin(hint), Mapping)


def _words(hint: Any) -> str:
    """The type in words: `a tuple of Metric`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_words, parts)))
    if origin is tuple and parts[-1] is Ellipsis:
        return f"a tuple of {_words(parts[0]).removeprefix('a ')}"
    if origin is tuple:
        return f"({', '.join(_words(part).removeprefix('a ') for part in parts)})"
    if _is_mapping(hint) and parts:
        inner = "mappings" if _is_mapping(parts[1]) else _words(parts[1]).removeprefix("a ")
        return f"a mapping of {_words(parts[0]).removeprefix('a ')} to {inner}"
    return "a value" if hint is Any else WORDS.get(hint, f"a {hint.__name__}")
