"""Small JSON files that a store keeps beside the rows (how a plan was cut, what was measured), read with suspicion."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from sweeper.storage.io.files import Files

Record = TypeVar("Record")
LARGEST = 1e9
"""The largest number that a record may hold: bytes are whole numbers, and these are seconds and shares."""


def read_record(files: Files, path: str, parse: Callable[[Any], Record]) -> Record | None:
    """What `parse` makes of the JSON at `path`; None where there is no such file, or it is damaged, which is said.

    `parse` raises one of the usual errors (ValueError, TypeError, KeyError and the like) for content of another kind.
    """
    data = files.read(path)
    if data is None:
        return None
    try:
        return parse(json.loads(data))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        _say_once(f"store {files.shown}: '{path}' is damaged ({type(error).__name__}) and counts as absent")
        return None


def whole(value: object, least: int = 0) -> int:
    """An int of 64 bits, at least `least`. ValueError otherwise."""
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"must be a whole number of at least {least}, but is {value!r:.40}")
    return value


def number(value: object, positive: bool = False) -> float:
    """A number of at most `LARGEST` that is >= 0, or > 0 if `positive`. ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, but is {value!r:.40}")
    if not (value > 0 if positive else value >= 0) or value > LARGEST:
        raise ValueError(f"must be a finite number, but is {value!r:.40}")
    return float(value)


def text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"must be text, but is {value!r:.40}")
    return value


def truth(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError(f"must be true or false, but is {value!r:.40}")
    return value


@functools.cache
def _say_once(line: str) -> None:
    """The same file is read several times in a run. Not on stdout, where `--json` puts a plan."""
    print(line, file=sys.stderr)
