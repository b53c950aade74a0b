"""Numbers of the command line, as typed -> as values. SpecError, one line, states the law and what was typed."""

from __future__ import annotations

from sweeper.errors import SpecError

LARGEST_INTEGER = 2**63 - 1
"""Of an option: the store's columns hold 64 bits."""
LARGEST_AMOUNT = 1e9
"""Seconds, or money: 30 years, which the clocks of threads can still count."""


def auto(option: str, text: str) -> int | None:
    """None for `auto`, else a whole number >= 1."""
    return None if text == "auto" else whole(option, text, 1)


def _shown(text: str) -> str:
    """As typed, or quotes where nothing would be seen."""
    return text if text.strip() else repr(text)


def whole(option: str, text: str, least: int) -> int:
    """A whole number from `least` to `LARGEST_INTEGER`."""
    try:
        value = int(text) if text.removeprefix("-").isdecimal() else None
    except ValueError:  # Python reads no number of more than some thousand digits
        value = LARGEST_INTEGER + 1
    if value is None or value < least:
        raise SpecError(f"{option} must be a whole number of at least {least}, but got {_shown(text)}")
    if value > LARGEST_INTEGER:
        raise SpecError(f"{option} must be at most {LARGEST_INTEGER}, but got {text}")
    return value


def whole_or_none(option: str, text: str | None, least: int) -> int | None:
    """The same, where the option was given."""
    return None if text is None else whole(option, text, least)


def fraction(text: str) -> float | None:
    """None for `auto`, else a share of a device."""
    if text == "auto":
        return None
    value = _number("--gpu-fraction", text)
    if not 0.0001 <= value <= 1:  # Ray counts no finer
        raise SpecError(f"`0.0001 <= gpu-fraction <= 1` must hold, but got --gpu-fraction {text}")
    return value


def amount(option: str, text: str, positive: bool = False) -> float:
    """A number from 0 (above it, if `positive`) to `LARGEST_AMOUNT`."""
    value = _number(option, text)
    if not (value > 0 if positive else value >= 0):
        raise SpecError(f"`{option} {'>' if positive else '>='} 0` must hold, but got {text}")
    if value > LARGEST_AMOUNT:
        raise SpecError(f"`{option} <= {LARGEST_AMOUNT:g}` must hold, but got {text}")
    return value


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SpecError(f"{option} must be a number, but got {_shown(text)}") from None
