"""A command as a method: code in any language, started once per trial.

Its keys are the names in braces. The command writes metrics as JSON objects, one per line, to the file named by the
environment variable SWEEPER_REPORT, and its resumable state to the folder SWEEPER_CHECKPOINT. Exit status 0 means
success.
"""

import shlex
import string
from typing import Literal, Self

PREFIXES = {"report": "command: ", "stdout": "command, metrics from stdout: "}
"""Source of metrics -> prefix of the method's name."""


class CommandError(RuntimeError):
    """A command has ended with an error, or its report cannot become a row. The message is one line."""


class Command(str):
    """A command line as the value of `method`: `Command("python train.py --lr {lr} --seed {seed}")`.

    It is not passed to a shell: the line is split into words, in which the values are inserted. `metrics_from="stdout"`
    treats lines of standard output that are JSON objects as reports. Raises ValueError for a command without keys.
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
    """The names in braces. Raises ValueError, with one line, if there are none or if the line is not a command."""
    try:
        words = shlex.split(line)
        fields = [field for word in words for field in string.Formatter().parse(word)]
    except ValueError as error:
        raise ValueError(f"a command must be words with keys in braces, but got {line!r:.80}: {error}") from error
    found = {name: form or "" for _, name, form, _ in fields if name is not None}
    if not found or not all(name.isidentifier() and "{" not in form for name, form in found.items()):
        raise ValueError(
            f"a command must contain a key in braces, such as `python train.py --lr {{lr}}`, but got {line!r:.80}"
        )
    return tuple(found)
