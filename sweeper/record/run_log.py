"""The log of a run: what the driver says and what becomes of its cohorts, with times and levels, and Ray's own lines.

It is `STORE/logs/runs/SWEEP/TIME.log`, in every kind of store: written whole every few seconds while there is something
new, so a store needs no appending. A log that cannot be written does not disturb the sweep.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sweeper.errors import StoreError, SweeperError, error_text
from sweeper.masking import masked
from sweeper.planning.cohorts import Cohort
from sweeper.planning.plan import Plan
from sweeper.printing import LAYOUT, LOGGER, print, printable
from sweeper.record.listener import CohortListener, Row
from sweeper.runtime import BackgroundThread
from sweeper.storage.files import Files
from sweeper.storage.layout import run_log_path, timestamp
from sweeper.storage.retry import NO_RETRIES
from trainables.worker.logs import LogText

if TYPE_CHECKING:
    from sweeper.planning.sources import TrainedElsewhere
    from trainables.reports import Heartbeat
    from trainables.worker.messages import CohortReport, Failure

WRITE_SECONDS = 5.0
"""Seconds between two writes."""
LAST_WAIT = 5.0
"""Longest time, in seconds, that the end of a run waits for a write."""
STATE_SECONDS = 60.0
"""Seconds between two lines about the state of the run."""


class RunLog(CohortListener):
    """Context manager that writes the log of a run, in a thread. It keeps the first and the last MiB."""

    def __init__(self, plan: Plan, files: Files) -> None:
        self._plan, self._runtime, self._files = plan, files.runtime, files.with_retries(NO_RETRIES)
        self._path = run_log_path(plan.name, timestamp(files.runtime.now()))
        self._handler, self._over = _Lines(), threading.Event()
        self._text, self._problem = LogText(), ""
        self._news: dict[str, float] = {}
        """Cohort that trains -> clock reading, in seconds, of its last news."""
        self._counts = Counter[str]()
        """Status -> trials that have ended in this run."""
        self._state_at = self._runtime.monotonic()
        self._thread: BackgroundThread | None = None

    @property
    def address(self) -> str:
        return self._files.display_uri_of(self._path)

    def __enter__(self) -> Self:
        LOGGER.addHandler(self._handler)
        LOGGER.info(
            f"run of {self._plan.name} ({self._plan.request}) on {socket.gethostname()}, process {os.getpid()}: "
            f"{self._plan.trials_left} of {self._plan.total} trials to run"
        )
        self._thread = self._runtime.begin("run log", self._watch)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            known = isinstance(error, SweeperError | KeyboardInterrupt)
            text = f"{type(error).__name__}: {error}" if known else "".join(traceback.format_exception(error))
            LOGGER.error(f"the run ends early: {text}")
        LOGGER.removeHandler(self._handler)
        self._over.set()
        assert self._thread
        self._thread.join(LAST_WAIT)
        if not self._thread.is_alive() and not isinstance(error, StoreError):  # neither is waited for once more
            self._write()
        if self._problem and error is None:
            print(f"note: the log of the run cannot be written: {self._problem}", file=sys.stderr)

    def started(self, cohort: Cohort) -> None:
        self._heard_of(cohort)
        LOGGER.info(f"cohort {cohort.id} trains: {', '.join(trial.id for trial in cohort.trials)}")

    def advanced(self, cohort: Cohort, heartbeat: Heartbeat) -> None:
        self._heard_of(cohort)

    def reported(self, cohort: Cohort, message: CohortReport) -> None:
        self._heard_of(cohort)
        LOGGER.info(f"cohort {cohort.id} reports epoch {message.report.epoch}")
        for line in filter(None, (message.notice, message.about_steps)):
            LOGGER.warning(f"cohort {cohort.id}: {line}")

    def waits(self, cohort: Cohort) -> None:
        self._news.pop(cohort.id, None)
        LOGGER.info(f"cohort {cohort.id} waits at a rung")

    def interrupted(self, cohort: Cohort, failure: Failure) -> None:
        self._news.pop(cohort.id, None)
        LOGGER.warning(f"cohort {cohort.id} was cut off and is tried again ({failure.cause}): {failure.reason}")

    def split(self, cohort: Cohort, parts: Sequence[Cohort], failure: Failure) -> None:
        self._news.pop(cohort.id, None)
        into = ", ".join(part.id for part in parts)
        LOGGER.warning(f"cohort {cohort.id} begins anew as {into} ({failure.cause}): {failure.reason}")

    def failed(self, cohort: Cohort, failure: Failure) -> None:
        self._news.pop(cohort.id, None)
        LOGGER.error(f"cohort {cohort.id} failed for good ({failure.cause}): {failure.reason}")

    def trained_elsewhere(self, trials: TrainedElsewhere) -> None:
        LOGGER.info(f"another driver has trained {len(trials.statuses)} trials")

    def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        self._news.pop(cohort.id, None)
        statuses = Counter(str(row["status"]) for row in rows)
        self._counts.update(statuses)
        LOGGER.info(f"cohort {cohort.id}: rows of {_counted(statuses)} trials are written")
        for row in rows:
            if row["status"] == "diverged":
                LOGGER.warning(f"trial {row['trial_id']} diverged: {row['error']}")

    def _heard_of(self, cohort: Cohort) -> None:
        self._news[cohort.id] = self._runtime.monotonic()

    def _watch(self) -> None:
        while not self._runtime.wait(self._over, WRITE_SECONDS):
            if self._runtime.monotonic() - self._state_at >= STATE_SECONDS:
                self._state_at = self._runtime.monotonic()
                LOGGER.info(self._state())
            self._write()

    def _state(self) -> str:
        """What a person who asks whether the run hangs looks at first."""
        news, now = dict(self._news), self._runtime.monotonic()
        cohorts = f"state: {len(news)} cohorts train"
        if news:
            silent = min(news, key=lambda cohort: news[cohort])
            cohorts += f", the longest without news {silent} for {now - news[silent]:.0f} s"
        return f"{cohorts}; {_counted(self._counts) if self._counts else 'no'} trials have ended in this run"

    def _write(self) -> None:
        """Write what is new."""
        if not (new := self._handler.take()) and not self._problem:
            return
        self._text = self._text.with_more(new)
        try:
            self._files.write(self._path, bytes(self._text))
            self._problem = ""
        except SweeperError as error:
            self._problem = error_text(error)


class _Lines(logging.Handler):
    """Keeps log records as lines, until they are taken."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        text = printable(masked(record.getMessage().strip("\n")), keep=LAYOUT).replace("\n", "\n    ")
        self._lines.append(f"{moment}.{int(record.msecs):03}Z {record.levelname:<7} {record.name}: {text}\n")

    def take(self) -> bytes:
        self.acquire()
        lines, self._lines = self._lines, []
        self.release()
        return "".join(lines).encode()


def _counted(statuses: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in statuses.items())
