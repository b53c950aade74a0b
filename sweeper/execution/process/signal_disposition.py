"""Keeps the system's action at SIGTERM while foreign code replaces it."""

import contextlib
import ctypes
import signal
import threading
from collections.abc import Iterator

RESTORE_SECONDS = 0.001
"""Seconds between two restorations."""
SIGACTION_BYTES = 256
"""Buffer size for the C library's `struct sigaction`, whose size differs between systems (152 bytes on Linux)."""


@contextlib.contextmanager
def kept_disposition() -> Iterator[None]:
    """Context in which a thread restores the disposition of SIGTERM every `RESTORE_SECONDS`, and at its end.

    Ray replaces it by a handler of its own when it starts. When it is shut down it sets the system's default, and then
    takes seconds to end its processes. Python installs handlers from the main thread only; the C library does so from
    any.
    """
    library, action, over = ctypes.CDLL(None), ctypes.create_string_buffer(SIGACTION_BYTES), threading.Event()
    library.sigaction(int(signal.SIGTERM), None, action)

    def restore() -> None:
        while not over.wait(RESTORE_SECONDS):
            library.sigaction(int(signal.SIGTERM), action, None)

    thread = threading.Thread(target=restore, name="disposition", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        library.sigaction(int(signal.SIGTERM), action, None)
