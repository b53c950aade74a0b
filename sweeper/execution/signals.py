"""Stops a sweep in order at Ctrl-C, at SIGTERM, which a stopped Ray job or a shutdown of the machine sends, at SIGHUP,
which a terminal sends that is closed, and at `q` in a debugger. A SIGHUP that is ignored, as under `nohup`, stays so.
"""

import bdb
import contextlib
import ctypes
import errno
import math
import os
import pdb
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
"""Exit status of a process that was stopped by a signal."""
ENDING_SECONDS = 20.0
"""Seconds that the sweep has to end in order after the first signal; a later signal ends the process at once."""
STUCK_SECONDS = 5.0
"""Seconds within which Python must handle a signal. It does so between two of its own instructions, so never while the
main thread is in a call into C that does not return."""
TOGETHER_SECONDS = 1.0
"""Seconds within which signals count as handled by one run of a handler."""
AGAIN = f"stopping; a signal after {ENDING_SECONDS:.0f} s ends this process at once\n"
AGAIN_IN_SESSION = f"stopping; a signal after {ENDING_SECONDS:.0f} s does not wait any longer\n"
LAST_LINE = "interrupted; the same command continues\n"


class DebuggerQuit(KeyboardInterrupt):
    """`q` in a debugger stops a sweep as Ctrl-C does."""


@contextlib.contextmanager
def debugger_interrupts() -> Iterator[None]:
    """Context in which `q` in a debugger raises DebuggerQuit. Its usual BdbQuit is an Exception, which callers of the
    user's code would take for an error of that code. Python 3.14 and later would ask instead, and exit the process."""
    names = ("do_q", "do_quit", "do_exit")
    before, commands = bdb.BdbQuit, {name: getattr(pdb.Pdb, name) for name in names}
    bdb.BdbQuit = DebuggerQuit  # type: ignore[assignment,misc]
    for name in names:
        setattr(pdb.Pdb, name, _quit)
    try:
        yield
    finally:
        bdb.BdbQuit = before  # type: ignore[misc]
        for name in names:
            setattr(pdb.Pdb, name, commands[name])


def _quit(debugger: pdb.Pdb, _: str) -> bool:
    """Quit the debugger. Returns True: it reads no further command."""
    debugger.set_quit()
    return True


class StopSignal:
    """Whether this process was asked to stop, as handlers of `SIGNALS` have noted.

    The first signal raises KeyboardInterrupt and sets `asked`. An exception that is raised at any moment may get lost
    in foreign code; the sweep then stops at the next report. Further signals do not disturb the orderly end for
    `ENDING_SECONDS`. After that a signal prints that the same command continues, and exits with status 130; where the
    process is a session that goes on after the sweep, it raises KeyboardInterrupt again instead. A process whose main
    thread is stuck, so that no handler runs, is ended by a thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, exits: bool = True) -> None:
        """`exits`: whether a late signal ends the process; False for a session."""
        self.asked, self._exits = False, exits
        self._clock = clock
        self._asked_at = 0.0
        self._repeated = False
        self._handled_at = -math.inf
        """Time on the monotonic clock at which a handler last ran."""

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Context in which the signals are handled here. The previous handlers are restored at the end."""
        before = {number: signal.signal(number, self._stop) for number in _heeded()}
        try:
            with self._watched() if self._exits else contextlib.nullcontext():
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if this process was asked to stop."""
        if self.asked:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Context in which a thread learns of each signal from the system, and exits if no handler runs."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        ended = threading.Event()
        threading.Thread(target=self._watch, args=(reader, ended), name="signals", daemon=True).start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            ended.set()
            os.close(writer)  # ends the thread

    def _watch(self, reader: int, ended: threading.Event) -> None:
        """Exit if a signal arrives and its handler does not run, before the context has `ended`.

        Signals that arrive together are handled once, and perhaps before this thread learns of the first. So one counts
        as handled if a handler has run since shortly before.
        """
        while numbers := os.read(reader, 1):
            if numbers[0] == signal.SIGHUP:  # whoever handles it
                _leave_terminal()
            since, deadline = time.monotonic() - TOGETHER_SECONDS, time.monotonic() + STUCK_SECONDS
            ours = numbers[0] in SIGNALS and signal.getsignal(numbers[0]) == self._stop
            while ours and self._handled_at < since and time.monotonic() < deadline:
                ours = not ended.wait(STUCK_SECONDS / 100)
            in_order = self.asked and self._clock() - self._asked_at < ENDING_SECONDS
            if ours and self._handled_at < since and not in_order:
                _write(LAST_LINE)
                os._exit(INTERRUPTED)
        os.close(reader)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._handled_at = time.monotonic()
        if number == signal.SIGHUP:
            _leave_terminal()
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


def exit_at_signals(status: int = INTERRUPTED, last_line: str = LAST_LINE) -> None:
    """From now on `SIGNALS` end this process at once, as nothing of it is worth an orderly end: it still imports its
    modules, or its last line is printed and its `status` is settled."""

    def leave(number: int, frame: FrameType | None) -> None:
        _write(last_line)
        os._exit(status)

    for number in _heeded():
        signal.signal(number, leave)


def _heeded() -> list[signal.Signals]:
    """`SIGNALS`, without a SIGHUP that is ignored."""
    return [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]


def _leave_terminal() -> None:
    """Drop what is printed from now on to a terminal that is gone: an error there would disturb the orderly end."""
    for stream in (1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


@contextlib.contextmanager
def hangup_blocked() -> Iterator[None]:
    """Context in which processes are started that a closed terminal does not end, so that they live until this one has
    ended in order. A SIGHUP is handled here at its end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _write(text: str) -> None:
    """Write to stderr past its buffer, which the interrupted code may be writing to."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, text.encode())


RESTORE_SECONDS = 0.001
"""Seconds between two restorations."""
SIGACTION_BYTES = 256
"""Buffer size for the C library's `struct sigaction`, whose size differs between systems (152 bytes on Linux)."""


@contextlib.contextmanager
def kept_disposition() -> Iterator[None]:
    """Context in which a thread restores the disposition of SIGTERM every `RESTORE_SECONDS`, and at its end.

    Ray replaces it by a handler of its own when it starts. When it is shut down it sets the system's default, and then
    takes seconds to end its processes. Python installs handlers from the main thread only; the C library does so from
    any.
    """
    library, action, over = ctypes.CDLL(None), ctypes.create_string_buffer(SIGACTION_BYTES), threading.Event()
    library.sigaction(int(signal.SIGTERM), None, action)

    def restore() -> None:
        while not over.wait(RESTORE_SECONDS):
            library.sigaction(int(signal.SIGTERM), action, None)

    thread = threading.Thread(target=restore, name="disposition", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        library.sigaction(int(signal.SIGTERM), action, None)
