"""Stops a sweep in order at Ctrl-C and at SIGTERM, which a stopped Ray job or a shutdown of the machine sends."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
"""Exit status of a process that was stopped by a signal."""
ENDING_SECONDS = 20.0
"""Seconds that the sweep has to end in order after the first signal; a later signal ends the process at once."""
AGAIN = f"stopping; a signal after {ENDING_SECONDS:.0f} s ends this process at once\n"
AGAIN_IN_SESSION = f"stopping; a signal after {ENDING_SECONDS:.0f} s does not wait any longer\n"
LAST_LINE = "interrupted; the same command continues\n"


class StopSignal:
    """Whether this process was asked to stop, as handlers of SIGINT and SIGTERM have noted.

    The first signal raises KeyboardInterrupt and sets `asked`. An exception that is raised at any moment may get lost
    in foreign code; the sweep then stops at the next report. Further signals do not disturb the orderly end for
    `ENDING_SECONDS`. After that a signal prints that the same command continues, and exits with status 130; where the
    process is a session that goes on after the sweep, it raises KeyboardInterrupt again instead.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, exits: bool = True) -> None:
        """`exits`: whether a late signal ends the process; False for a session."""
        self.asked, self._exits = False, exits
        self._clock = clock
        self._asked_at = 0.0
        self._repeated = False

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Context in which the signals are handled here. The previous handlers are restored at the end."""
        before = {number: signal.signal(number, self._stop) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if this process was asked to stop."""
        if self.asked:
            raise KeyboardInterrupt

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked, self._asked_at = True, self._clock()
            raise KeyboardInterrupt
        if self._clock() - self._asked_at >= ENDING_SECONDS:
            if not self._exits:
                raise KeyboardInterrupt
            _write(LAST_LINE)
            os._exit(INTERRUPTED)
        if not self._repeated:
            self._repeated = True
            _write(AGAIN if self._exits else AGAIN_IN_SESSION)


def ignore_signals() -> None:
    """Ignore SIGINT and SIGTERM from now on, when the last line and the exit status of this process are settled."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _write(text: str) -> None:
    """Write to stderr past its buffer, which the interrupted code may be writing to."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
