"""Fields of configs: their range checks, and keys that come later. Errors state the law, the offender and the choices
in one line."""

import dataclasses
import difflib
import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

_LAWS: ContextVar[dict[str, str] | None] = ContextVar("laws", default=None)
"""Key -> law, recorded by the checks while `laws` runs; None otherwise."""


def added(default: bool | int | float | str | None) -> Any:
    """Return the default of a key that is added to a section later, with which trials behave as before: those that have
    it lack the key, so that their ids and rows are those of earlier trials. Example: `steps: int = added(0)`."""
    return dataclasses.field(default=default, metadata={"added": True})


@functools.cache
def added_keys(section: type) -> Mapping[str, Any]:
    """Return the keys of a section that were added later, with their defaults."""
    return {each.name: each.default for each in dataclasses.fields(section) if each.metadata.get("added")}


def laws(section: Callable[[], object]) -> dict[str, str]:
    """Call `section()`, which builds a section with its defaults, and return the range that each key is checked for,
    such as `{"nu": "`nu > 0`"}`."""
    recorded: dict[str, str] = {}
    token = _LAWS.set(recorded)
    try:
        section()
    finally:
        _LAWS.reset(token)
    return recorded


def _record(name: str, law: str) -> None:
    """Record the first law of a key, if `laws` is running."""
    recorded = _LAWS.get()
    if recorded is not None:
        recorded.setdefault(name, law)


def number(name: str, value: object) -> float:
    """Return `value` as a float. Raises ValueError unless it is a number other than NaN. Booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{name} must be a number, but got {name}={value!r}")
    return float(value)


def positive(name: str, value: float, *, zero: bool = False, infinite: bool = False) -> None:
    """Raises ValueError unless `value > 0` (`>= 0` with `zero`) and finite (unless `infinite`)."""
    sign = ">=" if zero else ">"
    _record(name, f"`{name} {sign} 0`")
    got = number(name, value)
    if got < 0 or (got == 0 and not zero):
        raise ValueError(f"`{name} {sign} 0` must hold, but got {name}={value}")
    if math.isinf(got) and not infinite:
        raise ValueError(f"{name} must be finite, but got {name}={value}")


def between(name: str, value: float, low: float, high: float, *, above: bool = False, below: bool = False) -> None:
    """Raises ValueError unless `low <= value <= high` (`low < value` with `above`, `value < high` with `below`)."""
    law = f"`{low:g} {'<' if above else '<='} {name} {'<' if below else '<='} {high:g}`"
    _record(name, law)
    got = number(name, value)
    if not low <= got <= high or (above and got == low) or (below and got == high):
        raise ValueError(f"{law} must hold, but got {name}={value}")


LARGEST_INTEGER = 2**63 - 1
"""The largest integer that a column of the store and a tensor can hold."""


def whole(name: str, value: int, low: int, high: int = LARGEST_INTEGER) -> None:
    """Raises ValueError unless `value` is an integer of at least `low` and at most `high`."""
    _record(name, f"`{name} >= {low}`")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, but got {name}={value!r}")
    if value < low:
        raise ValueError(f"`{name} >= {low}` must hold, but got {name}={value}")
    if value > high:
        raise ValueError(f"`{name} <= {high}` must hold, but got {name}={value}")


def truth(name: str, value: bool) -> None:
    """Raises ValueError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, but got {name}={value!r}")


def choices(name: str, value: object, allowed: Iterable[object], listing: str = "") -> None:
    """Raises ValueError, as `unknown` says it, unless `value` is one of `allowed`."""
    options = [str(option) for option in allowed]
    _record(name, f"one of {', '.join(options)}")
    if value not in options:
        raise ValueError(unknown(name, value, options, listing))


MANY = 12
"""More options than this are not listed beside the nearest one."""


def unknown(noun: str, name: object, options: Collection[str], listing: str = "", owner: str = "there are") -> str:
    """Return `no NOUN 'NAME' (did you mean 'NEAREST'?); there are: A, B, C`. With a nearest one of `MANY` options, how
    to list them all, which `listing` says, takes the place of the list. `owner` takes that of "there are"."""
    near = nearest(str(name), options)
    hidden = near and listing and len(options) > MANY
    return (
        f"no {noun} {name!r}{near}; {listing}" if hidden else f"no {noun} {name!r}{near}; {owner}: {', '.join(options)}"
    )


def nearest(name: str, options: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the option nearest to `name`, or an empty string if none is near."""
    matches = difflib.get_close_matches(name, list(options), n=1)
    return f" (did you mean '{matches[0]}'?)" if matches else ""
