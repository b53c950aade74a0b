"""The plan of a sweep: its trials, their status in the store, and the groups of a grid's trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sweeper.plan.changes import Changes
from sweeper.plan.cohorts import Group, Trial, content_hash
from sweeper.spec import Grid, Grids, Sweep
from sweeper.spec.metric import Metric
from sweeper.storage.layout import file_name
from sweeper.storage.requests import RequestRows
from sweeper.storage.rows import STATUSES

TO_RUN = "to run"
"""Status of a trial that has no row yet."""


@dataclass(frozen=True)
class Plan:
    """A whole sweep, finished trials included: a GridPlan or a SearchPlan."""

    name: str
    preset: str
    sweep: Sweep
    changes: Changes = field(default=Changes("", {}), kw_only=True)
    """What the request changes in the preset."""
    whole: RequestRows | None = field(default=None, kw_only=True)
    """The rows of the request without its narrowing; None if they are those of the plan's own trials."""
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    """What the user should know before it runs, one line each."""

    if TYPE_CHECKING:  # each kind of plan has these as fields or as properties

        @property
        def trials(self) -> tuple[Trial, ...]:
            """The trials that are known so far, in order."""

        @property
        def total(self) -> int:
            """Number of trials of the finished sweep."""

        @property
        def statuses(self) -> Mapping[str, str]:
            """trial_id -> status, of every trial that has a row."""

        @property
        def identifying_columns(self) -> tuple[str, ...]:
            """Hyperparameters that identify a trial to a reader."""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(trial.id for trial in self.trials)

    @property
    def request(self) -> str:
        """The name of the request: the preset and what the request changes in it, `digits, epochs=5`."""
        return self.changes.name or self.preset

    @property
    def request_rows(self) -> RequestRows:
        """The rows that belong to the request, of which a plan that narrows it trains a part."""
        return self.whole or RequestRows(self.request, self.preset, "trial_id", self.ids)

    @property
    def views(self) -> str:
        """Path of this request's views below the folder of each kind of view, e.g. `anomaly_grid/digits, epochs=5`."""
        return f"{self.name}/{file_name(self.request)}"

    @property
    def headline(self) -> Metric:
        return self.sweep.headline(self.preset)

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials by status; those without a row count as `to run`."""
        counts = dict.fromkeys((*STATUSES, TO_RUN), 0)
        for trial in self.trials:
            counts[self.statuses.get(trial.id, TO_RUN)] += 1
        return counts | {TO_RUN: counts[TO_RUN] + self.total - len(self.trials)}

    @property
    def trials_left(self) -> int:
        """Number of trials that this run has to train: those without a row and those that failed."""
        return self.counts[TO_RUN] + self.counts["failed"]


@dataclass(frozen=True)
class GridPlan(Plan):
    """The plan of a grid, whose trials are all known from the start."""

    trials: tuple[Trial, ...]
    groups: Sequence[Group]
    steps: Sequence[int]
    """Training steps of one trial of each group, from beginning to end."""
    statuses: Mapping[str, str]
    space: Grid | Grids | None = None
    """The space from which the trials were enumerated."""
    without_model: frozenset[str] = frozenset()
    """Trials that have a row, but are trained again because their model could not be written."""
    unsized: tuple[str, ...] = ()
    """Data sets of unknown size; `steps` is 0 for their trials."""

    @property
    def total(self) -> int:
        return len(self.trials)

    @property
    def identifying_columns(self) -> tuple[str, ...]:
        return tuple(filter(None, (*self.sweep.axes_by_metric[self.headline.name], self.sweep.breakdown)))

    def share_left(self, group: Group) -> float:
        """Return the share of a group's trials that this run has to train."""
        trials = [trial for stream in group for trial in stream]
        return sum(self.statuses.get(trial.id, "failed") == "failed" for trial in trials) / len(trials)

    @property
    def id(self) -> str:
        return content_hash(sorted(self.ids))
