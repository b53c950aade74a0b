"""From reports to the store: history, sample grids and rows, and the order in which they are written."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from sweeper.masking import masked
from sweeper.option_values import NodePrice
from sweeper.planning.cohorts import Cohort
from sweeper.planning.sources import CohortSource, Record
from sweeper.record.listener import CohortListener, Row, reported_metrics
from sweeper.storage.files import Files
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.models import record_unwritten
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from trainables.reports import Heartbeat, Member
from trainables.worker.messages import CohortReport, Failure, Origin

HISTORY_SECONDS = 1.0
"""Shortest time, in seconds, between two writes of a cohort's history while it trains."""
HOUR = 3600.0
"""Seconds per hour."""


def listeners(
    store: Store,
    sweep: str,
    row_format: "RowFormat",
    source: CohortSource,
    followers: Sequence[CohortListener] = (),
    clock: Callable[[], float] | None = None,
) -> list[CohortListener]:
    """Return the listeners of a dispatch in the order in which they receive an event, which is the order of safety.

    `followers` need nothing but rows: kept models, trackers, the page, the terminal. No result can be lost or counted
    twice:

    1. `followers` and the source of cohorts receive a report before anything of it is written. They keep nothing that
       a restarted driver cannot take from the store.
    2. History is written while a cohort trains, and the rest of it when the cohort has ended. Its trials have no row
       yet, so they count as not done.
    3. Sample grids follow. A trial with a row therefore has its complete history and its sample grids.
    4. Rows follow. Just before, `followers` receive `ended`: `KeptModels` then deletes the models, which the worker has
       written, that are not best of the cohort. Afterwards they and the source receive `recorded`, from which the next
       wave of a search follows.
    5. The checkpoint is deleted last. Until then a restarted driver can continue the cohort; writing rows, history and
       sample grids again changes nothing, because all are keyed by trial id.
    """
    history = History(store, sweep, clock or store.files.runtime.monotonic)
    early = [*followers, _SourceUpdates(source, history)]
    rows = RowWriter(store, sweep, row_format, early)
    return [*early, history, SampleGrids(store, sweep), rows, CheckpointRemover(store.files, sweep)]


class History(CohortListener):
    """Writes the metrics of every report, while a cohort trains at most once in `HISTORY_SECONDS`."""

    def __init__(self, store: Store, sweep: str, clock: Callable[[], float]) -> None:
        self._store, self._sweep, self._clock = store, sweep, clock
        self._records: dict[str, list[Record]] = {}
        self._unwritten: dict[str, int] = {}
        """Training cohort -> index of the first of its records that is not in the store yet."""
        self._written_at: dict[str, float] = {}
        """Training cohort -> clock reading, in seconds, at the last write of its history."""

    def started(self, cohort: Cohort) -> None:
        self._records[cohort.id], self._unwritten[cohort.id] = [], 0

    def advanced(self, cohort: Cohort, heartbeat: Heartbeat) -> None:
        self._write_due()

    def reported(self, cohort: Cohort, message: CohortReport) -> None:
        records = self._records[cohort.id]
        for trial, epoch, metrics in reported_metrics(cohort, message):
            records += [(trial.id, epoch, metric, value) for metric, value in metrics.items()]
        if message.report.done:
            self._store.write_history(self._sweep, cohort.id, records)
            self._forget(cohort)
        elif message.report.records is not None and any(each.status != "running" for each in message.report.members):
            self._write_new(cohort.id, self._clock())  # before the rows of those that have ended
        else:
            self._write_due()

    def interrupted(self, cohort: Cohort, failure: Failure) -> None:
        self._forget(cohort)

    def split(self, cohort: Cohort, parts: Sequence[Cohort], failure: Failure) -> None:
        self._forget(cohort)
        if all(part.id != cohort.id for part in parts):  # they report the same epochs again, equal up to rounding
            self._store.delete_history(self._sweep, cohort.id, [trial.id for trial in cohort.trials])

    def failed(self, cohort: Cohort, failure: Failure) -> None:
        self._forget(cohort)

    def take(self, cohort: Cohort) -> Sequence[Record]:
        """Return the history of a cohort that has ended, and keep it no longer."""
        return self._records.pop(cohort.id, ())

    def _write_due(self) -> None:
        """Write new history of every cohort whose last write is at least `HISTORY_SECONDS` ago."""
        now = self._clock()
        for cohort in self._unwritten:
            if now - self._written_at.get(cohort, -math.inf) >= HISTORY_SECONDS:
                self._write_new(cohort, now)

    def _write_new(self, cohort: str, now: float) -> None:
        """Write what is new of the history of a cohort."""
        start, records = self._unwritten[cohort], self._records[cohort]
        if start < len(records):
            self._store.write_history(self._sweep, cohort, records[start:], ended=False)
            self._unwritten[cohort], self._written_at[cohort] = len(records), now

    def _forget(self, cohort: Cohort) -> None:
        self._unwritten.pop(cohort.id, None)
        self._written_at.pop(cohort.id, None)


@dataclass(frozen=True)
class SampleGrids(CohortListener):
    """Writes the pictures of a last report."""

    store: Store
    sweep: str

    def reported(self, cohort: Cohort, message: CohortReport) -> None:
        if message.report.done:
            for trial, member in zip(cohort.trials, message.report.members, strict=True):
                self.store.write_sample_grids(self.sweep, trial.id, member.pictures)


@dataclass(frozen=True)
class RowFormat:
    """What the rows of a run consist of."""

    columns: Columns
    code_version: str
    node_price: NodePrice | None = None
    """Price of a node per hour, for the cost of each trial."""
    user: str | None = None
    """Who began the run."""

    def rows(
        self, cohort: Cohort, members: Iterable[Member], origin: Origin | None, started: datetime, ended: datetime
    ) -> list[Row]:
        """Return one row per member. `origin` is the process that trained the cohort; None if it failed, and it is not
        known what its last one was."""
        shared = {
            "cohort": cohort.id,
            "cohort_size": len(cohort.trials),
            **_provenance(origin),
            "user": self.user,
            "code_version": self.code_version,
            "started": origin.started if origin else started,
            "ended": ended,
        }
        return [
            {
                "trial_id": trial.id,
                **trial.config,
                **trial.facts,
                **({"schedule": member.schedule} if "schedule" in self.columns.hyperparameters else {}),
                **member.metrics,
                "status": member.status,
                "error": masked(member.error) if member.error else member.error,
                "epochs_run": member.epochs_run,
                "seconds": member.seconds,
                **self._consumption(member.seconds, origin),
                **shared,
            }
            for trial, member in zip(cohort.trials, members, strict=True)
        ]

    def columns_of(self, rows: Iterable[Row]) -> Columns:
        """Return the columns, with those of metrics that only the reports of these rows tell."""
        names = {*self.columns.schema.names, "schedule"}
        new = dict.fromkeys(name for row in rows for name in row if name not in names)
        return replace(self.columns, metrics=(*self.columns.metrics, *new)) if new else self.columns

    def _consumption(self, seconds: float, origin: Origin | None) -> Mapping[str, float | None]:
        """Return the device seconds of a trial and their cost. `seconds` is its share of the cohort's training time.

        A node's price is divided equally among its devices, so trials pay for the part of the node that they reserve.
        """
        if origin is None:
            return {}
        share = origin.share
        device_seconds = seconds * share.devices
        price = self.node_price.of(share.kind) if self.node_price else None
        cost = None if price is None else price / HOUR * device_seconds / share.node_devices
        return {"device_seconds": device_seconds, "cost": cost}


def _provenance(origin: Origin | None) -> Mapping[str, object]:
    """Return the columns of the process that trained a cohort."""
    if origin is None:
        return {}
    environment = asdict(origin.environment) if origin.environment else {}
    return {"device": origin.device, "host": origin.host, "compiled": origin.compiled, **environment}


class RowWriter(CohortListener):
    """Writes the rows of cohorts that have ended or failed. `followers` receive `ended` before and `recorded` after."""

    def __init__(
        self, store: Store, sweep: str, row_format: RowFormat, followers: Sequence[CohortListener] = ()
    ) -> None:
        self._store, self._sweep, self._format, self._followers = store, sweep, row_format, followers
        self._begun: dict[str, datetime] = {}
        """Cohort -> time of its first start in this run."""
        self._early = set[str]()
        """Trials whose rows were written before their cohort had ended."""

    def started(self, cohort: Cohort) -> None:
        self._begun.setdefault(cohort.id, self._store.files.runtime.now())

    def reported(self, cohort: Cohort, message: CohortReport) -> None:
        if message.report.done:
            if message.without_models:
                record_unwritten(self._store.files, self._sweep, cohort.id, message.without_models)
            self._write(cohort, message.report.members, message.origin)
        elif message.report.records is not None:
            self._write_ended(cohort, message)

    def _write_ended(self, cohort: Cohort, message: CohortReport) -> None:
        """Write the rows of those members that have ended, of a cohort whose members are trained in turn."""
        now = self._store.files.runtime.now()
        rows = self._format.rows(cohort, message.report.members, message.origin, self._begun.get(cohort.id, now), now)
        if ended := [row for row in rows if row["status"] != "running" and row["trial_id"] not in self._early]:
            new = {str(row["trial_id"]) for row in ended}
            self._early |= new
            for trial in new.intersection(message.without_models):
                record_unwritten(self._store.files, self._sweep, trial, [trial])
            self._store.write(self._sweep, cohort.id, ended, self._format.columns_of(ended))

    def failed(self, cohort: Cohort, failure: Failure) -> None:
        self._write(cohort, [Member("failed", 0, {}, failure.reason)] * len(cohort.trials))

    def _write(self, cohort: Cohort, members: Sequence[Member], origin: Origin | None = None) -> None:
        now = self._store.files.runtime.now()
        rows = self._format.rows(cohort, members, origin, self._begun.get(cohort.id, now), now)
        for follower in self._followers:
            follower.ended(cohort, rows)
        self._store.write(self._sweep, cohort.id, rows, self._format.columns_of(rows))
        for follower in self._followers:
            follower.recorded(cohort, rows)


@dataclass(frozen=True)
class _SourceUpdates(CohortListener):
    """Passes events on to the source of cohorts: a search proposes its next trials from their results."""

    source: CohortSource
    history: History

    def reported(self, cohort: Cohort, message: CohortReport) -> None:
        self.source.reported(cohort.id, message)

    def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        self.source.completed(cohort.id, rows, self.history.take(cohort))


class CheckpointRemover(CohortListener):
    """Deletes the checkpoint of a cohort that has a result, or was halved."""

    def __init__(self, files: Files, sweep: str) -> None:
        self._files, self._sweep = files, sweep

    def reported(self, cohort: Cohort, message: CohortReport) -> None:
        if message.report.done:
            self._delete(cohort)

    def split(self, cohort: Cohort, parts: Sequence[Cohort], failure: Failure) -> None:
        if cohort.id not in {part.id for part in parts}:  # else it stays whole, in narrower stacks
            self._delete(cohort)

    def _delete(self, cohort: Cohort) -> None:
        self._files.delete(checkpoint_path(self._sweep, cohort.id))
