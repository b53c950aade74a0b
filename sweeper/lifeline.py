"""The node that a driver hangs on: where it dies, Ray lets the driver wait for ever."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from sweeper.cluster import NodeLost

EVERY = 1.0
"""Seconds between two looks."""
GRACE = 20.0
"""Seconds in which a driver that has lost its node must have ended."""


@contextlib.contextmanager
def lifeline(alive: Callable[[], bool], every: float = EVERY, grace: float = GRACE) -> Iterator[None]:
    """While this lasts, a node that is not `alive` ends what runs herein with NodeLost, as SIGTERM does where that
    raises KeyboardInterrupt; the whole process where even that leads nowhere."""
    over, broken = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(every):
            if not alive():
                broken.set()
                os.kill(os.getpid(), signal.SIGTERM)
                if not over.wait(grace):
                    print(f"error: {NodeLost()}; the same command continues", file=sys.stderr, flush=True)
                    os._exit(1)
                return

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        if broken.is_set():
            raise NodeLost from None
        raise
    finally:
        over.set()
