"""A watchdog of the training loop: it ends a process that makes no steps, or that does not stop when asked.

The loop calls `stop` after each step, which also records that a step was made. A hung process is ended in one of two
ways. A thread calls `end` with a failure that contains the position of the training. If that thread cannot run, because
other code holds the interpreter, Python's `faulthandler` ends the process.

`on_termination` handles SIGTERM and SIGHUP: the training saves a checkpoint, then the process exits. Without an active
training the previous handler runs.
"""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self, TextIO

from trainables.worker.messages import Failure

BEGINNING = 5
"""Time limit of the first step as a multiple of the step timeout, because it also reads data and selects kernels."""
GRACE = 60.0
"""Seconds within which a process that was asked to end must have ended."""
FOREIGN = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Folders of the standard library and of installed packages: `where` skips their frames."""


class StepWatchdog:
    """Context manager that watches the thread that creates it."""

    def __init__(self, step_timeout: float, end: Callable[[Failure], None]) -> None:
        """`step_timeout`: seconds without a step after which the process is ended. `end` is called with the failure and
        must end the process."""
        self._step_timeout, self._end, self._thread = step_timeout, end, threading.get_ident()
        self._last_step, self._any_step, self._suspended, self._stop_by = time.monotonic(), False, 0, float("inf")
        self._over = threading.Event()
        self.output: TextIO | int = sys.__stderr__ or 2
        """Where `faulthandler` prints: an open file or its descriptor."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        faulthandler.cancel_dump_traceback_later()

    def stop(self) -> bool:
        """Record that a step was made. Returns whether training should stop."""
        self._last_step, self._any_step = time.monotonic(), True
        return self.asked

    @property
    def asked(self) -> bool:
        """Whether the process was asked to end."""
        return self._stop_by < float("inf")

    def ask(self) -> None:
        """Ask the process to end. It is ended `GRACE` seconds after the first request if it has not stopped by then."""
        self._stop_by = min(self._stop_by, time.monotonic() + GRACE)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Context manager in whose body no steps are expected; the step timeout restarts at its end."""
        self._suspended += 1
        try:
            yield
        finally:
            self._last_step = time.monotonic()
            self._suspended -= 1

    def _watch(self) -> None:
        interval = min(1.0, self._step_timeout / 10)
        while not self._over.wait(interval):
            limit = self._step_timeout * (1 if self._any_step else BEGINNING)
            now = time.monotonic()
            if now > self._stop_by:
                reason = f"stopped: it did not reach a checkpoint within {GRACE:g} s, at {self._position()}"
                self._end(Failure("machine", reason))
            elif not self._suspended and now - self._last_step > limit:
                reason = f"hung: no step was completed within {limit:g} s, at {self._position()}"
                self._end(Failure("hung", reason))
            if not self._over.is_set():
                faulthandler.dump_traceback_later(1.5 * limit, exit=True, file=self.output)
        faulthandler.cancel_dump_traceback_later()

    def _position(self) -> str:
        """Position of the watched thread."""
        return where(sys._current_frames().get(self._thread))


def where(frame: FrameType | None) -> str:
    """File, line and function of the innermost frame that is not library code: `training/cohort.py:139 Cohort.step`.

    If every frame is library code, the innermost frame of all.
    """
    own = frame
    while own and own.f_code.co_filename.startswith((*FOREIGN, "<")):
        own = own.f_back
    own = own or frame
    if not own:
        return "an unknown place"
    path = own.f_code.co_filename.split(os.sep)
    return f"{'/'.join(path[-2:])}:{own.f_lineno} {own.f_code.co_qualname}"


INSTALLED_WITHIN = 5.0
"""Seconds to wait for the main thread to install the signal handler."""
AFTERWARDS = 1.0
"""Seconds between the end of a training that received SIGTERM and the end of the process, so that the caller can still
receive the training's result."""
_PendingCall = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


@contextlib.contextmanager
def on_termination(callback: Callable[[], None]) -> Iterator[None]:
    """Context manager that calls `callback` on the main thread when the process receives SIGTERM, or SIGHUP unless that
    is ignored.

    The previous handler does not run then. Instead the process sends itself SIGTERM, `AFTERWARDS` seconds after the
    body has ended.
    """
    _process.install()
    received = threading.Event()

    def receive() -> None:
        received.set()
        callback()

    _process.callbacks.append(receive)
    try:
        yield
    finally:
        _process.callbacks.remove(receive)
        if received.is_set():
            timer = threading.Timer(AFTERWARDS, os.kill, (os.getpid(), signal.SIGTERM))
            timer.daemon = True
            timer.start()


class _Process:
    """The process's single handler of SIGTERM and SIGHUP, and its callbacks."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self._previous: dict[int, Any] = {}
        self._installed = threading.Event()
        self._pending = _PendingCall(self._install)  # never freed: the interpreter may call it at any time

    def install(self) -> None:
        """Install the handler. Python allows this only on the main thread, which belongs to Ray in a Ray worker, so
        another thread schedules a pending call there and waits for it."""
        if threading.current_thread() is threading.main_thread():
            self._install(None)
        elif not self._installed.is_set():
            ctypes.pythonapi.Py_AddPendingCall(self._pending, None)
            self._installed.wait(INSTALLED_WITHIN)

    def _install(self, _: Any) -> int:
        for number in (signal.SIGTERM, signal.SIGHUP):
            previous = signal.getsignal(number)
            if previous != self._handle and (number == signal.SIGTERM or previous != signal.SIG_IGN):
                self._previous[number] = signal.signal(number, self._handle)
        self._installed.set()
        return 0

    def _handle(self, number: int, frame: Any) -> None:
        if self.callbacks:
            for callback in list(self.callbacks):
                callback()
        elif callable(previous := self._previous[number]):
            previous(number, frame)
        else:
            os._exit(128 + number)


_process = _Process()
