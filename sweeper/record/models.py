"""Keeps the store's models down to those of the best trials while a sweep runs with `--keep best`.

Workers write the models of all finished members, because only the driver knows the other cohorts. The driver deletes
those of a cohort that are not the best of a cell before it writes the cohort's rows, and afterwards those that the
cohort's best have displaced. So nothing that is wanted is ever missing, whenever a process is killed:

- before the rows are written, the cohort is trained again from its checkpoint, and its models are written again;
- before the displaced models are deleted, the next run deletes them at its end (`remove_displaced`), with those of
  trials that have failed.

The best trials of another request of the sweep, for example with other seeds, are left alone. Every request lists its
own in the store: before it writes rows with a new best trial, and exactly at its end once all its trials have a
result.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweeper.planning.cohorts import Cohort
from sweeper.planning.plan import Plan
from sweeper.record.listener import CohortListener, Row
from sweeper.results.best_trials import BestTrials, best_at_end, rankings_of, settings_of
from sweeper.storage.files import Files
from sweeper.storage.models import (
    best_of_others,
    delete_displaced,
    delete_models,
    trials_with_models,
    write_best,
)


class KeptModels(CohortListener):
    """The models of a plan's best trials, in a run with `--keep best`."""

    def __init__(self, files: Files, plan: Plan) -> None:
        self._files, self._plan, self._best = files, plan, BestTrials(rankings_of(plan))
        self._listed: frozenset[str] = frozenset()
        self._displaced: frozenset[str] = frozenset()

    def begin(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take the rows that the request has already, including those of trials of which the plan is only a part."""
        self._best.add(rows)

    def ended(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        """Delete the models of those trials that are not best."""
        before = self._best.ids
        self._best.add(rows)
        best = self._best.ids
        self._displaced = before - best
        if (listed := before | best) != self._listed:
            write_best(self._files, self._plan.request_folder, listed)
            self._listed = listed
        # Of a trial that failed here another driver may have a result, which only the rows in the store tell.
        worse = {str(row["trial_id"]) for row in rows if row["status"] != "failed"} - best
        if worse:
            kept = best_of_others(self._files, self._plan.request_folder)
            delete_models(self._files, self._plan.name, sorted(worse - kept))

    def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        """Delete the models that were best before."""
        if self._displaced:
            stale = self._displaced - best_of_others(self._files, self._plan.request_folder)
            delete_displaced(self._files, self._plan.name, sorted(stale))
            self._displaced = frozenset()


def remove_displaced(files: Files, plan: Plan, rows: Sequence[Mapping[str, Any]]) -> None:
    """Delete the models of the request's trials that have a row and are not best, as far as runs with `--keep best`
    wrote them: a driver that was killed may have left some. `rows` are those of the request."""
    best = best_at_end(plan, rows)
    write_best(files, plan.request_folder, best)
    stale = {row["trial_id"] for row in rows}.intersection(trials_with_models(files, plan.name)) - best
    if stale:
        delete_displaced(files, plan.name, sorted(stale - best_of_others(files, plan.request_folder)))


def ranked_columns(plan: Plan) -> tuple[str, ...]:
    """The columns of rows that are read here."""
    return (*BestTrials(rankings_of(plan)).columns, *settings_of(plan).columns)
