"""Handle SIGTERM in a training process: the training saves a checkpoint, then the process exits. Where nothing trains,
the previous handler runs."""

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

INSTALLED_WITHIN = 5.0
"""Seconds to wait for the main thread to install the signal handler."""
AFTERWARDS = 1.0
"""Seconds between the end of a training that received SIGTERM and the end of the process, so that whoever waits for the
training can still receive its result."""
_PendingCall = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


@contextlib.contextmanager
def on_sigterm(callback: Callable[[], None]) -> Iterator[None]:
    """Context manager that calls `callback` on the main thread when the process receives SIGTERM.

    The previous handler does not run then. Instead the process sends itself SIGTERM again, `AFTERWARDS` seconds after
    the body has ended.
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
    """The one SIGTERM handler of this process, and the callbacks that it calls."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self._previous: Any = None
        self._installed = threading.Event()
        self._pending = _PendingCall(self._install)  # kept for good: the interpreter may call it at any time

    def install(self) -> None:
        """Install the handler. Python allows that on the main thread only, which in a Ray worker belongs to Ray, so
        another thread schedules a pending call there and waits for it."""
        if threading.current_thread() is threading.main_thread():
            self._install(None)
        elif not self._installed.is_set():
            ctypes.pythonapi.Py_AddPendingCall(self._pending, None)
            self._installed.wait(INSTALLED_WITHIN)

    def _install(self, _: Any) -> int:
        previous = signal.signal(signal.SIGTERM, self._handle)
        if previous != self._handle:
            self._previous = previous
        self._installed.set()
        return 0

    def _handle(self, number: int, frame: Any) -> None:
        if self.callbacks:
            for callback in list(self.callbacks):
                callback()
        elif callable(self._previous):
            self._previous(number, frame)
        else:
            os._exit(128 + number)


_process = _Process()
