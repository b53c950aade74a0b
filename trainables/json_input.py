"""The reader of JSON from untrusted sources: limits are checked before parsing, then values are converted to known
types.

`read_json(kind, data)` returns a `kind`: a dataclass, `list[str]`, `Mapping[str, int]` and so on, with msgspec's
bounds, such as `Annotated[int, Meta(ge=1)]`. Data that do not fit raise JsonError, with one line that says where they
differ. Nothing is executed, and time and memory are bounded.
"""

import bisect
import contextlib
import functools
import json
import operator
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, inspect

MAX_BYTES = 64 << 20
"""Largest file, in bytes."""
MAX_DEPTH = 32
"""Maximum nesting depth of lists and objects."""
MAX_ITEMS = 4_000_000
"""Maximum number of values in a file."""
MAX_TEXT = 20_000
"""Maximum number of characters in a string."""
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?"?', re.DOTALL)
"""A JSON string, or the start of an unterminated one, so that a file is scanned once."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_WORDS = (
    ("Object missing required field", "must have the key"),
    ("Expected", "must be"),
    (", got", ", but is"),
    ("`", ""),
)
"""Words in msgspec's messages -> our words."""
_PLACE = re.compile(r"(.*?)(?: - at (?:`(key)` in )?`\$(\S*)`)?", re.DOTALL)
"""A message of msgspec: the law, `key` if a key of a mapping breaks it, and where."""
_STEP = re.compile(r"\.(\w+)|\[(?:(\d+)|\.\.\.)\]")
"""A field, an index or a key that msgspec does not name."""
_SURROGATE = re.compile("[\ud800-\udfff]")

Count = Annotated[int, Meta(ge=0)]
PositiveCount = Annotated[int, Meta(ge=1)]
Finite = Annotated[float, Meta(ge=-1.7e308, le=1.7e308)]
"""Neither infinite nor NaN."""
Amount = Annotated[float, Meta(ge=0, le=1e9)]
"""Seconds, shares and similar quantities; sizes in bytes are a `Count`."""
PositiveAmount = Annotated[float, Meta(gt=0, le=1e9)]


class JsonError(ValueError):
    """JSON is damaged, exceeds a limit, or does not contain what is expected. The message is one line."""

    def __init__(self, law: str, place: str = "") -> None:
        """`place` is the path in the JSON of the value that breaks the `law`, such as `.tables[2].rows`."""
        super().__init__(f"{place.removeprefix('.')}: {law}" if place else law)
        self.law, self.place = law, place

    def inside(self, place: str) -> "JsonError":
        """The same error for the enclosing value, in which the offending value is at `place`."""
        return JsonError(self.law, f"{place:.80}{self.place}")


def read_json(kind: Any, data: bytes | str) -> Any:
    """Return the JSON in `data` as a `kind`. Raises JsonError, and passes on errors of constructors other than
    ValueError."""
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
    except ValueError as error:  # also for a number of thousands of digits
        raise JsonError(f"it is no JSON ({' '.join(str(error).split())[:100]})") from error


def decode(kind: Any, value: Any) -> Any:
    """Return a parsed value as a `kind`. Raises JsonError, and passes on errors of constructors other than ValueError.

    Keys that a dataclass lacks are ignored, because a later version may have added them. A number must not be NaN, but
    a plain `float` may be infinite.
    """
    _check(value)
    return convert(kind, value)


def convert(kind: Any, value: Any) -> Any:
    """Return a value as a `kind`, as `decode` does, but without limits on strings and numbers."""
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        text = str(error)
    law, of_key, place = _PLACE.fullmatch(text).groups("")  # type: ignore[union-attr]
    path = list[int | str]()
    with contextlib.suppress(LookupError, TypeError):  # if a value that the message quotes ends like a place
        path = _path(kind, value, text, f"{place}[...]" if of_key else place)
    choices = ", ".join(map(repr, _literals(inspect.type_info(kind), path)))
    for words, ours in (("Invalid enum value", f"must be one of {choices}, but is"), *_WORDS):
        law = law.replace(words, ours)
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step:.80}" for step in path)
    raise JsonError(" ".join(f"{of_key} {law}".split()), " ".join(where.split()))


def _path(kind: Any, value: Any, text: str, place: str) -> list[int | str]:
    """Return the indices and keys that lead to a value that is refused with msgspec's message `text`, where `place` has
    `[...]` for each key of a mapping: the first key up to which the items of the mapping give this message."""
    path = list[int | str]()
    for name, index in _STEP.findall(place):
        step: int | str = int(index) if index else name
        if step == "":
            items = [*functools.reduce(operator.getitem, path, value).items()]
            count = bisect.bisect_left(
                range(len(items)),
                True,
                key=lambda count: _refusal(kind, _replaced(value, path, dict(items[:count]))) == text,
            )
            step, item = items[count - 1]
            value = _replaced(value, path, {step: item})
        path.append(step)
    return path


def _refusal(kind: Any, value: Any) -> str:
    """Return msgspec's message that a value is no `kind`; empty if it is one."""
    try:
        msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _replaced(value: Any, path: Sequence[int | str], by: Any) -> Any:
    """Return the value with what is at a path in it replaced."""
    if not path:
        return by
    copied: Any = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = _replaced(value[path[0]], path[1:], by)
    return copied


def _literals(kind: Any, path: Sequence[int | str]) -> list[Any]:
    """Return the values that a literal at a path of a kind may have."""
    if isinstance(kind, inspect.UnionType):
        return [value for each in kind.types for value in _literals(each, path)]
    if not path:
        return [*getattr(kind, "values", ())]
    inner = {field.encode_name: field.type for field in getattr(kind, "fields", ())}
    inner |= dict(enumerate(getattr(kind, "item_types", ())))
    of_all = getattr(kind, "value_type", getattr(kind, "item_type", None))
    return _literals(inner.get(path[0], of_all), path[1:])


def _check(value: Any) -> None:
    """Raise JsonError for values that no kind allows: a long string, lone surrogates, NaN, a huge number."""
    if isinstance(value, list | dict):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            try:
                _check(key)
                _check(item)
            except JsonError as error:
                raise error.inside(f".{key}" if isinstance(value, dict) else f"[{key}]") from None
    elif isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise JsonError(f"a text must have at most {MAX_TEXT} characters, but has {len(value)}")
        if not value.isascii() and _SURROGATE.search(value):
            raise JsonError("a text must have no lone surrogates")
    elif value != value or (type(value) is int and abs(value) >= 2**63):
        raise JsonError(f"a number must not be NaN, nor a whole number of 2**63 or more, but is {value!r:.40}")
