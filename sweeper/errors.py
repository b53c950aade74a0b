"""The errors that a sweep reports to its user. Every message is one line that can be printed as it is."""

import os
import re
from collections.abc import Mapping

from sweeper.masking import masked
from sweeper.printing import printable

DAMAGED = "_damaged"
"""Folder of the store that damaged files are moved to. Parquet readers ignore names that begin with `_`."""
LONGEST_WORD = 1000
"""Longest word, in characters, that an error message shows in full."""


class SweeperError(Exception):
    """An error whose message holds no secret: the URLs in it are `masked`."""

    def __init__(self, message: object = "") -> None:
        super().__init__(masked(str(message)))


class ClusterError(SweeperError):
    """No Ray cluster can be used: none is reachable, it lacks what the sweep needs, or it was lost."""


class SpecError(SweeperError):
    """A request or a sweep's definition is invalid. The message states the rule, the offender and the choices."""


class StoreError(SweeperError):
    """The store could not be read or written, or lacks what was asked for."""


class SchemaError(StoreError):
    """Two sets of columns cannot share one sweep. The message names the first column that differs."""


class DamagedError(StoreError):
    """The bytes of a file are not what was written. The message gives the evidence; the caller adds the file's name."""


class DamagedFiles(StoreError):
    """Files of the store are damaged. The message names the first file, the reason and the remedy."""

    def __init__(self, store: str, reasons: Mapping[str, str]) -> None:
        """`store` is the store's address without secrets. `reasons` maps the path of each damaged file in the store to
        why it cannot be read; it has at least one entry."""
        path, reason = next(iter(reasons.items()))
        others = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        super().__init__(
            f"store {store}: '{path}' is damaged: {reason}{others}; run the sweep again, which moves damaged files to "
            f"'{DAMAGED}' and trains their trials again"
        )
        self.reasons = dict(reasons)


class NodeLost(ClusterError):
    """Ray is lost while a sweep trains: a process that the driver depends on has died, or no worker starts any more."""


class JobLost(ClusterError):
    """The cluster does not answer, so the state of the submitted job is unknown."""


def check_working_folder() -> None:
    """Raise SpecError if the working folder has been removed. A library that is imported then may end the process."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise SpecError("the working folder no longer exists; change to one that does, with cd") from None


def first_line(text: object, otherwise: str) -> str:
    """Return the first line of a text or exception that is not blank, `masked`; `otherwise` if there is none."""
    return next((masked(line.strip()) for line in str(text or "").splitlines() if line.strip()), otherwise)


def error_line(error: Exception) -> str:
    """Return the line that a program prints of an error that ends it."""
    return f"error: {error_text(error)}"


def error_text(error: Exception) -> str:
    """Return the message as one line: unprintable characters are escaped, and words beyond `LONGEST_WORD` are cut."""

    def cut(word: re.Match[str]) -> str:
        return f"{word[0][:50]}... ({len(word[0])} characters)"

    return re.sub(rf"[^ ]{{{LONGEST_WORD + 1},}}", cut, printable(str(error)))
