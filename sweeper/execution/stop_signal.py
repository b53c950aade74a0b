"""Ctrl-C and SIGTERM (a stopped Ray job, a machine shut down) stop a sweep."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
"""Exit status of a process that was stopped."""
ENDING_SECONDS = 20.0
"""Time that the first signal has to end the sweep in order, before another one ends the process at once."""
AGAIN = f"stopping; a signal after {ENDING_SECONDS:.0f} s ends this process at once\n"
LAST_WORDS = "interrupted; the same command continues\n"


class StopSignal:
    """Whether somebody has asked this process to stop.

    The first signal raises KeyboardInterrupt and is remembered: an exception that comes at any moment can get lost in
    code that is not ours, and then the sweep stops at the next report. Later signals leave the orderly end alone for
    `ENDING_SECONDS`; after that the process says that the same command continues and ends with status 130.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.asked = False
        self._clock = clock
        self._asked_at = 0.0
        self._repeated = False

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """While this lasts; handlers that were there before come back after it."""
        before = {number: signal.signal(number, self._stop) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """KeyboardInterrupt if somebody has asked."""
        if self.asked:
            raise KeyboardInterrupt

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked, self._asked_at = True, self._clock()
            raise KeyboardInterrupt
        if self._clock() - self._asked_at >= ENDING_SECONDS:
            _write(LAST_WORDS)
            os._exit(INTERRUPTED)
        if not self._repeated:
            self._repeated = True
            _write(AGAIN)


def ignore_signals() -> None:
    """From now on no signal of ours cuts the end of this process short: its last line and exit status are settled."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _write(text: str) -> None:
    """To stderr without its buffer, which the code that the signal has interrupted may be writing to."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
