"""Small JSON files that a store keeps beside the rows, such as cuts and measurements. A damaged file counts as absent.

The functions `whole`, `number`, `text` and `truth` return a value that was read, or raise ValueError if it is invalid.
"""

import functools
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from sweeper.storage.io.files import Files

Record = TypeVar("Record")
LARGEST = 1e9
"""Largest value that `number` accepts. It is for seconds and shares; sizes in bytes are read by `whole`."""


def read_record(files: Files, path: str, parse: Callable[[Any], Record]) -> Record | None:
    """Return `parse` of the JSON value at `path`, or None if there is no such file.

    If the file is damaged, a line on stderr says so and the result is None. `parse` reports invalid content by raising
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError or RecursionError.
    """
    data = files.read(path)
    if data is None:
        return None
    try:
        return parse(json.loads(data))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        _say_once(f"store {files.display_uri}: '{path}' is damaged ({type(error).__name__}) and counts as absent")
        return None


def whole(value: object, least: int = 0) -> int:
    """An int, at least `least` and below 2**63."""
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"must be a whole number of at least {least}, but is {value!r:.40}")
    return value


def number(value: object, positive: bool = False) -> float:
    """A number in [0, `LARGEST`], or in (0, `LARGEST`] if `positive`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, but is {value!r:.40}")
    if not (value > 0 if positive else value >= 0) or value > LARGEST:
        raise ValueError(
            f"must be {'above 0' if positive else 'at least 0'} and at most {LARGEST:g}, but is {value!r:.40}"
        )
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
    """Print to stderr (stdout is for `--json`), once per process, since a run reads the same file several times."""
    print(line, file=sys.stderr)
