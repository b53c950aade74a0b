"""Why a cohort failed: from the file that its process left, or from an exception."""

import contextlib

from sweeper.errors import StoreError
from sweeper.storage.io.files import Files
from trainables.reports import Stopped
from trainables.worker.exit_file import SUFFIX, parse_failure
from trainables.worker.messages import Failure

MEMORY = "OutOfMemory"
"""Part of the name of every error about memory."""


def read_exit_file(checkpoints: Files, checkpoint: str, run: str) -> Failure | None:
    """Return what a cohort's process wrote beside its `checkpoint` before it ended itself, and delete it.

    None if there is nothing, the store fails, or a process of another `run` wrote it.
    """
    with contextlib.suppress(StoreError):
        if (data := checkpoints.read(checkpoint + SUFFIX)) is not None:
            checkpoints.delete(checkpoint + SUFFIX)
            return parse_failure(data, run)
    return None


def failure_of(error: BaseException) -> Failure:
    """Return the failure that an exception of a training stands for. Its reason is the first line of the exception."""
    if isinstance(error, Stopped):
        return Failure("machine", f"stopped: {error}")
    name, [line, *_] = type(error).__name__, str(error).strip().splitlines() or [""]
    return Failure("memory" if MEMORY in name else "error", f"{name}: {line}" if line else name)
