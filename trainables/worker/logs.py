"""The printed output of a trial, from Python, C++ libraries and subprocesses.

File descriptors 1 and 2 point to a temporary file while a cohort trains. A pipe would need a reader that keeps up: C
code that writes to a full pipe while it holds the interpreter would also stop the reader. The file is opened with
O_APPEND, so that writers continue at its new end when it is truncated.
"""

import contextlib
import faulthandler
import fcntl
import os
import re
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

from trainables.reports import LogError, Stopped

SIDE = 1 << 20
"""Maximum number of bytes kept of a log's beginning, and of its end."""
MOST_ON_DISK = 4 * SIDE
"""Size in bytes from which the temporary file is truncated."""
CATCH_UP = 20
"""Most reads of the file in one poll, while more is printed."""
POLL_SECONDS, BUSY_SECONDS = 1.0, 0.05
"""Seconds between two polls of the file, and while it is filled fast."""
WRITE_SECONDS = 10.0
"""Minimum seconds between two writes of a log that changes while its trial trains."""
_LEFT_OUT = re.compile(rb"\n\[(\d{1,18}) bytes left out\]\n")


class Logs(Protocol):
    """Storage of trials' printed output, reachable from every node."""

    def read(self, trial: str) -> bytes | None:
        """Return the log of a trial; None if it is missing or damaged. Raises LogError if it cannot be read."""

    def write(self, trial: str, data: bytes) -> None:
        """Replace the log of a trial atomically. Raises LogError if it cannot be written."""


@dataclass(frozen=True)
class LogText:
    """The first and the last `SIDE` bytes of a text, and the number of bytes left out between them."""

    head: bytes = b""
    left_out: int = 0
    tail: bytes = b""

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The text from the result of `bytes`."""
        if match := _LEFT_OUT.match(data, SIDE):
            return cls(data[:SIDE], int(match[1])).with_more(data[match.end() :])
        return cls().with_more(data)

    @property
    def room(self) -> int:
        """Number of bytes that still fit into the head."""
        return 0 if self.left_out or self.tail else SIDE - len(self.head)

    def with_more(self, data: bytes, left_out: int = 0) -> Self:
        """The text, followed by `left_out` bytes and then `data`."""
        if left_out:
            return replace(self, left_out=self.left_out + len(self.tail) + left_out, tail=b"").with_more(data)
        tail = self.tail + data[self.room :]
        cut = max(0, len(tail) - SIDE)
        return replace(self, head=self.head + data[: self.room], left_out=self.left_out + cut, tail=tail[cut:])

    def __bytes__(self) -> bytes:
        between = b"\n[%d bytes left out]\n" % self.left_out if self.left_out else b""
        return self.head + between + self.tail


class LogCapture:
    """Context manager that writes this process's output on descriptors 1 and 2 to `logs`.

    `begin` names the trials to which the output belongs. If a trial printed something earlier, in any process, its log
    continues after a line that says so. Nothing raises an exception.
    """

    def __init__(self, logs: Logs, notify: Callable[[str], None]) -> None:
        """`notify` is called once, with a line, if a log cannot be stored."""
        self._logs, self._notify, self._notified = logs, notify, False
        self._trials, self._text, self._is_changed = tuple[str, ...](), LogText(), False
        self._earlier: dict[str, LogText] = {}
        """Id of a trial -> its log before `_text`."""
        self._file, self._position, self._saved = -1, 0, list[int]()
        self._lock, self._over = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="log", daemon=True)

    def __enter__(self) -> Self:
        try:
            with tempfile.TemporaryFile(buffering=0) as file:
                self._file = os.dup(file.fileno())
            fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) | os.O_APPEND)
            _flush()
            self._saved = [os.dup(1), os.dup(2)]
        except OSError as error:  # without a folder for temporary files it trains without a log
            self._say(error)
            return self
        os.dup2(self._file, 1)
        os.dup2(self._file, 2)
        if faulthandler.is_enabled():  # nothing reads the file after a crash of this process
            faulthandler.enable(self._saved[1], all_threads=False)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not self._saved:
            return
        if error and not isinstance(error, Stopped):
            with contextlib.suppress(Exception):
                traceback.print_exception(error)
        _flush()
        os.dup2(self._saved[0], 1)
        os.dup2(self._saved[1], 2)
        if faulthandler.is_enabled():
            faulthandler.enable(2, all_threads=False)
        self._over.set()
        self.save()
        with self._lock:
            for descriptor in (*self._saved, self._file):
                os.close(descriptor)
            self._saved, self._file = [], -1

    @property
    def crash_output(self) -> int:
        """Descriptor of the process's own stderr, for output while the process dies."""
        return self._saved[1] if self._saved else 2

    def begin(self, *trials: str) -> None:
        """Write the output so far, and assign all further output to each of `trials`."""
        with self._lock:
            self.save()
            self._trials, self._text, self._is_changed, self._earlier = trials, LogText(), False, {}

    def save(self) -> None:
        """Write the output so far."""
        with self._lock:
            self._read_new()
            if not self._is_changed:
                return
            self._is_changed = False
            for trial in self._trials:
                try:
                    if trial not in self._earlier:
                        self._earlier[trial] = _continued(self._logs.read(trial))
                    now, earlier = self._text, self._earlier[trial]
                    text = earlier.with_more(now.head).with_more(now.tail, now.left_out)
                    self._logs.write(trial, bytes(text))
                except LogError as error:
                    self._is_changed = True
                    self._say(error)
                    return

    def _say(self, error: Exception) -> None:
        if not self._notified:
            self._notify(f"its printed output cannot be stored: {error}")
        self._notified = True

    def _read_new(self) -> bool:
        """Read what is new in the file. Returns whether there was so much that the file was truncated."""
        if self._file < 0:
            return False
        _flush()
        with contextlib.suppress(OSError):
            for _ in range(CATCH_UP):
                size = os.fstat(self._file).st_size
                if size == self._position:
                    break
                self._position, self._is_changed = min(self._position, size), True
                for start, stop in self._parts(size):
                    data = os.pread(self._file, stop - start, start)
                    self._text = self._text.with_more(data, start - self._position)
                    self._position = start + len(data)
            if self._position > MOST_ON_DISK:  # what is printed between the last read and now is lost
                os.ftruncate(self._file, 0)
                self._position = 0
                return True
        return False

    def _parts(self, size: int) -> Iterator[tuple[int, int]]:
        """The start and stop of the parts of the file to read: only bytes that become part of the text."""
        first = min(size, self._position + self._text.room)
        if first > self._position:
            yield self._position, first
        if size > first:
            yield max(first, size - SIDE), size

    def _watch(self) -> None:
        wait, next_write = POLL_SECONDS, 0.0
        while not self._over.wait(wait):
            with self._lock:
                wait = BUSY_SECONDS if self._read_new() else POLL_SECONDS
                if self._is_changed and (began := time.monotonic()) >= next_write:
                    self.save()
                    ended = time.monotonic()
                    next_write = ended + max(WRITE_SECONDS, 10 * (ended - began))


def _continued(earlier: bytes | None) -> LogText:
    """The text with which a log begins: that of an `earlier` process, and a line."""
    if not earlier:
        return LogText()
    line = f"[continued at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC]\n"
    return LogText.of(earlier).with_more((line if earlier.endswith(b"\n") else f"\n{line}").encode())


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or missing
            stream.flush()
