"""Watches a training from beside it: that it goes on, and whether the process is asked to end.

The loop asks `stop` after each step, which also says that it goes on. A process that does not go on is ended: by a
thread here that says where it stood, or, where that gets no turn, by Python's `faulthandler`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

from trainables.contract import HUNG, STOPPED, Stopped

BEGINNING = 5
"""How many times as long the first step may take: data are read, and kernels chosen."""
GRACE = 60.0
"""Seconds in which a process that is asked to end must have ended."""
TURN = 0.2
"""Seconds between questions whether to stop, while something else is awaited."""
FOREIGN = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Code that stands there for somebody else."""


class StepWatchdog:
    """Watches the thread that makes it, from `with` to its end."""

    def __init__(self, patience: float, end: Callable[[str], None]) -> None:
        """`patience`: seconds without a step after which `end` is called, with a line that says why, and is to end the
        process."""
        self._patience, self._end, self._thread = patience, end, threading.get_ident()
        self._seen, self._begun, self._suspended, self._stop_by = time.monotonic(), False, 0, float("inf")
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        faulthandler.cancel_dump_traceback_later()

    def stop(self) -> bool:
        """Whether to stop; asked once a step, so that it is known that steps are made."""
        self._seen, self._begun = time.monotonic(), True
        return self.asked

    @property
    def asked(self) -> bool:
        """Whether the process is asked to end."""
        return self._stop_by < float("inf")

    def ask(self) -> None:
        """Ask the process to end; it is ended after `GRACE` seconds if it does not."""
        self._stop_by = min(self._stop_by, time.monotonic() + GRACE)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """No step is to be expected herein."""
        self._suspended += 1
        try:
            yield
        finally:
            self._seen = time.monotonic()
            self._suspended -= 1

    def awaiting(self, call: Callable[[Any], Any], argument: Any) -> Any:
        """What the call returns or raises, however long it takes; Stopped as soon as the process is asked to end."""
        done, results, errors = threading.Event(), [], []

        def run() -> None:
            try:
                results.append(call(argument))
            except BaseException as error:
                errors.append(error)
            done.set()

        with self.suspended():
            threading.Thread(target=run, name="awaited", daemon=True).start()
            while not done.wait(TURN):
                if self.asked:
                    raise Stopped
        if errors:
            raise errors[0]
        return results[0]

    def _watch(self) -> None:
        turn = min(1.0, self._patience / 10)
        while not self._over.wait(turn):
            limit = self._patience * (1 if self._begun else BEGINNING)
            now = time.monotonic()
            if now > self._stop_by:
                self._end(f"{STOPPED}: it did not get to a checkpoint within {GRACE:g} s, at {self._standing()}")
            elif not self._suspended and now - self._seen > limit:
                self._end(f"{HUNG}: no step was completed within {limit:g} s, at {self._standing()}")
            if not self._over.is_set():
                faulthandler.dump_traceback_later(1.5 * limit, exit=True, file=sys.__stderr__ or 2)
        faulthandler.cancel_dump_traceback_later()

    def _standing(self) -> str:
        return where(sys._current_frames().get(self._thread))


def where(frame: FrameType | None) -> str:
    """File, line and function of the innermost frame that is nobody's library."""
    found = frame
    while found and found.f_code.co_filename.startswith((*FOREIGN, "<")):
        found = found.f_back
    found = found or frame
    if not found:
        return "an unknown place"
    path = found.f_code.co_filename.split(os.sep)
    return f"{'/'.join(path[-2:])}:{found.f_lineno} {found.f_code.co_qualname}"
