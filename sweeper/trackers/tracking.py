"""Passes what becomes of trials on to a tracker, without ever failing or delaying the sweep.

The sweep only notes what there is to send. A thread compares that with what the tracker has and sends the difference.
So a call that failed is simply made again, and what a run of the command could not send, the next run sends.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from sweeper.masking import masked
from sweeper.trackers.tracker import Reports, Row, TrackedTrial, Tracker, end_of

RETRY_SECONDS = 30.0
"""Time, in seconds, between a failed call of a tracker and the next call."""
CLOSE_SECONDS, INTERRUPTED_SECONDS = 60.0, 5.0
"""Longest time, in seconds, that the end of a sweep waits for a tracker; the same if the sweep was interrupted."""
MOST_VALUES = 2_000_000
"""Most values of metrics that wait to be sent. A tracker that is so far behind gets the rest from the next run."""
LONGEST_REASON = 200
"""Most characters of the reason why a tracker failed."""


@dataclass
class _Run:
    """What there is to send of one trial."""

    trial: TrackedTrial
    reports: dict[int, Mapping[str, float]] = field(default_factory=dict)
    row: Row | None = None
    sent: int | None = None
    """Last epoch that the tracker has; None before the run is started."""
    waiting: int = 0
    """Number of values among `reports` that are not sent yet. The others stay, for a tracker that loses them."""

    def count(self) -> int:
        """Count the values that are not sent yet. Returns how many more there are than before."""
        before, sent = self.waiting, -1 if self.sent is None else self.sent
        self.waiting = sum(len(metrics) for epoch, metrics in self.reports.items() if epoch > sent)
        return self.waiting - before


@dataclass(frozen=True)
class Recorded:
    """What the store has of the trials of a plan when a sweep begins."""

    rows: Mapping[str, Row] = field(default_factory=dict)
    """trial_id -> row, of trials with a result."""
    history: Callable[[set[str]], Mapping[str, Reports]] = lambda complete: {}
    """Returns the reports of all trials except those that are `complete`."""
    trials: Mapping[str, TrackedTrial] = field(default_factory=dict)
    """The trials of `rows`."""


class Tracking:
    """Context manager that passes trials on to one tracker. Its other methods return at once.

    At the beginning, trials with a row whose run is missing or incomplete in the tracker are sent, too.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Tracker],
        say: Callable[[str], None],
        recorded: Recorded | None = None,
        *,
        anew: bool = False,
    ) -> None:
        """`connect` opens the tracker `name`, `say` prints a line. With `anew` all trials are trained again, so that
        runs that the tracker has are replaced."""
        self._name, self._connect, self._say = name, connect, say
        self._recorded, self._anew = recorded or Recorded(), anew
        self._runs: dict[str, _Run] = {}
        self._waiting: dict[str, None] = {}
        """Ids of the runs of which something is to be sent, those that failed last at the end."""
        self._changed = threading.Condition()
        self._closing = self._given_up = self._said = False
        self._values = 0
        self._tracker: Tracker | None = None
        self._complete: Mapping[str, str] = {}
        self._history: dict[str, Reports] = {}
        self._begun: set[str] = set()
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(INTERRUPTED_SECONDS if kind else CLOSE_SECONDS)
        if self._thread.is_alive() and not self._said:
            self._say(f"tracker {self._name} has not taken everything yet; the same command sends it the rest")
        with self._changed:
            self._given_up = True

    def started(self, trials: Sequence[TrackedTrial]) -> None:
        """Trials begin, or begin again."""
        self._note([_Run(trial) for trial in trials])

    def reported(self, trial: TrackedTrial, epoch: int, metrics: Mapping[str, float]) -> None:
        """A trial has reported. An epoch that is reported again changes nothing."""
        self._note([_Run(trial, {epoch: metrics})])

    def ended(self, trial: TrackedTrial, row: Row) -> None:
        """The row of a trial is in the store."""
        self._note([_Run(trial, row=row)])

    def _note(self, news: Sequence[_Run]) -> None:
        with self._changed:
            if self._given_up:
                return
            for new in news:
                run = self._runs.setdefault(new.trial.id, _Run(new.trial))
                added = {epoch: metrics for epoch, metrics in new.reports.items() if epoch not in run.reports}
                run.reports, run.row = run.reports | added, new.row or run.row
                self._waiting[new.trial.id] = None
                values = sum(map(len, added.values()))
                run.waiting, self._values = run.waiting + values, self._values + values
            if self._values > MOST_VALUES:
                self._given_up, self._runs, self._waiting = True, {}, {}
            self._changed.notify()
        if self._given_up:
            self._say(f"tracker {self._name} is too slow and is left out; the same command sends it the rest")

    def _work(self) -> None:
        """Body of the thread."""
        try:
            self._send_all()
        finally:
            if tracker := self._tracker:  # it was given up
                with contextlib.suppress(Exception):
                    tracker.close()

    def _send_all(self) -> None:
        """Send what is waiting, until the sweep has ended or the tracker is given up."""
        while not self._given_up:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._tracker is None or self._waiting or self._closing or self._given_up
                )
                waiting = list(self._waiting)
            try:
                tracker = self._opened()
                if self._closing and not self._waiting:
                    self._tracker = None
                    tracker.close()
                    return
            except Exception as error:
                if self._failed(error):
                    return
                continue
            for trial_id in waiting:
                try:
                    self._send(tracker, trial_id)
                except Exception as error:
                    if self._failed(error, trial_id):
                        return
                    break

    def _opened(self) -> Tracker:
        """Return the tracker. When it is opened, note the trials of the store that it lacks."""
        if self._tracker is None:
            tracker = self._connect()
            self._complete, rows = dict(tracker.ended()), self._recorded.rows
            done = {trial_id for trial_id, row in rows.items() if self._complete.get(trial_id) == end_of(row)}
            self._history = dict(self._recorded.history(done))
            for trial_id, row in rows.items():
                if trial_id not in done:
                    self.ended(self._recorded.trials[trial_id], row)
            self._tracker = tracker
        return self._tracker

    def _send(self, tracker: Tracker, trial_id: str) -> None:
        """Send all that is new of a trial."""
        with self._changed:
            self._waiting.pop(trial_id, None)
            run = self._runs.get(trial_id)
            if run is None:
                return
            reports, row, trial = dict(run.reports), run.row, run.trial
        if run.sent is None:
            reports = {**self._history.get(trial_id, {}), **reports}
            anew = trial_id not in self._begun and (self._anew or trial_id in self._complete)
            run.sent = tracker.start(trial, anew)
            self._begun.add(trial_id)
            self._count(run)
        if new := {epoch: reports[epoch] for epoch in sorted(reports) if epoch > run.sent}:
            tracker.report(trial, new)
            run.sent = max(new)
            self._count(run)
        if row:
            tracker.end(trial, row)
        with self._changed:
            if row and run.row is row:
                self._runs.pop(trial_id, None)
                self._history.pop(trial_id, None)
                self._values -= run.waiting

    def _count(self, run: _Run) -> None:
        with self._changed:
            if self._runs.get(run.trial.id) is run:  # not if it was given up
                self._values += run.count()

    def _failed(self, error: Exception, trial_id: str | None = None) -> bool:
        """Say so once, and wait before the next attempt. Returns whether there is none, because the sweep has ended."""
        if not self._said:
            self._said = True
            reason = masked(" ".join(f"{type(error).__name__}: {error}".split()))
            if len(reason) > LONGEST_REASON:
                reason = f"{reason[:LONGEST_REASON]}..."
            later = "what it lacks is sent when it works again, or by the same command"
            self._say(f"tracker {self._name} failed, and the sweep goes on without it; {later}: {reason}")
        with self._changed:
            if trial_id and (run := self._runs.get(trial_id)):
                run.sent = None
                self._waiting[trial_id] = None
            ending = self._closing
            self._changed.wait_for(lambda: self._closing or self._given_up, None if ending else RETRY_SECONDS)
            return ending or self._given_up
