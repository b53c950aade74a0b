"""Trackers of experiments: TensorBoard, MLflow and W&B get the trials of a sweep without ever failing or delaying it.

A tracker pulls from the store: `Destination.sync` compares what the tracker has with the rows and the history of the
store, and sends the difference. So a call that failed is simply made again, and what a run of the command could not
send, the next run or `sweeper track` sends.

A further tracker is a file with its `Tracker`, a function here that checks its target, and an extra in pyproject.toml.
"""

from __future__ import annotations

import netrc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from sweeper.definition import Value
from sweeper.errors import SpecError
from sweeper.masking import masked, remember
from sweeper.option_values import TrackRequest
from sweeper.planning.cohorts import Cohort
from sweeper.planning.plan import Plan
from sweeper.record.listener import CohortListener, Row
from sweeper.record.tracker import Reports, TrackedTrial, Tracker, end_of
from sweeper.runtime import BackgroundThread
from sweeper.storage.files import Files
from sweeper.storage.layout import tensorboard_folder
from sweeper.storage.load import load_history_without, load_trial_names
from sweeper.storage.requests import request_name
from sweeper.storage.retry import SHORT_RETRIES
from sweeper.storage.rows import FIXED, STUDY_COLUMNS, Columns, columns_of, rows_of
from sweeper.storage.store import StoreReader

if TYPE_CHECKING:
    import pandas as pd

SYNC_SECONDS = 30.0
"""Shortest time, in seconds, from the end of one `sync` to the beginning of the next."""
REST = 20.0
"""The same as a multiple of the time that reading the store took: reading takes at most 5 % of one core."""
CLOSE_SECONDS, INTERRUPTED_SECONDS = 60.0, 5.0
"""Longest time, in seconds, that the end of a sweep waits for a tracker; the same if the sweep was interrupted. A run
with a limit of time or cost waits at most as long as its `Budget` says."""
LONGEST_REASON = 200
"""Most characters of the reason why a tracker failed."""


def connections(
    requests: Sequence[TrackRequest], sweep: str, files: Files, option: str = "--track"
) -> dict[str, Callable[[], Tracker]]:
    """Return tracker -> a function that connects to it. `option` is the one that named the trackers.

    Raises SpecError if a target is missing or a tracker is named twice.
    """
    connects: dict[str, Callable[[], Tracker]] = {}
    for request in requests:
        if request.tracker in connects:
            raise SpecError(f"{option} must be given once per tracker, but got {request.tracker} twice")
        connects[request.tracker] = _CONNECT[request.tracker](request.target, sweep, files, option)
    return connects


def _tensorboard(target: str | None, sweep: str, files: Files, option: str) -> Callable[[], Tracker]:
    folder = Path(target) / sweep if target else files.local_path(tensorboard_folder(sweep))
    if folder is None:
        raise SpecError(
            f"{option} tensorboard writes to a local folder, and the store is none: {option} tensorboard=DIR"
        )

    def connect() -> Tracker:
        from sweeper.record.tensorboard import TensorBoard  # here: its package may not be installed

        return TensorBoard(folder)

    return connect


def _mlflow(target: str | None, sweep: str, files: Files, option: str) -> Callable[[], Tracker]:
    uri = target or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise SpecError(f"{option} mlflow needs a server: {option} mlflow=http://HOST:PORT, or set MLFLOW_TRACKING_URI")
    remember(uri)

    def connect() -> Tracker:
        from sweeper.record.mlflow import MLflow  # as above

        return MLflow(uri, sweep)

    return connect


def _wandb(target: str | None, sweep: str, files: Files, option: str) -> Callable[[], Tracker]:
    if os.environ.get("WANDB_MODE", "online") not in ("offline", "dryrun", "disabled") and not _has_wandb_key():
        raise SpecError(f"{option} wandb needs a key: run `wandb login`, set WANDB_API_KEY, or set WANDB_MODE=offline")

    def connect() -> Tracker:
        from sweeper.record.wandb import WandB  # as above

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
class RunTrials(CohortListener):
    """Which trials a run sends to its trackers: those that had a result when it began, and those that it trains. Trials
    that another driver of the sweep trains are left to that driver's trackers."""

    own: set[str] = field(default_factory=set)
    failed_before: set[str] = field(default_factory=set)
    """Trials whose row says that an earlier run failed. This run trains them again, so until it has a row of its own
    they count as training."""
    fresh: bool = False
    """Whether the run trains all of its trials anew, so that runs that a tracker has are replaced."""

    def started(self, cohort: Cohort) -> None:
        self.own.update(trial.id for trial in cohort.trials)

    def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        self.failed_before.difference_update(trial.id for trial in cohort.trials)

    def trains_again(self, row: Row) -> bool:
        """Whether the trial of a row is trained again by this run, and has no result of it yet."""
        return row["status"] == "failed" and row["trial_id"] in self.failed_before


class Destination:
    """A tracker, and what it has of the trials of a sweep."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Tracker],
        files: Files,
        sweep: str,
        say: Callable[[str], None],
        trials: RunTrials | None = None,
    ) -> None:
        """`connect` opens the tracker `name`, `say` prints a line, and `trials` are those that are sent, by default all
        trials of the sweep."""
        self.name, self.sweep, self.say, self.runtime = name, sweep, say, files.runtime
        self._connect, self._files = connect, files.with_retries(SHORT_RETRIES)
        self._trials = trials
        self._tracker: Tracker | None = None
        self._ended: dict[str, str] = {}
        """Trial -> `end_of` its row, of runs that are complete."""
        self._sent: dict[str, int] = {}
        """Trial -> last epoch that the tracker has, of runs that were started and are not complete."""
        self._failed: set[str] = set()
        """Trials of which a call failed. They are sent after all others."""
        self.said = False
        """Whether a failure was said."""
        self.count = 0
        """Number of runs that were completed."""
        self.seconds_between = SYNC_SECONDS
        """Shortest time, in seconds, before the next `sync`."""

    def try_sync(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """As `sync`, but of the errors say the first one. Returns whether there was none."""
        return self._try(lambda: self.sync(go_on))

    def sync(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Send what the store has and the tracker lacks, while `go_on()` holds. May raise any exception; the next
        `sync` then sends the rest."""
        if self._tracker is None:
            tracker = self._connect()
            self._ended, self._tracker = dict(tracker.ended()), tracker
        for trial, records, row in self._lacking():
            if not go_on():
                return
            try:
                self._send(self._tracker, trial, records, row)
            except Exception:
                self._sent.pop(trial.id, None)  # the call may have had its effect: the run is continued
                self._failed.add(trial.id)
                raise

    def close(self) -> None:
        """Send what the tracker still buffers, and let it go. Of an error say so."""
        if self._tracker is not None:
            self._try(self._tracker.close)
            self._tracker = None

    def _try(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except Exception as error:
            if not self.said:
                self.said = True
                reason = masked(" ".join(f"{type(error).__name__}: {error}".split()))
                if len(reason) > LONGEST_REASON:
                    reason = f"{reason[:LONGEST_REASON]}..."
                later = "what it lacks is sent when it works again, or by the same command"
                self.say(f"tracker {self.name} failed; {later}: {reason}")
            return False
        return True

    def _lacking(self) -> Iterator[tuple[TrackedTrial, pd.DataFrame, Row | None]]:
        """Yield the trials whose runs are not complete, with their history and their rows, if they have one."""
        chosen, clock = self._trials, self.runtime.monotonic
        began = clock()
        table = StoreReader(self._files).rows(self.sweep)  # before the history: a trial with a row has all of it
        table = Columns({}, ()).schema.empty_table() if table is None else table
        settled, ended = set[str](), list[str]()
        for row in table.select(["trial_id", "status", "ended"]).to_pylist():
            trial = row["trial_id"]
            if chosen is not None and trial not in chosen.own:
                settled.add(trial)
            elif chosen is None or not chosen.trains_again(row):
                (settled.add if self._ended.get(trial) == end_of(row) else ended.append)(trial)
        rows = {row["trial_id"]: row for row in rows_of(table, ended).to_pylist()}
        history = load_history_without(self.sweep, self._files, settled)
        records = history.groupby("trial_id", sort=False).indices
        named = load_trial_names(self._files, self.sweep)
        self.seconds_between = max(SYNC_SECONDS, REST * (clock() - began))
        hyperparameters = [name for name in columns_of(table.schema).hyperparameters if name not in STUDY_COLUMNS]
        lacking = [trial for trial in dict.fromkeys((*rows, *records)) if chosen is None or trial in chosen.own]
        for trial in sorted(lacking, key=self._failed.__contains__):
            row = rows.get(trial)
            tracked = tracked_trial(trial, row, named.get(trial, {}), hyperparameters)
            yield tracked, history.iloc[records.get(trial, [])], row

    def _send(self, tracker: Tracker, trial: TrackedTrial, records: pd.DataFrame, row: Row | None) -> None:
        """Send all that is new of a trial."""
        if trial.id not in self._sent:
            anew = trial.id in self._ended or (self._trials is not None and self._trials.fresh)
            self._sent[trial.id] = tracker.start(trial, anew)
            self._ended.pop(trial.id, None)
        if new := reports_of(records[records["epoch"] > self._sent[trial.id]]):
            tracker.report(trial, new)
            self._sent[trial.id] = max(new)
        if row:
            tracker.end(trial, row)
            self._ended[trial.id] = end_of(row)
            self._sent.pop(trial.id)
            self.count += 1


class Tracking:
    """Context manager that keeps a tracker up to date, in a thread of its own: at once, every `SYNC_SECONDS`, and at
    the end."""

    def __init__(
        self, destination: Destination, longest_wait: Callable[[float], float] = lambda seconds: seconds
    ) -> None:
        """`longest_wait` shortens the time that the end waits for the tracker."""
        self._destination, self._longest_wait = destination, longest_wait
        self._changed = destination.runtime.condition()
        self._closing = self._given_up = False
        self._thread: BackgroundThread

    def __enter__(self) -> Self:
        destination = self._destination
        self._thread = destination.runtime.begin(f"tracker {destination.name}", self._work)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(self._longest_wait(INTERRUPTED_SECONDS if kind else CLOSE_SECONDS))
        self._given_up = True
        destination = self._destination
        if self._thread.is_alive() and not destination.said:
            destination.say(
                f"tracker {destination.name} has not taken everything yet; the same command sends it the rest"
            )

    def _work(self) -> None:
        """Body of the thread."""
        last = False
        while not (last or self._given_up):
            last = self._closing  # what is in the store by now is sent
            self._destination.try_sync(lambda: not self._given_up)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, self._destination.seconds_between)
        self._destination.close()


@contextmanager
def tracked(
    connects: Mapping[str, Callable[[], Tracker]],
    plan: Plan,
    files: Files,
    say: Callable[[str], None],
    *,
    fresh: bool,
    longest_wait: Callable[[float], float],
) -> Iterator[RunTrials]:
    """Context in which the trials of a plan are sent to trackers. `longest_wait` shortens the time that its end waits
    for each tracker."""
    known = {*plan.ids, *(trial.id for trial, _ in plan.ahead)}
    statuses = {**plan.statuses, **{trial.id: status for trial, status in plan.ahead}}
    failed = {trial for trial, status in statuses.items() if status == "failed"}
    trials = RunTrials(set() if fresh else known.intersection(statuses) - failed, failed, fresh)
    with ExitStack() as stack:
        for name, connect in connects.items():
            destination = Destination(name, connect, files, plan.name, say, trials)
            stack.enter_context(Tracking(destination, longest_wait))
        yield trials


def tracked_trial(
    trial_id: str, row: Mapping[str, Any] | None, named: Mapping[str, Value], hyperparameters: Sequence[str]
) -> TrackedTrial:
    """Return a trial as trackers show it. `named` are the values that identify it to a reader; while it has no row, no
    other hyperparameters are known. Those without a value are left out."""
    identifying = {key: value for key, value in named.items() if key not in FIXED and value is not None}
    name = ", ".join(f"{key}={value}" for key, value in identifying.items())
    config = {key: row[key] for key in hyperparameters if row[key] is not None} if row else identifying
    preset, changes = ((row or named).get(key) or "" for key in ("preset", "changes"))
    return TrackedTrial(trial_id, name or trial_id, request_name(str(preset), str(changes)), config)


def reports_of(records: pd.DataFrame) -> Reports:
    """Return the history of a trial: epoch -> metric -> value, in the order of the epochs."""
    reports: dict[int, dict[str, float]] = {}
    for epoch, metric, value in records[["epoch", "metric", "value"]].itertuples(index=False):
        reports.setdefault(epoch, {})[metric] = value
    return {epoch: reports[epoch] for epoch in sorted(reports)}
