"""A command as a method: code in any language, started anew for each trial.

Its keys are the names in braces. It writes its metrics as JSON objects, one a line, into the file that the environment
variable SWEEPER_REPORT names, and what it resumes from into the folder SWEEPER_CHECKPOINT. Its exit status decides.
"""

import shlex
import string
from typing import Literal, Self

PREFIXES = {"report": "command: ", "stdout": "command, metrics from stdout: "}
"""Where metrics come from -> how the name of such a method begins."""


class CommandError(RuntimeError):
    """A command has ended with an error, or reports what cannot be a row. The message is one line."""


class Command(str):
    """A command line as the value of `method`: `Command("python train.py --lr {lr} --seed {seed}")`.

    No shell reads it: it is split into words, in which the values are inserted. `metrics_from="stdout"` takes those
    lines of its standard output that are JSON objects as its reports. Raises ValueError for one without keys.
    """

    def __new__(cls, line: str, metrics_from: Literal["report", "stdout"] = "report") -> Self:
        if metrics_from not in PREFIXES:
            raise ValueError(f"metrics_from must be report or stdout, but got {metrics_from!r}")
        keys_of(line)
        return super().__new__(cls, PREFIXES[metrics_from] + line)


def is_command(name: str) -> bool:
    """Whether a method is a command."""
    return name.startswith(tuple(PREFIXES.values()))


def keys_of(line: str) -> tuple[str, ...]:
    """The names in braces. Raises ValueError, with one line, if there is none, or for a line that is no command."""
    try:
        words = shlex.split(line)
        fields = [field for word in words for field in string.Formatter().parse(word)]
    except ValueError as error:
        raise ValueError(f"a command must be words with keys in braces, but got {line!r:.80}: {error}") from error
    found = {name: form or "" for _, name, form, _ in fields if name is not None}
    if not found or not all(name.isidentifier() and "{" not in form for name, form in found.items()):
        raise ValueError(
            f"a command must have a key in braces, such as `python train.py --lr {{lr}}`, but got {line!r:.80}"
        )
    return tuple(found)
