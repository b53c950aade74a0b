"""Ends a driver whose Ray processes have died: Ray itself would let it wait for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import TracebackType

from sweeper.errors import NodeLost

EVERY = 1.0
"""Seconds between two checks."""
GRACE = 20.0
"""Seconds within which a driver that has lost its node must end."""


class NodeWatchdog:
    """Context manager that raises NodeLost in the main thread when a Ray process has died.

    `died()` is called every `every` seconds and returns one line about the dead process, or None. On a line, the
    watchdog sends SIGTERM to this process, whose handler must raise KeyboardInterrupt (see `StopSignal`); leaving the
    context turns that into NodeLost. If the main thread has not left within `grace` seconds, for example because a call
    into Ray blocks it, `last_words` is called (for at most `grace` seconds) and the process exits with status 1. Call
    `close()` before Ray is shut down on purpose.
    """

    def __init__(
        self,
        died: Callable[[], str | None],
        last_words: Callable[[], object] = lambda: None,
        every: float = EVERY,
        grace: float = GRACE,
    ) -> None:
        self._died, self._last_words, self._every, self._grace = died, last_words, every, grace
        self._closed, self._left = threading.Event(), threading.Event()
        self._acting = threading.Lock()
        self._reason: str | None = None

    def __enter__(self) -> NodeWatchdog:
        threading.Thread(target=self._watch, name="node-watchdog", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        self._left.set()
        if self._reason and kind is KeyboardInterrupt:
            raise NodeLost(self._reason) from None

    def close(self) -> None:
        """Stop checking. No signal is sent after this returns."""
        self._closed.set()
        with self._acting:
            pass

    def _watch(self) -> None:
        while not self._closed.wait(self._every):
            if reason := self._died():
                self._act(reason)
                return

    def _act(self, reason: str) -> None:
        with self._acting:
            if self._closed.is_set():  # closed during the check: Ray was shut down on purpose
                return
            self._reason = reason
            os.kill(os.getpid(), signal.SIGTERM)
        if not self._left.wait(self._grace):
            print(f"error: {reason}; the same command continues", file=sys.stderr, flush=True)
            speaking = threading.Thread(target=self._last_words, name="last words", daemon=True)
            speaking.start()
            speaking.join(self._grace)
            sys.stdout.flush()
            os._exit(1)
