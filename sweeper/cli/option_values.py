"""Parse numbers of the command line and the environment. A wrong number raises SpecError with one line."""

import math
import os

from sweeper.errors import SpecError
from sweeper.spec.node_price import NodePrice
from sweeper.storage.retry import LONG_RETRIES, STORE_TIMEOUT, RetryPolicy

LARGEST_INTEGER = 2**63 - 1
"""Largest integer that an option takes, because the store's columns have 64 bits."""
LARGEST_AMOUNT = 1e9
"""Largest number of seconds or price that an option takes: 30 years, which the clocks of threads can still count."""


def auto(text: str) -> int | None:
    """Size of a cohort, or None for `auto`."""
    return None if text == "auto" else whole("--cohort", 1, text)


def _shown(text: str) -> str:
    """Text as it was typed, in quotes if it is blank."""
    return text if text.strip() else repr(text)


def whole(option: str, least: int, text: str) -> int:
    """Whole number from `least` to `LARGEST_INTEGER`."""
    try:
        value = int(text) if text.removeprefix("-").isdecimal() else None
    except ValueError:  # Python refuses to read a number of several thousand digits
        value = LARGEST_INTEGER + 1
    if value is None or value < least:
        raise SpecError(f"{option} must be a whole number of at least {least}, but got {_shown(text)}")
    if value > LARGEST_INTEGER:
        raise SpecError(f"{option} must be at most {LARGEST_INTEGER}, but got {text}")
    return value


def fraction(text: str) -> float | None:
    """Share of a device, from 0.0001 to 1, or None for `auto`."""
    if text == "auto":
        return None
    value = _number("--gpu-fraction", text)
    if not 0.0001 <= value <= 1:  # Ray's finest resolution
        raise SpecError(f"`0.0001 <= gpu-fraction <= 1` must hold, but got --gpu-fraction {text}")
    return value


def amount(option: str, text: str, positive: bool = False) -> float:
    """Number from 0 to `LARGEST_AMOUNT`; 0 itself is refused if `positive`."""
    value = _number(option, text)
    if not (value > 0 if positive else value >= 0):
        raise SpecError(f"`{option} {'>' if positive else '>='} 0` must hold, but got {text}")
    if value > LARGEST_AMOUNT:
        raise SpecError(f"`{option} <= {LARGEST_AMOUNT:g}` must hold, but got {text}")
    return value


def node_price(text: str) -> NodePrice:
    """Prices of nodes per hour, such as `2.5`, or `H100=9,T4=0.6` for kinds of GPUs."""
    prices: dict[str, float] = {}
    for part in text.split(","):
        kind, equals, price = (word.strip() for word in part.rpartition("="))
        if equals and not kind:
            raise SpecError(f"--node-price takes P or KIND=P, with commas between several, but got '{text}'")
        if kind in prices:
            raise SpecError(f"--node-price must have one price per kind of GPU, but got '{text}'")
        prices[kind] = amount("--node-price", price)
    return NodePrice(prices)


def store_retries() -> RetryPolicy:
    """Policy for a store that has stopped working, from `STORE_TIMEOUT`."""
    text = os.environ.get(STORE_TIMEOUT)
    try:
        seconds = LONG_RETRIES.seconds if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LARGEST_AMOUNT:
        raise SpecError(
            f"{STORE_TIMEOUT} must be a number of seconds from 0 to {LARGEST_AMOUNT:g}, but got {STORE_TIMEOUT}={text}"
        )
    return RetryPolicy(seconds)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SpecError(f"{option} must be a number, but got {_shown(text)}") from None
