"""Calls to a store that is reached over a network, which can be silent for minutes.

pyarrow waits in C++, where no signal reaches Python. So each call is made in a thread of its own, and the caller waits
for it in Python.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic

from sweeper.storage.io.retry import Result

SILENCE_SECONDS = 8.0
"""Seconds without an answer after which `on_silence` is called."""
ENDING_SECONDS = 1.0
"""Seconds that a call may still take after an interrupt, so that a write that has nearly ended is not left alone."""
_OF_THREAD = threading.local()


class NoAnswerError(OSError):
    """The store has not answered in time."""


def call_remotely(
    operation: Callable[[], Result],
    limit: float,
    on_silence: Callable[[float], None],
    silence: float = SILENCE_SECONDS,
) -> Result:
    """Return `operation()`, or raise what it raises. Raises NoAnswerError after `limit` seconds without an answer.

    `operation` runs in a daemon thread. After `silence` seconds without an answer `on_silence` is called once, with the
    seconds that are left. An operation of several steps calls `made_progress` after each, and the time begins anew. If
    there is no answer in time, or this thread is interrupted, the operation is left alone: it may still take effect.
    """
    call = _Call(operation)
    threading.Thread(target=call.run, name="store", daemon=True).start()
    told = False
    try:
        while not call.ended.wait(max(0.01, call.progress_at + (limit if told else min(limit, silence)) - _now())):
            silent = _now() - call.progress_at
            if silent >= limit:
                raise NoAnswerError(f"no answer for {silent:.0f} s")
            if silent >= silence and not told:
                told = True
                on_silence(limit - silent)
    except BaseException as error:
        if not isinstance(error, NoAnswerError):
            call.ended.wait(ENDING_SECONDS)
        raise
    return call.outcome()


def made_progress() -> None:
    """Say that the store has answered, from within an operation; elsewhere nothing happens."""
    if call := getattr(_OF_THREAD, "call", None):
        call.progress_at = _now()


class _Call(Generic[Result]):
    """A call in progress."""

    def __init__(self, operation: Callable[[], Result]) -> None:
        self.ended, self.progress_at = threading.Event(), _now()
        self._operation = operation
        self._results: list[Result] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        _OF_THREAD.call = self
        try:
            self._results.append(self._operation())
        except BaseException as error:
            self._error = error
        self.ended.set()

    def outcome(self) -> Result:
        if self._error:
            raise self._error
        return self._results[0]


_now = time.monotonic
