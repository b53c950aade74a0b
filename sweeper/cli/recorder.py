"""Reports -> rows and history in the store, as they come, and to the live view."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sweeper.cli.progress import Progress
from sweeper.plan.cohort_source import CohortSource, Record
from sweeper.plan.cohorts import Cohort
from sweeper.plan.trials import Trial
from sweeper.storage.schema import Columns
from sweeper.storage.store import Store, checkpoint_path

HISTORY_SECONDS = 1.0
"""Seconds between two writes of one cohort's history while it trains; reports that come faster are written together."""


class Recorder:
    """A `dispatch.Listener`: a cohort's history is written as it reports, its rows when it is done, after all history.

    So a row means that all of the trial is there. Writing is idempotent by trial id: a cohort that runs twice, because
    a driver died between its last report and its rows, changes nothing.
    """

    def __init__(
        self,
        store: Store,
        sweep: str,
        columns: Columns,
        feed: CohortSource,
        progress: Progress,
        code: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._sweep, self._columns, self._feed = store, sweep, columns, feed
        self._history: dict[str, list[Record]] = {}
        self._unwritten: dict[str, int] = {}
        """Of each cohort that trains: the index of the first record of its history that is not in the store."""
        self._written_at: dict[str, float] = {}
        self._clock = clock
        self._begun: dict[str, datetime] = {}
        self._ended: set[str] = set()
        self._progress, self._code = progress, code

    def started(self, cohort: str) -> None:
        self._history[cohort], self._unwritten[cohort] = [], 0
        self._begun.setdefault(cohort, datetime.now(UTC))
        self._progress.started(len(self._feed.cohorts[cohort].trials))
        self._feed.started(cohort)

    def reported(self, cohort: str, message: Mapping[str, Any]) -> None:
        report = message["report"]
        if message.get("notice"):
            self._progress.line(f"cohort {cohort}: {message['notice']}")
        self._feed.reported(cohort, report)
        trials = self._feed.cohorts[cohort].trials
        self._history[cohort] += [
            (trial.id, report["epoch"], metric, value)
            for trial, member in zip(trials, report["members"], strict=True)
            for metric, value in member["metrics"].items()
            if value is not None and member["epochs_run"] == report["epoch"]
        ]
        if report["done"]:
            self._store.write_history(self._sweep, cohort, self._history[cohort])
            self._forget(cohort)
            self._write(cohort, report["members"], message)
            self._tidy(cohort)
            return
        self._write_due_history()
        values = [member["metrics"].get(self._progress.metric) for member in report["members"]]
        self._progress.advanced(cohort, len(trials), report["epoch"], _epochs(trials), None, values)

    def advanced(self, cohort: str, heartbeat: Mapping[str, Any]) -> None:
        self._write_due_history()
        trials = self._feed.cohorts[cohort].trials
        self._progress.advanced(
            cohort, len(trials), heartbeat["epoch"], heartbeat["epochs"], heartbeat["loss"], values=()
        )

    def interrupted(self, cohort: str, error: str) -> None:
        count = len(self._feed.cohorts[cohort].trials)
        self._forget(cohort)
        self._progress.stopped(count)
        self._feed.stopped(cohort)
        self._progress.line(f"cohort {cohort} ({count} trials) was cut off and goes on from its checkpoint: {error}")

    def split(self, cohort: str, parts: Sequence[Cohort], error: str) -> None:
        """The `parts` take its place: its halves, or the same trials in narrower stacks."""
        count = len(self._feed.cohorts[cohort].trials)
        self._forget(cohort)
        if len(parts) > 1:  # its halves report again what it has reported, to rounding
            self._store.delete_history(self._sweep, cohort)
        how = f"{len(parts)} halves" if len(parts) > 1 else f"stacks of {parts[0].width}"
        self._progress.stopped(count, cohorts=len(parts) - 1)
        self._feed.stopped(cohort)
        self._progress.line(f"cohort {cohort} ({count} trials) goes on in {how}: {error}")

    def failed(self, cohort: str, error: str) -> None:
        nothing = {"status": "failed", "error": error, "epochs_run": 0, "metrics": {}, "seconds": 0.0, "schedule": None}
        members = [nothing for _ in self._feed.cohorts[cohort].trials]
        self._forget(cohort)
        self._progress.line(f"cohort {cohort} ({len(members)} trials) failed for good: {error}")
        self._write(cohort, members, {})

    def _write_due_history(self) -> None:
        """Of every cohort that has reported since its history was written, if that is `HISTORY_SECONDS` ago."""
        now = self._clock()
        for cohort, start in self._unwritten.items():
            records = self._history[cohort]
            if start < len(records) and now - self._written_at.get(cohort, -math.inf) >= HISTORY_SECONDS:
                self._store.write_history(self._sweep, cohort, records[start:], ended=False)
                self._unwritten[cohort], self._written_at[cohort] = len(records), now

    def _forget(self, cohort: str) -> None:
        """The cohort trains no longer."""
        self._unwritten.pop(cohort, None)
        self._written_at.pop(cohort, None)
        self._progress.left(cohort)

    def _tidy(self, cohort: str) -> None:
        """Remove the checkpoint of a cohort that has a result, and those of what it was the last part of."""
        self._store.files.delete(checkpoint_path(self._sweep, cohort))
        self._ended.add(cohort)
        for whole in self._feed.before(cohort):
            if self._parts_of(whole.id) <= self._ended:
                self._store.files.delete(checkpoint_path(self._sweep, whole.id))
                self._ended.add(whole.id)

    def _parts_of(self, whole: str) -> set[str]:
        return {one for one in self._feed.cohorts if whole in {other.id for other in self._feed.before(one)}}

    def _write(self, cohort: str, members: Sequence[Mapping[str, Any]], message: Mapping[str, Any]) -> None:
        trials, now = self._feed.cohorts[cohort].trials, datetime.now(UTC)
        shared = {
            "cohort": cohort,
            "cohort_size": len(trials),
            "device": message.get("device"),
            "host": message.get("host"),
            "code_version": self._code,
            "started": datetime.fromisoformat(message["started"]) if message else self._begun.get(cohort, now),
            "ended": now,
        }
        rows = [
            {
                "trial_id": trial.id,
                **trial.config,
                **trial.facts,
                **({"schedule": member["schedule"]} if "schedule" in self._columns.hyperparameters else {}),
                **member["metrics"],
                "status": member["status"],
                "error": member["error"],
                "epochs_run": member["epochs_run"],
                "seconds": member["seconds"],
                **shared,
            }
            for trial, member in zip(trials, members, strict=True)
        ]
        self._store.write(self._sweep, cohort, rows, self._columns)
        self._progress.finished(rows)
        self._feed.told(cohort, rows, self._history.pop(cohort, []))


def _epochs(trials: Sequence[Trial]) -> int | None:
    """Epochs of the whole training, which the members of a cohort share."""
    epochs = trials[0].config.get("epochs")
    return epochs if isinstance(epochs, int) else None
