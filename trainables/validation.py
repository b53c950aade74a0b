"""Range checks for the fields of configs: each states the law, the offender and the choices in one line."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from contextvars import ContextVar

_LAWS: ContextVar[dict[str, str] | None] = ContextVar("laws", default=None)
"""Where the checks write down what they ask for, within `laws`."""


def laws(section: Callable[[], object]) -> dict[str, str]:
    """Key -> the range that it is checked for when `section()` makes an object of defaults, such as "`nu > 0`"."""
    found: dict[str, str] = {}
    token = _LAWS.set(found)
    try:
        section()
    finally:
        _LAWS.reset(token)
    return found


def _write_down(name: str, law: str) -> None:
    written = _LAWS.get()
    if written is not None:
        written.setdefault(name, law)


def number(name: str, value: object) -> float:
    """Raises ValueError unless `value` is a number and not NaN (True and False are not numbers)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{name} must be a number, but got {name}={value!r}")
    return float(value)


def positive(name: str, value: float, *, zero: bool = False, infinite: bool = False) -> None:
    """Raises ValueError unless `value > 0` (`>= 0` with `zero`) and finite (unless `infinite`)."""
    sign = ">=" if zero else ">"
    _write_down(name, f"`{name} {sign} 0`")
    got = number(name, value)
    if got < 0 or (got == 0 and not zero):
        raise ValueError(f"`{name} {sign} 0` must hold, but got {name}={value}")
    if math.isinf(got) and not infinite:
        raise ValueError(f"{name} must be finite, but got {name}={value}")


def between(name: str, value: float, low: float, high: float, *, above: bool = False) -> None:
    """Raises ValueError unless `low <= value <= high` (`low < value` with `above`)."""
    _write_down(name, f"`{low:g} {'<' if above else '<='} {name} <= {high:g}`")
    got = number(name, value)
    if not low <= got <= high or (above and got == low):
        raise ValueError(f"`{low:g} {'<' if above else '<='} {name} <= {high:g}` must hold, but got {name}={value}")


LARGEST_INTEGER = 2**63 - 1
"""What a column of the store holds, and a tensor."""


def whole(name: str, value: int, low: int) -> None:
    """Raises ValueError unless `value` is a whole number, at least `low`, of 64 bits."""
    _write_down(name, f"`{name} >= {low}`")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, but got {name}={value!r}")
    if value < low:
        raise ValueError(f"`{name} >= {low}` must hold, but got {name}={value}")
    if value > LARGEST_INTEGER:
        raise ValueError(f"`{name} <= {LARGEST_INTEGER}` must hold, but got {name}={value}")


def truth(name: str, value: bool) -> None:
    """Raises ValueError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, but got {name}={value!r}")


def choices(name: str, value: object, allowed: Iterable[object]) -> None:
    """Raises ValueError unless `value` is one of `allowed`; names the nearest."""
    options = [str(option) for option in allowed]
    _write_down(name, f"one of {', '.join(options)}")
    if value not in options:
        raise ValueError(f"no {name} {value!r}{nearest(str(value), options)}; there are: {', '.join(options)}")


def nearest(name: str, options: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing where no option is near."""
    near = difflib.get_close_matches(name, list(options), n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""
