"""SIGTERM to a process that trains: who trains is told, and saves; where nobody does, what was to happen happens."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

INSTALLED_WITHIN = 5.0
"""Seconds in which the main thread of a process takes up what it is asked to do."""
AFTERWARDS = 1.0
"""Seconds in which whoever awaits the end of a training that ended just then can hear of it."""
_PendingCall = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


@contextlib.contextmanager
def on_sigterm(tell: Callable[[], None]) -> Iterator[None]:
    """SIGTERM herein calls `tell`, on the main thread, and nothing else; the process ends shortly after this does."""
    _process.install()
    told = threading.Event()

    def heard() -> None:
        told.set()
        tell()

    _process.tell.append(heard)
    try:
        yield
    finally:
        _process.tell.remove(heard)
        if told.is_set():
            timer = threading.Timer(AFTERWARDS, os.kill, (os.getpid(), signal.SIGTERM))
            timer.daemon = True
            timer.start()


class _Process:
    """Who is told, in this process; there is one handler."""

    def __init__(self) -> None:
        self.tell: list[Callable[[], None]] = []
        self._before: Any = None
        self._installed = threading.Event()
        self._pending = _PendingCall(self._install)  # as long as the process: it may be called at any time

    def install(self) -> None:
        """Python sets handlers on the main thread alone, which in a worker of Ray is Ray's."""
        if threading.current_thread() is threading.main_thread():
            self._install(None)
        elif not self._installed.is_set():
            ctypes.pythonapi.Py_AddPendingCall(self._pending, None)
            self._installed.wait(INSTALLED_WITHIN)

    def _install(self, _: Any) -> int:
        before = signal.signal(signal.SIGTERM, self._handle)
        if before != self._handle:
            self._before = before
        self._installed.set()
        return 0

    def _handle(self, number: int, frame: Any) -> None:
        if self.tell:
            for tell in list(self.tell):
                tell()
        elif callable(self._before):
            self._before(number, frame)
        else:
            os._exit(128 + number)


_process = _Process()
