"""Ends a process whose work is done."""

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn

from sweeper.execution.process.stop_signal import exit_at_signals


def end_process(status: int) -> NoReturn:
    """End this process as `sys.exit(status)` does, with what was registered for the exit, but leave its objects to the
    operating system: to take PyTorch and Ray apart takes Python a second or two.

    A signal ends it at once with the same status, and calls to a store that does not answer are not waited for.
    """
    exit_at_signals(status, "")
    if filesystems := sys.modules.get("pyarrow.fs"):
        with contextlib.suppress(AttributeError):
            atexit.unregister(filesystems.ensure_s3_finalized)  # it waits until all calls have returned
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(status)
