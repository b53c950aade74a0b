"""Config dataclasses that check the declared bounds of their fields, keys that are added later, and docstrings of
fields.

    @checked
    class DenoiseConfig:
        sigma: Annotated[float, at_least(0)] = 0.3

Errors state the law, the offender and the choices in one line.
"""

import ast
import dataclasses
import difflib
import functools
import inspect
import math
import textwrap
import typing
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from trainables.synonyms import SYNONYMS, letters

T = TypeVar("T")

LARGEST_INTEGER = 2**63 - 1
"""The largest integer that a column of the store and a tensor can hold."""


@dataclass(frozen=True)
class Interval:
    """The range of a numeric field, as metadata of its type. Values must be finite unless `infinite`."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """Whether `low` is excluded."""
    below: bool = False
    """Whether `high` is excluded."""
    infinite: bool = False

    def law(self, name: str) -> str:
        """The law, such as `0 < share <= 0.5`. It is the same for 0 and 0.0, whose bounds `typing`
        takes for one: a field has whichever came first."""
        low, high = (int(bound) if float(bound).is_integer() else bound for bound in (self.low, self.high))
        if self.low == -math.inf:
            return f"{name} {'<' if self.below else '<='} {high}"
        if self.high == math.inf:
            return f"{name} {'>' if self.above else '>='} {low}"
        return f"{low} {'<' if self.above else '<='} {name} {'<' if self.below else '<='} {high}"

    def check(self, name: str, value: Any) -> None:
        """Raises ValueError unless `value` lies in the interval."""
        got = number(name, value)
        outside = not self.low <= got <= self.high
        if outside or (self.above and got == self.low) or (self.below and got == self.high):
            raise ValueError(f"`{self.law(name)}` must hold, but got {name}={value}")
        if math.isinf(got) and not self.infinite:
            raise ValueError(f"{name} must be finite, but got {name}={value}")


@dataclass(frozen=True)
class Choices:
    """The allowed values of a field, as metadata of its type."""

    options: tuple[object, ...]
    listing: str = ""
    """How to list all values, if there are many."""
    own: str = ""
    """Example name of user code that is also allowed (see `is_own`); empty if none is."""

    def law(self, name: str) -> str:
        listed = ", ".join(map(str, filter(None, self.options)))
        return f"one of {listed}{f', or your own {self.own}' if self.own else ''}" if listed else f"your own {self.own}"

    def check(self, name: str, value: Any) -> None:
        """Raises ValueError unless `value` is one of the options or, where allowed, the user's own."""
        if self.own and is_own(str(value)):
            return
        options = [*map(str, self.options)]
        if self.own and value not in options and options == [""]:
            raise ValueError(f"no {name} {value!r}; it must be your own, as {self.own}")
        if self.own and value not in options:
            raise ValueError(f"{unknown(name, value, options, self.listing)}; or your own, as {self.own}")
        choices(name, value if value is None else str(value), self.options, self.listing)


def at_least(low: float) -> Interval:
    """A bound of a field: `x >= low`."""
    return Interval(low)


def above(low: float, *, infinite: bool = False) -> Interval:
    """A bound of a field: `x > low`; `infinite` also allows infinity."""
    return Interval(low, above=True, infinite=infinite)


def at_most(high: float) -> Interval:
    """A bound of a field: `x <= high`."""
    return Interval(high=high)


def below(high: float) -> Interval:
    """A bound of a field: `x < high`."""
    return Interval(high=high, below=True)


def between(low: float, high: float, *, above: bool = False, below: bool = False) -> Interval:
    """A bound of a field: `low <= x <= high` (`low < x` with `above`, `x < high` with `below`)."""
    return Interval(low, high, above, below)


def one_of(*options: object, listing: str = "", own: str = "") -> Choices:
    """A bound of a field: one of these values. `listing` says how to list all values, if there are many; `own` is an
    example name of user code that is also allowed."""
    return Choices(options, listing, own)


SHIPPED = "torchvision:"
"""Prefix of names that contain a colon but are not the user's own."""


def is_own(name: str) -> bool:
    """Whether a value names code of the user's own, as `package.module:NAME`."""
    return ":" in name and not name.startswith(SHIPPED)


Bound = Interval | Choices


@dataclass_transform(frozen_default=True)
def checked(cls: type[T]) -> type[T]:
    """Turn a class into a frozen dataclass that checks its fields when it is built: the type of each `bool`, `int` and
    `float`, and the bounds in the type of each field, as in `Annotated[float, above(0), below(1)]`. None is legal if
    the type allows it. `__post_init__`, which runs afterwards, checks rules across fields."""
    relations = getattr(cls, "__post_init__", None)

    def __post_init__(self: Any) -> None:
        section: type = type(self)
        for name, field in _fields(section).items():
            field.check(name, getattr(self, name))
        if relations:
            relations(self)

    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    return dataclass(frozen=True)(cls)


def bounds(section: type) -> Mapping[str, tuple[Bound, ...]]:
    """Name of each field of a dataclass -> the bounds that its type declares."""
    return {name: field.bounds for name, field in _fields(section).items()}


@dataclass(frozen=True)
class _Field:
    """The checks of one field."""

    kind: Any
    optional: bool
    bounds: tuple[Bound, ...]

    def check(self, name: str, value: Any) -> None:
        if value is None and self.optional:
            return
        if self.kind is bool and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, but got {name}={value!r}")
        if self.kind is int:
            integer(name, value)
        if self.kind is float:
            number(name, value)
        for bound in self.bounds:
            bound.check(name, value)


@functools.cache
def _fields(section: type) -> Mapping[str, _Field]:
    hints = typing.get_type_hints(section, include_extras=True)
    fields = {}
    for field in dataclasses.fields(section):
        hint = hints[field.name]
        plain = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
        kinds = typing.get_args(plain) or (plain,)
        declared = tuple(each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Bound))
        kind = next((each for each in kinds if each is not type(None)), None)
        fields[field.name] = _Field(kind, type(None) in kinds, declared)
    return fields


def added(default: bool | int | float | str | None) -> Any:
    """Return the default of a key that is added to an existing section. With this default trials must behave as before,
    and their ids do not depend on the key, so they equal the ids of earlier trials. Example: `steps: int =
    added(0)`."""
    return dataclasses.field(default=default, metadata={"added": True})


@functools.cache
def added_keys(section: type) -> Mapping[str, Any]:
    """Return the keys of a section that were added later, with their defaults."""
    return {each.name: each.default for each in dataclasses.fields(section) if each.metadata.get("added")}


def field_docs(cls: type) -> Mapping[str, str]:
    """Map each field of a dataclass, including inherited fields, to the docstring beneath it, in one line; empty
    without one."""
    docs = {field.name: "" for field in dataclasses.fields(cls)}
    for owner in reversed(cls.__mro__):
        if dataclasses.is_dataclass(owner):
            docs |= _own_field_docs(owner)
    return docs


@functools.cache  # reading the source takes milliseconds, and methods share most classes
def _own_field_docs(cls: type) -> Mapping[str, str]:
    """The field docstrings in the body of a class, or their equivalent for a class built from a function."""
    if "key_docs" in vars(cls):
        return dict(vars(cls)["key_docs"])
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for statement, after in zip(definition.body, definition.body[1:], strict=False):
        match statement, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs


def number(name: str, value: object) -> float:
    """Return `value` as a float. Raises ValueError unless it is a number other than NaN. Booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{name} must be a number, but got {name}={value!r}")
    return float(value)


def integer(name: str, value: object) -> None:
    """Raises ValueError unless `value` is a whole number that a column of the store can hold."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, but got {name}={value!r}")
    if value > LARGEST_INTEGER:
        raise ValueError(f"`{name} <= {LARGEST_INTEGER}` must hold, but got {name}={value}")


def positive(name: str, value: float, *, infinite: bool = False) -> None:
    """Raises ValueError unless the argument `value` is above 0, and finite (unless `infinite`)."""
    above(0, infinite=infinite).check(name, value)


def whole(name: str, value: int, low: int) -> None:
    """Raises ValueError unless the argument `value` is a whole number of at least `low`."""
    integer(name, value)
    at_least(low).check(name, value)


def choices(name: str, value: object, allowed: Iterable[object], listing: str = "") -> None:
    """Raises ValueError with the message of `unknown` unless `value` is one of `allowed`."""
    options = [str(option) for option in allowed]
    if value not in options:
        raise ValueError(unknown(name, value, options, listing))


MANY = 12
"""Maximum number of options that a message lists if there is another way to list them."""


def unknown(noun: str, name: object, options: Collection[str], listing: str = "") -> str:
    """Return `no NOUN 'NAME' (did you mean 'NEAREST'?); there are: A, B, C`. With more than `MANY` options, `listing`,
    which says how to list them all, replaces the list."""
    hidden = listing and len(options) > MANY
    choices_text = listing if hidden else f"there are: {', '.join(options)}"
    return f"no {noun} {name!r}{nearest(str(name), options)}; {choices_text}"


def nearest(name: str, options: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the option that `name` is a synonym of or closest to; an empty string if none
    is close."""
    known = list(options)
    by_letters = {letters(option): option for option in reversed(known)}
    meant = by_letters.get(letters(name)) or by_letters.get(letters(SYNONYMS.get(letters(name), "")))
    matches = [meant] if meant else difflib.get_close_matches(name, known, n=1)
    return f" (did you mean '{matches[0]}'?)" if matches else ""
