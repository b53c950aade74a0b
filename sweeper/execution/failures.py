"""Why a cohort failed: from the file that its process left, or from Ray's error."""

import contextlib
from pathlib import Path

from sweeper.errors import StoreError
from sweeper.storage.io.files import Files
from trainables.worker.exit_file import SUFFIX, parse_failure
from trainables.worker.messages import Failure

MEMORY = "OutOfMemory"
"""Part of the name of every error about memory, Ray's own included."""
NODE_LOST = "node has died"
"""Part of Ray's message about an actor that was lost with its machine."""


def read_exit_file(checkpoints: Files, checkpoint: str, run: str) -> Failure | None:
    """Return what a cohort's process wrote beside its `checkpoint` before it ended itself, and delete it.

    None if there is nothing, the store fails, or a process of another `run` wrote it.
    """
    with contextlib.suppress(StoreError):
        if (data := checkpoints.read(checkpoint + SUFFIX)) is not None:
            checkpoints.delete(checkpoint + SUFFIX)
            return parse_failure(data, run)
    return None


def failure_in(error_file: str | None) -> Failure:
    """Return the failure that Tune's error file of a trial describes.

    Its last line is the exception, or says that the worker died. The file is read from this machine's disk, because
    Tune calls its callbacks before it copies the file to its storage.
    """
    try:
        text = Path(error_file or "").read_text(errors="replace")
    except OSError:
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["the reason is unknown"]
    last = lines[-1]
    if memory := [line for line in lines if MEMORY in line]:  # Ray writes further lines below it
        return Failure("memory", memory[-1])
    return Failure(
        "machine" if NODE_LOST in last else "error", last.split(". ")[0] if last.startswith("The actor ") else last
    )
