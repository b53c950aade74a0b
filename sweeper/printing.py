"""Text as it leaves the program. Modules that print import `print` from here in place of the built-in function.

Names, errors and answers come from folders, stores and servers of other people, and may hold control characters that
move a terminal's cursor, reverse the text after them, or hide it.
"""

import builtins
import json
import logging
import math
import sys
import unicodedata
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any, TextIO

from sweeper.masking import masked, masked_addresses

UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of control, format (bidirectional and zero-width) and surrogate characters, and of separators of
lines and paragraphs."""
LOGGER = logging.Logger("sweeper", logging.INFO)
"""Takes what is printed, and what runs note. It leads nowhere unless a run writes its log. It is none of `getLogger`,
because libraries that configure logging, such as those of trackers, disable all of these."""
LOGGER.addHandler(logging.NullHandler())
LAYOUT = "\n\t"
"""Unprintable characters that text of several lines consists of."""


def printable(text: str, keep: str = "") -> str:
    """Return the text with its unprintable characters escaped, such as `\\n`, `\\x1b` and `\\u202e`, so it is one line;
    those in `keep` stay as they are."""
    if text.isprintable():
        return text
    return "".join(_escaped(char) if char not in keep else char for char in text)


def _escaped(char: str) -> str:
    is_character = ord(char) & 0xFFFE != 0xFFFE  # U+FFFE and U+FFFF are none, and XML refuses them
    shown = is_character and unicodedata.category(char) not in UNPRINTABLE
    return char if shown else char.encode("unicode_escape").decode()


def printable_values(value: Any, keep: str = "") -> Any:
    """Return values as JSON has them, with all text in them `printable`."""
    if isinstance(value, str):
        return printable(value, keep)
    if isinstance(value, Mapping):
        return {printable_values(key, keep): printable_values(item, keep) for key, item in value.items()}
    return [printable_values(item, keep) for item in value] if isinstance(value, list | tuple) else value


def json_text(value: object) -> str:
    """Return values as one line of JSON. Null stands for NaN, NA and infinity; times are in ISO 8601; addresses have no
    secrets."""
    return json.dumps(_json_value(value), allow_nan=False)


def _json_value(value: Any) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, Sequence | Set):
        return [*map(_json_value, value)]
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, datetime):
        return value.isoformat()
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print(
    *values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False, mask: bool = True
) -> None:
    """Print as the built-in function does, but escape all but printable characters and `LAYOUT`, and `mask` URLs. What
    is masked is also logged."""
    text = sep.join(map(str, values)) + end
    shown = printable(masked_addresses(text) if mask else text, keep=LAYOUT)
    if mask and shown.strip():
        is_error = shown.startswith("error:")
        LOGGER.log(logging.ERROR if is_error else logging.INFO if file is None else logging.WARNING, "%s", shown)
    builtins.print(shown, end="", file=sys.stdout if file is None else file, flush=flush)
