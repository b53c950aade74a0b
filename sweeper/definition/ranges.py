"""Ranges of values, as `--axis` takes them: they stand for the numbers that would be typed one by one.

- `0..9` is the whole numbers from 0 to 9, both included; `0..1:0.25` goes from 0 to 1 in steps of 0.25
- `linspace(0,1,5)` is 5 numbers at equal distances, `logspace(1e-4,0.1,4)` 4 at equal ratios, both ends included

Numbers are decimal, so `0.1..0.5:0.1` has 0.3 and not 0.30000000000000004. Those between the ends of a `linspace` or a
`logspace` are rounded to `DIGITS` significant digits, or to as many as an end has.
"""

import re
from collections.abc import Sequence
from decimal import Context, Decimal, DecimalException

from sweeper.errors import SpecError

DIGITS = 6
"""Fewest significant digits of numbers that are computed."""
LARGEST_COUNT = 10_000
"""Most values of a range."""
LARGEST_WHOLE = Decimal(10) ** 18
"""Whole numbers of a range are below it, as those of the store's columns are."""
NOTATIONS = "A..B for whole numbers, A..B:STEP, linspace(A,B,COUNT) or logspace(A,B,COUNT)"

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_STEPS = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::({_NUMBER}))?")
_SPACE = re.compile(rf"(lin|log)space\(\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*(\d+)\s*\)")
_MEANT = re.compile(rf"{_NUMBER}\.\.|(lin|log)space\(")
_COMMA = re.compile(r",(?![^()]*\))")


def listed(text: str) -> list[str]:
    """Return the values of a text such as `0..3,7`, each as it would be typed; of one without a range its parts between
    commas. Raises SpecError for a wrong range."""
    return [value for part in _COMMA.split(text) for value in _values(part.strip())]


MOST_LISTED = 16
"""Most values that are listed one by one where they are a range."""


def as_typed(values: Sequence[str]) -> str:
    """Return the text of values, of which `listed` makes them again: `0,1,2`, or `0..99` for many whole numbers in
    succession."""
    if len(values) > MOST_LISTED and all(value.isdecimal() for value in values):
        numbers = [*map(int, values)]
        if numbers == [*range(numbers[0], numbers[-1] + 1)] and len(numbers) <= LARGEST_COUNT:
            return f"{numbers[0]}..{numbers[-1]}"
    return ",".join(values)


def is_range(text: str) -> bool:
    """Return whether a text is meant as one range, right or wrong."""
    return bool(_MEANT.match(text.strip()))


def advice(text: str) -> str:
    """Return what a text that is no number was probably meant as, to end an error with; empty if that is not clear."""
    if span := re.fullmatch(rf"({_NUMBER})(?:-|:|to|\.\.\.)({_NUMBER})", text):
        return f"; a range is {span[1]}..{span[2]}"
    if re.match(r"[\w.]+\(", text):
        return f"; a range is {NOTATIONS}, and distributions are searched by a sweep with a Search"
    if re.search(r"[][(){}]", text):
        return "; several values are listed without brackets: 0.1,0.01"
    if re.search(r"[;\s]", text):
        return "; several values are separated by commas"
    if "," in text:
        return "; several values need --axis, and a decimal number has a point"
    return f"; a decimal number has a point: 0.{text}" if re.fullmatch(r"0\d+", text) else ""


def _values(part: str) -> Sequence[str]:
    if not _MEANT.match(part):
        return [part]
    try:
        if steps := _STEPS.fullmatch(part):
            return _steps(part, *steps.groups())
        if space := _SPACE.fullmatch(part):
            kind, first, last, count = space.groups()
            return _spaced(part, kind, Decimal(first), Decimal(last), int(count[:9]))
    except DecimalException:  # of numbers far beyond those of floating point
        pass
    raise SpecError(f"a range is {NOTATIONS}, but got '{part}'")


def _steps(part: str, low: str, high: str, by: str | None) -> list[str]:
    first, last, step = Decimal(low), Decimal(high), Decimal(by or 1)
    if by is None and not (_is_whole(first) and _is_whole(last)):
        raise SpecError(f"a range A..B is of whole numbers, but got '{part}'; others have a step: {part}:STEP")
    if step <= 0 or first >= last:
        raise SpecError(f"a range A..B:STEP must ascend, A < B and STEP > 0, but got '{part}'")
    _check_count(part, (last - first) / step + 1)
    count = int((last - first) / step)
    if first + count * step != last:
        raise SpecError(f"a range A..B:STEP must reach B, but '{part}' ends at {_typed(first + count * step)}")
    return [_typed(first + index * step) for index in range(count + 1)]


def _spaced(part: str, kind: str, first: Decimal, last: Decimal, count: int) -> list[str]:
    if count < 2 or first == last:
        raise SpecError(
            f"{kind}space(A,B,COUNT) must have two different ends and a COUNT of at least 2, but got '{part}'"
        )
    if kind == "log" and not (first > 0 and last > 0):
        raise SpecError(f"both ends of logspace(A,B,COUNT) must be above 0, but got '{part}'")
    _check_count(part, Decimal(count))
    rounded = Context(prec=max(DIGITS, *(len(end.as_tuple().digits) for end in (first, last))))
    shares = [Decimal(index) / (count - 1) for index in range(1, count - 1)]
    ratio = last / first if kind == "log" else Decimal(1)
    between = [first * ratio**share if kind == "log" else first + (last - first) * share for share in shares]
    return [_typed(first), *(_typed(rounded.plus(number)) for number in between), _typed(last)]


def _check_count(part: str, count: Decimal) -> None:
    if count > LARGEST_COUNT:
        raise SpecError(f"a range must have at most {LARGEST_COUNT} values, but '{part}' has more")


def _is_whole(number: Decimal) -> bool:
    return abs(number) < LARGEST_WHOLE and number == number.to_integral_value()


def _typed(number: Decimal) -> str:
    """Return a number as it would be typed, without trailing zeros: `10`, `0.25`, `1e-07`."""
    return str(int(number)) if _is_whole(number) else repr(float(number))
