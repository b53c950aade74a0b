"""Shell command that starts a sweep on the cluster's head, with a Python that has Ray."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

HAS_RAY = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"
"""Python program that exits with status 0 if Ray is installed."""


def entrypoint(words: Sequence[str], python: str = sys.executable) -> str:
    """Shell command that replaces its shell by `sweeper.run WORDS`.

    It tries two interpreters and takes the first that has Ray:

    1. `python`, the interpreter that submits the job. A head started on this machine needs no PATH for it.
    2. The `python` on the head's PATH, for a head on another machine.

    If neither has Ray, the command prints one line and exits with status 2.
    """
    no_python = (
        f"error: the cluster's head has no Python with Ray: tried {python}, and python on its PATH; start the head "
        "with its environment on PATH: PATH=VENV/bin:$PATH ray start ..."
    )
    return (
        f"for python in {shlex.quote(python)} python; do "
        f'"$python" -c {shlex.quote(HAS_RAY)} 2> /dev/null && exec "$python" -m sweeper.run {shlex.join(words)}; done; '
        f"echo {shlex.quote(no_python)} >&2; exit 2"
    )
