"""The node that a driver hangs on: where it dies, Ray lets the driver wait for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import TracebackType

from sweeper.cluster import NodeLost

EVERY = 1.0
"""Seconds between two looks."""
GRACE = 20.0
"""Seconds in which a driver that has lost its node must have ended."""


class Lifeline:
    """Entered, a node that is not `alive` ends what runs herein with NodeLost, as SIGTERM does where that raises
    KeyboardInterrupt; the whole process where even that leads nowhere. Once closed nobody looks any more: a node that
    is shut down on purpose is dead, too."""

    def __init__(self, alive: Callable[[], bool], every: float = EVERY, grace: float = GRACE) -> None:
        self._alive, self._every, self._grace = alive, every, grace
        self._closed, self._left = threading.Event(), threading.Event()
        self._acting = threading.Lock()
        self._broken = False

    def __enter__(self) -> Lifeline:
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        self._left.set()
        if self._broken and kind is KeyboardInterrupt:
            raise NodeLost from None

    def close(self) -> None:
        """After this no signal comes from here."""
        self._closed.set()
        with self._acting:
            pass

    def _watch(self) -> None:
        while not self._closed.wait(self._every):
            if not self._alive():
                self._act()
                return

    def _act(self) -> None:
        with self._acting:
            if self._closed.is_set():  # it was shut down while we looked
                return
            self._broken = True
            os.kill(os.getpid(), signal.SIGTERM)
        if not self._left.wait(self._grace):
            print(f"error: {NodeLost()}; the same command continues", file=sys.stderr, flush=True)
            os._exit(1)
