"""The one reader of JSON that somebody else may have written: limits before it is parsed, then values of known types.

`read_json(kind, data)` returns a `kind`: a dataclass, `list[str]`, `Mapping[str, int]`, and so on. Everything else is a
JsonError, a line that says where the data differ from it. Nothing is executed, and time and memory are bounded.
"""

import functools
import json
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal

MAX_BYTES = 64 << 20
"""Largest file, in bytes."""
MAX_DEPTH = 32
"""Most lists and objects inside each other."""
MAX_ITEMS = 4_000_000
"""Most values of a file."""
MAX_TEXT = 20_000
"""Most characters of a text."""
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?"?', re.DOTALL)
"""A text of JSON, also one without its end, so that a file is scanned once."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")

Decoder = Callable[[Any], Any]
"""Returns a parsed value as a kind. Raises JsonError."""


class JsonError(ValueError):
    """JSON is damaged, exceeds a limit, or does not hold what is expected. The message is one line."""

    def __init__(self, law: str, place: str = "") -> None:
        """`place` is where in the JSON the value is that breaks the `law`, such as `.tables[2].rows`."""
        super().__init__(f"{place.removeprefix('.') or 'it'} {law}" if place else law)
        self.law, self.place = law, place

    def inside(self, place: str) -> "JsonError":
        """The same error of a value that contains this one: `place` is where in it that was."""
        return JsonError(self.law.removeprefix("it "), f"{place:.80}{self.place}")


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, as metadata of a type: `Annotated[int, Range(1)]`."""

    low: float
    high: float = 2**63 - 1
    above: bool = False
    """Whether `low` itself is too low."""

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.above and value == self.low)

    def __str__(self) -> str:
        return f"{'above' if self.above else 'at least'} {self.low:g} and at most {self.high:g}"


@dataclass(frozen=True)
class Length:
    """Lists and objects of at most `most` items, as metadata of a type: `Annotated[list[str], Length(9)]`."""

    most: int

    def __contains__(self, value: Collection[Any]) -> bool:
        return len(value) <= self.most

    def __str__(self) -> str:
        return f"of at most {self.most} items"


Count = Annotated[int, Range(0)]
PositiveCount = Annotated[int, Range(1)]
Amount = Annotated[float, Range(0, 1e9)]
"""Seconds, shares and the like; sizes in bytes are a `Count`."""
PositiveAmount = Annotated[float, Range(0, 1e9, above=True)]


def read_json(kind: Any, data: bytes | str) -> Any:
    """Return the JSON in `data` as a `kind`. Raises JsonError, or what the constructor of a dataclass raises."""
    return decode(kind, parse_json(data))


def parse_json(data: bytes | str) -> Any:
    """Parse JSON of at most `MAX_BYTES`, `MAX_DEPTH` and `MAX_ITEMS`. Raises JsonError."""
    data = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    if len(data) > MAX_BYTES:
        raise JsonError(f"it must have at most {MAX_BYTES >> 20} MiB, but has {len(data) / 2**20:.1f}")
    structure = _TEXTS.sub(b"0", data)
    items = structure.count(b",") + structure.count(b"[") + structure.count(b"{") + 1
    if items > MAX_ITEMS:
        raise JsonError(f"it must have at most {MAX_ITEMS} values, but has {items}")
    brackets = structure.translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")  # the innermost of them
    if brackets:
        raise JsonError(f"its brackets must match and be nested at most {MAX_DEPTH} deep")
    try:
        return json.loads(data.decode())
    except ValueError as error:  # a number of thousands of digits, too
        raise JsonError(f"it is no JSON ({' '.join(str(error).split())[:100]})") from error


def decode(kind: Any, value: Any) -> Any:
    """Return a parsed value as a `kind`. Raises JsonError, or what the constructor of a dataclass raises.

    Keys of an object that a dataclass lacks are ignored, because a later version may have added them. A number is
    finite, but one of a union of plain types such as `bool | int | float | str | None` may be infinite.
    """
    return _decoder(kind)(value)


@functools.cache
def _decoder(kind: Any) -> Decoder:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _within(_decoder(arguments[0]), arguments[1])
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _record(tuple(map(_decoder, arguments)))
    if origin in (list, tuple, Sequence):
        return _list(_decoder(arguments[0]), tuple if origin is tuple else list)
    if origin in (dict, Mapping):
        return _object(_decoder(arguments[0]), _decoder(arguments[1]), arguments[0] is str)
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind)
    return _SCALARS[kind]


def _wrong(law: str, value: Any) -> JsonError:
    text = f"a {type(value).__name__} of {len(value)}" if isinstance(value, list | dict) else f"{value!r:.40}"
    return JsonError(f"it must be {law}, but is {text}")


def _float(value: Any) -> float:
    if type(value) in (int, float) and abs(value) <= 1.7e308:  # neither infinite nor NaN
        return float(value)
    raise _wrong("a finite number", value)


def _int(value: Any) -> int:
    if type(value) is int and abs(value) < 2**63:
        return value
    raise _wrong("a whole number below 2**63", value)


def _str(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_TEXT:
        raise _wrong(f"text of at most {MAX_TEXT} characters", value)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise _wrong("text without lone surrogates", value)
    return value


def _bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise _wrong("true or false", value)


def _none(value: Any) -> None:
    if value is not None:
        raise _wrong("null", value)


_SCALARS: Mapping[Any, Decoder] = {
    **{float: _float, int: _int, str: _str, bool: _bool},
    **{type(None): _none, Any: lambda value: value, object: lambda value: value},
}


def _within(decoder: Decoder, law: Range | Length) -> Decoder:
    def decoded(value: Any) -> Any:
        known = decoder(value)
        if known not in law:
            raise _wrong(str(law), value)
        return known

    return decoded


def _union(kinds: tuple[Any, ...]) -> Decoder:
    """Of plain types, or of one kind and None."""
    others = [kind for kind in kinds if kind is not type(None)]
    if len(others) == 1:
        decoder = _decoder(others[0])
        return lambda value: None if value is None else decoder(value)
    names = " or ".join(kind.__name__ for kind in others)

    def decoded(value: Any) -> Any:
        kind = type(value)
        if kind not in kinds or value != value:
            raise _wrong(names, value)
        return value if kind is float else _SCALARS[kind](value)

    return decoded


def _literal(choices: tuple[Any, ...]) -> Decoder:
    def decoded(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise _wrong(f"one of {', '.join(map(repr, choices))}", value)
        return value

    return decoded


def _list(decoder: Decoder, make: Callable[[list[Any]], Any]) -> Decoder:
    def decoded(value: Any) -> Any:
        if not isinstance(value, list):
            raise _wrong("a list", value)
        items: list[Any] = []
        try:
            for item in value:
                items.append(decoder(item))
        except JsonError as error:
            raise error.inside(f"[{len(items)}]") from None
        return make(items)

    return decoded


def _record(decoders: tuple[Decoder, ...]) -> Decoder:
    def decoded(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(decoders):
            raise _wrong(f"a list of {len(decoders)} values", value)
        return tuple(decoder(item) for decoder, item in zip(decoders, value, strict=True))

    return decoded


def _object(key_decoder: Decoder, decoder: Decoder, keys_are_text: bool) -> Decoder:
    def decoded(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong("an object", value)
        items = {}
        for key, item in value.items():
            if not keys_are_text and not re.fullmatch(r"[0-9]{1,18}", key, re.ASCII):
                raise _wrong("an object whose keys are whole numbers", value)
            try:
                items[key_decoder(key if keys_are_text else int(key))] = decoder(item)
            except JsonError as error:
                raise error.inside(f".{key}") from None
        return items

    return decoded


def _dataclass(kind: type) -> Decoder:
    hints = typing.get_type_hints(kind, include_extras=True)
    decoders = {field.name: _decoder(hints[field.name]) for field in fields(kind)}
    required = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]

    def decoded(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong("an object", value)
        for name in required:
            if name not in value:
                raise JsonError("is missing", f".{name}")
        arguments = {}
        for name, decoder in decoders.items():
            if name in value:
                try:
                    arguments[name] = decoder(value[name])
                except JsonError as error:
                    raise error.inside(f".{name}") from None
        return kind(**arguments)

    return decoded
