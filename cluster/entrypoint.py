"""The line that starts a sweep on the head: for its shell, with a Python that has Ray."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

HAS_RAY = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"
"""Program that ends with status 0 where Ray is installed."""


def entrypoint(words: Sequence[str], python: str = sys.executable) -> str:
    """A line for the head's shell that runs `sweeper.run WORDS` and becomes that process.

    It takes the first that has Ray of `python`, the interpreter of whoever submits, and the `python` of the head's
    PATH. So a head that was started on this machine as `.venv/bin/ray start` needs no PATH, and a head elsewhere, where
    there is no such file, uses its own. Without either the job prints one line and ends with status 2.
    """
    nothing = (
        f"error: no Python with Ray on the cluster's head: tried {python}, and python on its PATH; start the head with "
        "its environment on PATH: PATH=VENV/bin:$PATH ray start ..."
    )
    return (
        f"for python in {shlex.quote(python)} python; do "
        f'"$python" -c {shlex.quote(HAS_RAY)} 2> /dev/null && exec "$python" -m sweeper.run {shlex.join(words)}; done; '
        f"echo {shlex.quote(nothing)} >&2; exit 2"
    )
