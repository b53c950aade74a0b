import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from trainables.json_input import MAX_DEPTH, JsonError, PositiveAmount, PositiveCount, decode, parse_json, read_json


@dataclass(frozen=True)
class Inner:
    share: PositiveAmount
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    inner: list[Inner]
    values: Mapping[str, bool | int | float | str | None]
    note: str | None = None
    counts: Mapping[PositiveCount, PositiveCount] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, Literal["x", "y"] | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if max(self.counts.values(), default=0) > 3:
            raise ValueError("counts must be\nat most 3")
        if self.note and self.note.startswith("bad"):
            raise ValueError(f"the note is {self.note}")


def _random_json(rng: random.Random, depth: int = 0) -> Any:
    """A value of any type, whose objects often have the keys that are expected."""
    kind = rng.randrange(7 if depth < 4 else 5)
    if kind == 5:
        return [_random_json(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 6:
        return {
            key: _random_json(rng, depth + 1) for key in ("inner", "values", "share", "names") if rng.random() < 0.8
        }
    return rng.choice([None, True, -1, 10**30, 0.5, math.inf, math.nan, "x", "\ud800", 0, 1])


def test_whatever_is_read_is_of_the_kind_or_refused() -> None:
    rng, read = random.Random(0), 0
    for _ in range(20_000):
        plain = {"inner": _random_json(rng), "values": _random_json(rng)}
        try:
            outer = decode(Outer, plain)
        except JsonError as error:
            assert "\n" not in str(error)
            continue
        read += 1
        assert all(0 < inner.share <= 1e9 for inner in outer.inner)
        assert all(isinstance(name, str) for inner in outer.inner for name in inner.names)
        assert all(isinstance(value, bool | int | float | str | None) for value in outer.values.values())
        numbers = [value for value in outer.values.values() if isinstance(value, int | float)]
        assert not any(math.isnan(number) or number == 10**30 for number in numbers)
    assert read > 10


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 10**6, b'{"a":' * 10**6, b"[" * 40 + b"]" * 40, b"9" * 5000, b'"' + b'\\"' * 10**6, b"\xff", b"",
        b"[" + b"1," * 5 * 10**6 + b"1]",
    ],
    ids=["lists", "objects", "closed", "digits", "escapes", "bytes", "nothing", "items"],
)  # fmt: skip
def test_json_beyond_a_limit_is_refused(data: bytes) -> None:
    with pytest.raises(JsonError):
        parse_json(data)


def test_brackets_in_texts_do_not_count() -> None:
    assert parse_json(b'["' + b"[" * 100 + b'"]') == ["[" * 100]
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)


CHOICES = "kinds.%s: must be one of 'x', 'y', but is 'z'"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"values": {}}', "must have the key inner"),
        (b'{"inner": [{"share": 0}], "values": {}}', "inner[0].share: must be float > 0.0"),
        (b'{"inner": [], "values": {"a": [1]}}', "values.a: must be bool | int | float | str | null, but is array"),
        (
            b'{"inner": [{"share": NaN}], "values": {}}',
            "inner[0].share: a number must not be NaN, nor a whole number of 2**63 or more, but is nan",
        ),
        (b"[]", "must be object, but is array"),
        (
            b'{"inner": [], "values": {"a": 9223372036854775808}}',
            "values.a: a number must not be NaN, nor a whole number of 2**63 or more, but is 9223372036854775808",
        ),
        (b'{"inner": [], "values": {}, "note": "\\ud800"}', "note: a text must have no lone surrogates"),
        (
            b'{"inner": [], "values": {}, "note": "%s"}' % (b"a" * 20_001),
            "note: a text must have at most 20000 characters, but has 20001",
        ),
        (b'{"inner": [], "values": {}, "note": true}', "note: must be str | null, but is bool"),
        (b'{"inner": [{"share": true}], "values": {}}', "inner[0].share: must be float, but is bool"),
        (b'{"inner": [{"share": Infinity}], "values": {}}', "inner[0].share: must be float <= 1000000000.0"),
        (b'{"inner": [], "values": {}, "counts": {"-1": 1}}', "counts.-1: key must be int >= 1"),
        (b'{"inner": [], "values": {}, "counts": {"1": 0}}', "counts.1: must be int >= 1"),
        (b'{"inner": [], "values": {}, "counts": {"1": 4}}', "counts must be at most 3"),
        (b'{"inner": [], "values": {}, "note": "bad - at `$.values[...]`"}', "the note is bad"),
        (b'{"inner": [], "values": {}, "kinds": {"a": {}, "b": {"c": "x", "d.\\n": "z"}}}', CHOICES % "b.d."),
        (
            b'{"inner": [], "values": {}, "kinds": {"a": {}, " - at `$.b[...]`": {"": "z"}}}',
            CHOICES % " - at `$.b[...]`.",
        ),
    ],
)
def test_the_message_says_where(data: bytes, message: str) -> None:
    with pytest.raises(JsonError) as refused:
        read_json(Outer, data)
    assert str(refused.value) == message
