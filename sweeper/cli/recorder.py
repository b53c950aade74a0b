"""Write the reports of cohorts to the store, as rows, history and sheets, and show them in the live view."""

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sweeper.cli.page_writer import PageWriter
from sweeper.cli.progress.running_cohorts import RunningCohort
from sweeper.cli.progress.sweep_progress import Progress
from sweeper.cli.provenance import consumption, provenance
from sweeper.execution.listener import CohortListener
from sweeper.masking import masked
from sweeper.plan.best_trials import KeptModels
from sweeper.plan.cohorts import Cohort
from sweeper.plan.sources import CohortSource, Record, TrainedElsewhere
from sweeper.spec.node_price import NodePrice
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.models import record_unwritten
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from sweeper.trackers.sweep_trials import TrackedTrials
from trainables.reports import Heartbeat, Member
from trainables.worker.messages import CohortReport, Failure, Origin

HISTORY_SECONDS = 1.0
"""Shortest time, in seconds, between two writes of a cohort's history while it trains."""


class Recorder(CohortListener):
    """Writes the reports of a dispatch to the store.

    No result can be lost or counted twice:

    1. History is written while a cohort trains. Its trials have no row yet, so they count as not done.
    2. When a cohort has ended, its sheets and the rest of its history are written before its rows. A trial with a row
       therefore has its complete history and its sheets. Its worker has written the models before (`kept_models`).
    3. Its checkpoint is deleted last. Until then a restarted driver can continue the cohort; writing rows, history and
       sheets again changes nothing, because all are keyed by trial id.
    """

    def __init__(
        self,
        store: Store,
        sweep: str,
        columns: Columns,
        source: CohortSource,
        progress: Progress,
        code: str,
        models: KeptModels | None = None,
        *,
        node_price: NodePrice | None = None,
        tracked: TrackedTrials | None = None,
        clock: Callable[[], float] = time.monotonic,
        page: PageWriter | None = None,
    ) -> None:
        """`models`: removes the models that are not kept; None if all are, or none."""
        self._page = page
        self._store, self._sweep, self._columns, self._source = store, sweep, columns, source
        self._progress, self._code, self._models, self._clock = progress, code, models, clock
        self._node_price, self._tracked = node_price, tracked or TrackedTrials()
        self._history: dict[str, list[Record]] = {}
        self._unwritten: dict[str, int] = {}
        """Training cohort -> index of the first record of its history that is not in the store yet."""
        self._written_at: dict[str, float] = {}
        """Training cohort -> clock reading, in seconds, at the last write of its history."""
        self._begun: dict[str, datetime] = {}
        """Cohort -> time of its first start in this run."""
        self._about_steps: set[str] = set()
        """Reasons why steps are not compiled that have been printed."""
        self._ended: set[str] = set()
        """Cohorts that have a result, including those whose parts all have one."""

    def started(self, cohort: str) -> None:
        self._history[cohort], self._unwritten[cohort] = [], 0
        self._begun.setdefault(cohort, datetime.now(UTC))
        self._progress.started(len(self._source.cohorts[cohort].trials))
        self._source.started(cohort)
        self._tracked.started(self._source.cohorts[cohort].trials)
        if self._page:
            self._page.cohort_started()

    def reported(self, cohort: str, message: CohortReport) -> None:
        """Take a report. One that comes late, of a cohort that has ended, changes nothing."""
        if cohort in self._ended:
            return
        report = message.report
        if message.notice:
            self._progress.print_line(f"cohort {cohort}: {masked(message.notice)}")
        if message.about_steps and message.about_steps not in self._about_steps:
            self._about_steps.add(message.about_steps)
            self._progress.print_line(message.about_steps)
        self._source.reported(cohort, message)
        trials = self._source.cohorts[cohort].trials
        for trial, member in zip(trials, report.members, strict=True):
            if member.epochs_run == report.epoch:
                metrics = {metric: value for metric, value in member.metrics.items() if value is not None}
                self._history[cohort] += [(trial.id, report.epoch, metric, value) for metric, value in metrics.items()]
                self._tracked.reported(trial, report.epoch, metrics)
        if report.done:
            for trial, member in zip(trials, report.members, strict=True):
                self._store.write_sheets(self._sweep, trial.id, member.pictures)
            self._store.write_history(self._sweep, cohort, self._history[cohort])
            self._forget(cohort)
            self._write_rows(cohort, report.members, message.origin, message.without_model)
            self._delete_checkpoints(cohort)
            return
        self._write_due_history()
        epochs = trials[0].config.get("epochs")  # a hyperparameter that the members of a cohort share, if there is one
        value = self._progress.mean(member.metrics.get(self._progress.metric) for member in report.members)
        epochs = epochs if isinstance(epochs, int) else None
        ids = [trial.id for trial in trials]
        self._progress.advanced(cohort, ids, RunningCohort(len(ids), report.epoch, epochs, value=value))

    def advanced(self, cohort: str, heartbeat: Heartbeat) -> None:
        if cohort in self._ended:
            return
        self._write_due_history()
        ids = [trial.id for trial in self._source.cohorts[cohort].trials]
        state = RunningCohort(len(ids), heartbeat.epoch, heartbeat.epochs, heartbeat.loss, begun=heartbeat.begun)
        self._progress.advanced(cohort, ids, state)

    def interrupted(self, cohort: str, failure: Failure) -> None:
        count = len(self._source.cohorts[cohort].trials)
        self._forget(cohort)
        self._progress.stopped(count)
        self._source.stopped(cohort)
        event = "was cut off and goes on from its checkpoint, if there is one"
        self._progress.print_line(f"cohort {cohort} ({count} trials) {event}: {failure.reason}")

    def split(self, cohort: str, parts: Sequence[Cohort], failure: Failure) -> None:
        count = len(self._source.cohorts[cohort].trials)
        self._forget(cohort)
        if len(parts) > 1:  # the halves report the same epochs again, equal up to rounding
            self._store.delete_history(self._sweep, cohort)
        form = f"{len(parts)} halves" if len(parts) > 1 else f"stacks of {parts[0].width}"
        self._progress.stopped(count, cohorts=len(parts) - 1)
        self._source.stopped(cohort)
        self._progress.print_line(f"cohort {cohort} ({count} trials) goes on in {form}: {failure.reason}")

    def failed(self, cohort: str, failure: Failure) -> None:
        count = len(self._source.cohorts[cohort].trials)
        self._forget(cohort)
        self._progress.print_line(f"cohort {cohort} ({count} trials) failed for good: {failure.reason}")
        self._write_rows(cohort, [Member("failed", 0, {}, failure.reason)] * count, None)

    def trained_elsewhere(self, trials: TrainedElsewhere) -> None:
        self._progress.trained_elsewhere(trials.statuses, trials.cohorts)

    def _write_due_history(self) -> None:
        """Write new history of every cohort whose last write is at least `HISTORY_SECONDS` ago."""
        now = self._clock()
        for cohort, start in self._unwritten.items():
            records = self._history[cohort]
            if start < len(records) and now - self._written_at.get(cohort, -math.inf) >= HISTORY_SECONDS:
                self._store.write_history(self._sweep, cohort, records[start:], ended=False)
                self._unwritten[cohort], self._written_at[cohort] = len(records), now

    def _forget(self, cohort: str) -> None:
        self._unwritten.pop(cohort, None)
        self._written_at.pop(cohort, None)
        self._progress.left_worker(cohort)

    def _delete_checkpoints(self, cohort: str) -> None:
        """Delete the checkpoint of a cohort that has ended, and of each cohort whose parts have now all ended."""
        self._store.files.delete(checkpoint_path(self._sweep, cohort))
        self._ended.add(cohort)
        for whole in self._source.ancestors(cohort):
            ancestors = {part: self._source.ancestors(part) for part in self._source.cohorts}
            parts = {part for part, wholes in ancestors.items() if whole.id in (cohort.id for cohort in wholes)}
            if parts <= self._ended:
                self._store.files.delete(checkpoint_path(self._sweep, whole.id))
                self._ended.add(whole.id)

    def _write_rows(
        self, cohort: str, members: Sequence[Member], origin: Origin | None, without_model: Sequence[str] = ()
    ) -> None:
        """Write one row per member. `origin` is the process that trained the cohort; None if it failed. The models of
        the trials `without_model` could not be written."""
        trials, now = self._source.cohorts[cohort].trials, datetime.now(UTC)
        shared = {
            "cohort": cohort,
            "cohort_size": len(trials),
            **provenance(origin),
            "code_version": self._code,
            "started": origin.started if origin else self._begun.get(cohort, now),
            "ended": now,
        }
        rows = [
            {
                "trial_id": trial.id,
                **trial.config,
                **trial.facts,
                **({"schedule": member.schedule} if "schedule" in self._columns.hyperparameters else {}),
                **member.metrics,
                "status": member.status,
                "error": masked(member.error) if member.error else member.error,
                "epochs_run": member.epochs_run,
                "seconds": member.seconds,
                **consumption(member.seconds, origin, self._node_price),
                **shared,
            }
            for trial, member in zip(trials, members, strict=True)
        ]
        if without_model:
            record_unwritten(self._store.files, self._sweep, cohort, without_model)
        if self._models:
            self._models.delete_worse(rows)
        self._store.write(self._sweep, cohort, rows, self._columns)
        if self._models:
            self._models.delete_displaced()
        self._tracked.ended(trials, rows)
        if self._page:
            self._page.rows_written()
        self._progress.finished(rows)
        self._source.completed(cohort, rows, self._history.pop(cohort, []))
