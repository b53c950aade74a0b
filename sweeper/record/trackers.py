"""Trackers of experiments: TensorBoard, MLflow and W&B get the trials of a sweep without ever failing or delaying it.

The sweep only notes what there is to send. A thread compares that with what the tracker has and sends the difference.
So a call that failed is simply made again, and what a run of the command could not send, the next run sends.

A further tracker is a file with its `Tracker`, a function here that checks its target, and an extra in pyproject.toml.
"""

from __future__ import annotations

import contextlib
import netrc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from sweeper.errors import SpecError
from sweeper.masking import masked, remember
from sweeper.plan.cohorts import Cohort, Trial
from sweeper.plan.plan import Plan
from sweeper.record.listener import CohortListener, Row, reported_metrics
from sweeper.record.tracker import Reports, TrackedTrial, Tracker, end_of
from sweeper.request import TrackRequest
from sweeper.storage.layout import tensorboard_folder
from sweeper.storage.load import load_reports, load_trials
from sweeper.storage.store import Store
from sweeper.surroundings import REAL, Surroundings, Task

if TYPE_CHECKING:  # it imports torch
    from trainables.worker.messages import CohortReport

RETRY_SECONDS = 30.0
"""Time, in seconds, between a failed call of a tracker and the next call."""
CLOSE_SECONDS, INTERRUPTED_SECONDS = 60.0, 5.0
"""Longest time, in seconds, that the end of a sweep waits for a tracker; the same if the sweep was interrupted. A run
with a limit of time or cost waits at most as long as its `Budget` says."""
MOST_VALUES = 2_000_000
"""Most values of metrics that wait to be sent. A tracker that is so far behind gets the rest from the next run."""
LONGEST_REASON = 200
"""Most characters of the reason why a tracker failed."""


def connections(requests: Sequence[TrackRequest], sweep: str, store: Store) -> dict[str, Callable[[], Tracker]]:
    """Return tracker -> a function that connects to it. Raises SpecError if a target is missing or named twice."""
    connects: dict[str, Callable[[], Tracker]] = {}
    for request in requests:
        if request.tracker in connects:
            raise SpecError(f"--track must be given once per tracker, but got {request.tracker} twice")
        connects[request.tracker] = _CONNECT[request.tracker](request.target, sweep, store)
    return connects


def _tensorboard(target: str | None, sweep: str, store: Store) -> Callable[[], Tracker]:
    folder = Path(target) / sweep if target else store.files.local_path(tensorboard_folder(sweep))
    if folder is None:
        raise SpecError("--track tensorboard writes to a local folder, and the store is none: --track tensorboard=DIR")

    def connect() -> Tracker:
        from sweeper.record.tensorboard import TensorBoard

        return TensorBoard(folder)

    return connect


def _mlflow(target: str | None, sweep: str, store: Store) -> Callable[[], Tracker]:
    uri = target or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise SpecError("--track mlflow needs a server: --track mlflow=http://HOST:PORT, or set MLFLOW_TRACKING_URI")
    remember(uri)

    def connect() -> Tracker:
        from sweeper.record.mlflow import MLflow

        return MLflow(uri, sweep)

    return connect


def _wandb(target: str | None, sweep: str, store: Store) -> Callable[[], Tracker]:
    if os.environ.get("WANDB_MODE", "online") not in ("offline", "dryrun", "disabled") and not _has_wandb_key():
        raise SpecError("--track wandb needs a key: run `wandb login`, set WANDB_API_KEY, or set WANDB_MODE=offline")

    def connect() -> Tracker:
        from sweeper.record.wandb import WandB

        return WandB(target or os.environ.get("WANDB_PROJECT") or sweep)

    return connect


_CONNECT = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}


def _has_wandb_key() -> bool:
    """Whether W&B finds a key without asking for one, which would block a sweep in a terminal."""
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname
    try:
        file = os.environ.get("NETRC") or str(Path.home() / ".netrc")
        return "WANDB_API_KEY" in os.environ or netrc.netrc(file).authenticators(str(host)) is not None
    except (OSError, netrc.NetrcParseError):
        return False


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
        longest_wait: Callable[[float], float] = lambda seconds: seconds,
        surroundings: Surroundings = REAL,
    ) -> None:
        """`connect` opens the tracker `name`, `say` prints a line. With `anew` all trials are trained again, so that
        runs that the tracker has are replaced. `longest_wait` shortens the time that the end waits for the tracker."""
        self._name, self._connect, self._say = name, connect, say
        self._recorded, self._anew, self._longest_wait = recorded or Recorded(), anew, longest_wait
        self._runs: dict[str, _Run] = {}
        self._waiting: dict[str, None] = {}
        """Ids of the runs of which something is to be sent, those that failed last at the end."""
        self._begin, self._changed = surroundings.begin, surroundings.condition()
        self._closing = self._given_up = self._said = False
        self._values = 0
        self._tracker: Tracker | None = None
        self._complete: Mapping[str, str] = {}
        self._history: dict[str, Reports] = {}
        self._begun: set[str] = set()
        self._thread: Task

    def __enter__(self) -> Self:
        self._thread = self._begin(f"tracker {self._name}", self._work)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(self._longest_wait(INTERRUPTED_SECONDS if kind else CLOSE_SECONDS))
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


@dataclass(frozen=True)
class Trackers(CohortListener):
    """Passes the trials of a sweep on to its trackers."""

    trackings: Sequence[Tracking] = ()
    identifying: Sequence[str] = ()
    """Hyperparameters that identify a trial to a reader."""

    def started(self, cohort: Cohort) -> None:
        for tracking in self.trackings:
            tracking.started([tracked_trial(trial, self.identifying) for trial in cohort.trials])

    def reported(self, cohort: Cohort, message: CohortReport) -> None:
        for tracking in self.trackings:
            for trial, epoch, metrics in reported_metrics(cohort, message):
                tracking.reported(tracked_trial(trial, self.identifying), epoch, metrics)

    def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        for tracking in self.trackings:
            for trial, row in zip(cohort.trials, rows, strict=True):
                tracking.ended(tracked_trial(trial, self.identifying), row)


@contextmanager
def tracked(
    connects: Mapping[str, Callable[[], Tracker]],
    plan: Plan,
    store: Store,
    say: Callable[[str], None],
    *,
    fresh: bool,
    longest_wait: Callable[[float], float],
) -> Iterator[Trackers]:
    """Context in which trials of a plan are passed on to trackers. Those that the store has are sent first.
    `longest_wait` shortens the time that its end waits for each tracker."""
    recorded = _recorded(plan, store) if connects and not fresh else None
    with ExitStack() as stack:
        around = store.files.surroundings
        trackings = [
            Tracking(name, connect, say, recorded, anew=fresh, longest_wait=longest_wait, surroundings=around)
            for name, connect in connects.items()
        ]
        yield Trackers([stack.enter_context(tracking) for tracking in trackings], plan.identifying_columns)


def tracked_trial(trial: Trial, identifying: Sequence[str]) -> TrackedTrial:
    """Return a trial as trackers show it, named by its values of the `identifying` columns."""
    values = {key: trial.config[key] for key in dict.fromkeys(identifying) if trial.config.get(key) is not None}
    name = ", ".join(f"{key}={value}" for key, value in values.items())
    group = ", ".join(filter(None, (str(trial.facts.get(key) or "") for key in ("preset", "changes"))))
    return TrackedTrial(trial.id, name or trial.id, group, trial.config)


def _recorded(plan: Plan, store: Store) -> Recorded:
    """Return what the store has of a plan."""
    ahead = plan.ahead
    trials = {trial.id: trial for trial in (*plan.trials, *(trial for trial, _ in ahead))}
    statuses = {**plan.statuses, **{trial.id: status for trial, status in ahead}}
    done = [trial_id for trial_id in trials if statuses.get(trial_id, "failed") != "failed"]
    rows = load_trials(store.files, plan.name, done).to_dict("records") if done else []
    return Recorded(
        {row["trial_id"]: row for row in rows},
        lambda complete: load_reports(plan.name, store.files, trials.keys() - complete),
        {trial_id: tracked_trial(trials[trial_id], plan.identifying_columns) for trial_id in done},
    )
