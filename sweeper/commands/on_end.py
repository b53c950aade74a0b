"""`--on-end COMMAND`: a program of the user that is told how a run has ended."""

import shutil
import subprocess
import sys
from collections.abc import Sequence

from sweeper.errors import SpecError, first_line
from sweeper.printing import print

LONGEST = 60.0
"""Seconds after which the command is ended."""


def check(words: Sequence[str]) -> None:
    """Raise SpecError if the command names no program of this machine."""
    if words and shutil.which(words[0]) is None:
        raise SpecError(f"--on-end must name a program on PATH or the path of one, but got {words[0]!r}")


def run(words: Sequence[str], summary: str) -> None:
    """Run the command with the summary on its standard input. What it prints goes to standard error. If it fails, a
    line says so; the exit status of the run stays what it is."""
    try:
        ended = subprocess.run(
            words, input=summary, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            timeout=LONGEST,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        print(f"error: --on-end {words[0]} was ended after {LONGEST:.0f} s", file=sys.stderr)
    except OSError as error:
        print(f"error: --on-end {words[0]} cannot be run: {first_line(error, type(error).__name__)}", file=sys.stderr)
    else:
        print(ended.stdout, end="", file=sys.stderr)
        if ended.returncode:
            print(f"error: --on-end {words[0]} ended with status {ended.returncode}", file=sys.stderr)
