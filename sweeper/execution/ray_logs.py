"""Ray's own lines, in the log of the run and not in the terminal.

- What Ray's Python code logs in this process goes there, too.
- Of a cluster that was joined, Ray sends the driver what its processes print (`log_to_driver`); these lines are taken
  where Ray would print them. A Ray Client (`ray://`) gets them printed already, so it asks for none.
- A local cluster has no process that sends such lines (`ray_internals.lean_start`). Its files are read here: all that
  workers print outside of trainings, and the warnings and errors of Ray's servers. They are deleted with the cluster.

What trials print while they train is not among them: it is in the logs of the trials.
"""

import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweeper.printing import LOGGER

LOOK_SECONDS = 5.0
"""Seconds between two looks at the files of a local cluster."""
MOST_BYTES = 1 << 16
"""Most bytes of a file that one look takes: the last ones."""
WHOLE, SERVERS = ("worker-*.out", "worker-*.err", "raylet.err", "gcs_server.err"), ("raylet.out", "gcs_server.out")
"""Files of which each line counts, and of which warnings and errors do."""
MARK = re.compile(r":(job_id|actor_name|task_name):")
"""Beginning of a line by which Ray says whose the following ones are."""
SEVERE = re.compile(r"\[[^\]]* ([WEF]) \d+ \d+\]")
"""Beginning of a line of Ray's servers that is a warning or worse."""
EVENT = re.compile(r":event_summary:|\{|.*\b(WARNING|ERROR)\b")
"""Beginning of a line of the autoscaler that says what has happened. All others are its state, every five seconds."""
LEVELS = {"W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}
RAY = logging.Logger("sweeper.ray", logging.INFO)
RAY.parent = LOGGER


@contextlib.contextmanager
def captured_loggers() -> Iterator[None]:
    """Context in which Ray's loggers in this process lead to the log of the run alone."""
    loggers = [logging.getLogger(name) for name in ("ray", "ray.train", "ray.data")]
    before = [(logger.level, logger.handlers, logger.propagate, logger.parent) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.INFO)
        # By its parent, and not by a handler: `ray.init` removes all handlers.
        logger.handlers, logger.propagate, logger.parent = [], True, RAY
    try:
        yield
    finally:
        for logger, (level, handlers, propagate, parent) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.handlers, logger.propagate, logger.parent = handlers, propagate, parent


def take_lines(data: Mapping[str, Any], *_: object, **__: object) -> None:
    """Log what a process of a cluster has printed, as Ray sends it to drivers."""
    source = f"{data.get('actor_name') or data.get('task_name') or 'process'} {data.get('pid')} {data.get('ip')}"
    for line in data.get("lines", ()):
        if data.get("pid") != "autoscaler" or EVENT.match(line):
            _log(source, line)


@contextlib.contextmanager
def captured_files(folder: Path) -> Iterator[None]:
    """Context in which new lines of a local cluster's files are logged. `folder` is that of its sessions."""
    over, reader = threading.Event(), _GrowingFiles(folder / "session_latest/logs")

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            reader.look()

    thread = threading.Thread(target=watch, name="ray log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(LOOK_SECONDS)
        reader.look()


class _GrowingFiles:
    """Logs what is new in files that grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        """File -> bytes of it that were taken."""

    def look(self) -> None:
        for patterns, severe in ((WHOLE, False), (SERVERS, True)):
            for path in sorted(path for pattern in patterns for path in self._folder.glob(pattern)):
                with contextlib.suppress(OSError):  # it may vanish at any moment
                    self._take(path, severe)

    def _take(self, path: Path, severe: bool) -> None:
        size, start = os.stat(path).st_size, self._read.get(path, 0)
        if size <= start:
            return
        with path.open("rb") as stream:
            stream.seek(max(start, size - MOST_BYTES))
            data = stream.read(MOST_BYTES)
        end = data.rfind(b"\n") + 1
        self._read[path] = size - len(data) + end  # the rest of the last line comes with the next look
        for line in data[:end].decode(errors="replace").splitlines():
            if not severe or SEVERE.match(line):
                _log(path.name, line)


def _log(source: str, line: str) -> None:
    if line.strip() and not MARK.match(line):
        level = SEVERE.match(line)
        RAY.log(LEVELS[level[1]] if level else logging.INFO, "%s: %s", source, line)
