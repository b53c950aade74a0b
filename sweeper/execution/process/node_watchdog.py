"""Ends a driver whose Ray processes have died: Ray itself would let it wait for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import TracebackType

from sweeper.errors import NodeLost

INTERVAL = 1.0
"""Seconds between two checks."""
GRACE = 20.0
"""Seconds within which a driver that has lost its node must end."""


class NodeWatchdog:
    """Context manager that raises NodeLost in the main thread when a Ray process has died.

    `dead_process()` is called every `interval` seconds and returns one line about the dead process, or None. On a
    line, the watchdog sends SIGTERM to this process, whose handler must raise KeyboardInterrupt (see `StopSignal`);
    leaving the context turns that into NodeLost. If the main thread has not left within `grace` seconds, for example
    because a call into Ray blocks it, `before_exit` is called (for at most `grace` seconds) and the process exits with
    status 1. Call `close()` before Ray is shut down on purpose.
    """

    def __init__(
        self,
        dead_process: Callable[[], str | None],
        before_exit: Callable[[], object] = lambda: None,
        interval: float = INTERVAL,
        grace: float = GRACE,
    ) -> None:
        self._dead_process, self._before_exit = dead_process, before_exit
        self._interval, self._grace = interval, grace
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
        while not self._closed.wait(self._interval):
            if reason := self._dead_process():
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
            thread = threading.Thread(target=self._before_exit, name="before exit", daemon=True)
            thread.start()
            thread.join(self._grace)
            sys.stdout.flush()
            os._exit(1)
