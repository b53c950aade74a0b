"""Ctrl-C and SIGTERM (a stopped Ray job, a machine shut down) stop a sweep."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Never


class Stopping:
    """Whether somebody has asked. A signal raises KeyboardInterrupt, and is remembered as well: an exception that comes
    at any moment can get lost in code that is not ours, and then the sweep stops at the next report."""

    def __init__(self) -> None:
        self.asked = False

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """While this lasts; handlers that were there before come back after it."""

        def stop(*_: object) -> Never:
            self.asked = True
            raise KeyboardInterrupt

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """KeyboardInterrupt if somebody has asked."""
        if self.asked:
            raise KeyboardInterrupt
