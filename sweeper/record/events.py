"""The events of a run as JSON: what `sweeper run --json` prints, one object a line, and what `--on-end` gets.

Each class is an object, and each of its fields a field of it. Every object also has `event`, the name of its class in
small letters, and `time`, in UTC.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sweeper.errors import SweeperError
from sweeper.planning.cohorts import Cohort, Trial
from sweeper.planning.plan import Plan
from sweeper.printing import json_text
from sweeper.record.listener import CohortListener, Row
from sweeper.storage.files import Files
from sweeper.storage.layout import REPORTS, report_path
from sweeper.storage.retry import NO_RETRIES
from sweeper.storage.rows import FIXED
from sweeper.storage.store import Store

if TYPE_CHECKING:
    from sweeper.planning.sources import TrainedElsewhere
    from trainables.worker.messages import Failure


@dataclass(frozen=True)
class Event:
    """Something that happens in a run."""


@dataclass(frozen=True)
class RunBegun(Event):
    """The run has begun."""

    sweep: str
    request: str
    store: str
    user: str | None
    code_version: str
    total: int
    """Trials of the finished request."""
    left: int
    """Those without a result."""
    log: str
    """Address of the run's log."""


@dataclass(frozen=True)
class CohortStarted(Event):
    """A process trains a cohort."""

    cohort: str
    trials: Sequence[str]


@dataclass(frozen=True)
class CohortWaits(Event):
    """A cohort has saved at a rung, and waits there for others."""

    cohort: str
    trials: Sequence[str]


@dataclass(frozen=True)
class CohortRetried(Event):
    """A cohort was cut off, and is tried again."""

    cohort: str
    trials: Sequence[str]
    cause: str
    """`error`, `hung`, `memory`, `machine` or `device`."""
    reason: str


@dataclass(frozen=True)
class CohortSplit(Event):
    """A cohort begins anew in parts."""

    cohort: str
    trials: Sequence[str]
    cause: str
    reason: str
    parts: Sequence[str]
    """Cohorts."""


@dataclass(frozen=True)
class CohortFailed(Event):
    """A cohort is given up; its trials have failed."""

    cohort: str
    trials: Sequence[str]
    cause: str
    reason: str


@dataclass(frozen=True)
class TrialEnded(Event):
    """The row of a trial is in the store."""

    trial: str
    cohort: str
    status: str
    error: str | None
    epochs: int
    seconds: float
    """Its share of the cohort's training time."""
    hyperparameters: Mapping[str, object]
    metrics: Mapping[str, float | None]
    """The last ones."""


@dataclass(frozen=True)
class TrialsElsewhere(Event):
    """Another driver has trained trials of this run."""

    trials: Mapping[str, str]
    """Trial: status."""


@dataclass(frozen=True)
class RunEnded(Event):
    """The run has ended, also where it was interrupted."""

    sweep: str
    request: str
    store: str
    user: str | None
    exit_status: int
    reason: str | None
    """What stopped it early."""
    counts: Mapping[str, int] | None
    """Status: trials; null if the store cannot be read."""
    left: int | None
    """Trials without a result."""
    seconds: float
    best: str | None
    """The sentence about the best setting."""
    page: str | None
    log: str


EVENTS: Sequence[type[Event]] = Event.__subclasses__()


def name_of(kind: type[Event]) -> str:
    """The value of `event`: `trial_ended` for `TrialEnded`."""
    return re.sub(r"(?<=.)([A-Z])", r"_\1", kind.__name__).lower()


def json_line(event: Event, now: datetime) -> str:
    """Return an event as one line of JSON."""
    return json_text({"event": name_of(type(event)), "time": now.isoformat(), **vars(event)})


@contextlib.contextmanager
def lines_of_json(wanted: bool) -> Iterator[Callable[[str], None] | None]:
    """Context with a function that prints a line to standard output, where nothing else is printed: it goes to standard
    error. Where that is not `wanted`, there is no such function, and nothing changes."""
    if not wanted:
        yield None
        return
    out = sys.stdout

    def write(line: str) -> None:
        out.write(f"{line}\n")
        out.flush()

    with contextlib.redirect_stdout(sys.stderr):
        yield write


class EventWriter(CohortListener):
    """Writes a line of JSON for each event of a run."""

    def __init__(self, write: Callable[[str], None], now: Callable[[], datetime]) -> None:
        self._write, self._now = write, now

    def tell(self, event: Event) -> None:
        self._write(json_line(event, self._now()))

    def started(self, cohort: Cohort) -> None:
        self.tell(CohortStarted(cohort.id, _ids(cohort)))

    def waits(self, cohort: Cohort) -> None:
        self.tell(CohortWaits(cohort.id, _ids(cohort)))

    def interrupted(self, cohort: Cohort, failure: Failure) -> None:
        self.tell(CohortRetried(cohort.id, _ids(cohort), failure.cause, failure.reason))

    def split(self, cohort: Cohort, parts: Sequence[Cohort], failure: Failure) -> None:
        self.tell(CohortSplit(cohort.id, _ids(cohort), failure.cause, failure.reason, [part.id for part in parts]))

    def failed(self, cohort: Cohort, failure: Failure) -> None:
        self.tell(CohortFailed(cohort.id, _ids(cohort), failure.cause, failure.reason))

    def trained_elsewhere(self, trials: TrainedElsewhere) -> None:
        self.tell(TrialsElsewhere(trials.statuses))

    def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        trials = {trial.id: trial for trial in cohort.trials}
        for row in rows:
            self.tell(_trial_ended(trials[str(row["trial_id"])], row))


def _ids(cohort: Cohort) -> list[str]:
    return [trial.id for trial in cohort.trials]


def _trial_ended(trial: Trial, row: Row) -> TrialEnded:
    others = {*FIXED, *trial.config, *trial.facts, "schedule"}
    metrics: dict[str, Any] = {name: value for name, value in row.items() if name not in others}
    known: Mapping[str, Any] = row
    return TrialEnded(
        *(trial.id, known["cohort"], known["status"], known["error"], known["epochs_run"], known["seconds"]),
        {name: value for name, value in {**trial.config, **trial.facts}.items() if name not in FIXED},
        metrics,
    )


def begun(plan: Plan, files: Files, user: str | None, code_version: str, log: str) -> RunBegun:
    """Return the beginning of a run."""
    return RunBegun(plan.name, plan.request, files.display_uri, user, code_version, plan.total, plan.trials_left, log)


def ended(
    plan: Plan, files: Files, user: str | None, exit_status: int, reason: str | None, seconds: float, log: str
) -> RunEnded:
    """Return the end of a run, with what is in the store. `seconds` is how long it took."""
    from sweeper.report.answers import find_answer  # here: it imports pandas

    counts, page, best = None, None, None
    files = files.with_retries(NO_RETRIES)
    with contextlib.suppress(SweeperError):
        statuses = Store(files).statuses(plan.name, check_history=False)
        counts = Counter(statuses[trial] for trial in plan.ids if trial in statuses)
        path = report_path(plan.name)
        page = files.display_uri_of(path) if path.removeprefix(f"{REPORTS}/") in files.list(REPORTS) else None
        best = find_answer(files, plan.name, preset=plan.preset, changes=plan.changes.text).text
    left = None if counts is None else plan.total - counts.total() + counts["failed"]
    return RunEnded(
        *(plan.name, plan.request, files.display_uri, user, exit_status, reason),
        *(counts, left, round(seconds, 3), best, page, log),
    )
