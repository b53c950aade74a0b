"""What is to run: a sweep's trials, what the store has of them, and how a grid's are cut into cohorts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sweeper.plan.changes import Changes
from sweeper.plan.cohorts import Group
from sweeper.plan.trials import Trial, content_hash
from sweeper.spec import Grid, Grids, Sweep
from sweeper.spec.metric import Metric
from sweeper.storage.schema import STATUSES

if TYPE_CHECKING:
    pass

TO_RUN = "to run"


@dataclass(frozen=True)
class Plan:
    """A whole sweep, however much of it is done: a GridPlan or a SearchPlan."""

    name: str
    preset: str
    sweep: Sweep
    changes: Changes = field(default=Changes("", {}), kw_only=True)
    """What the request changed in the preset."""

    if TYPE_CHECKING:  # each kind of plan has these as fields, or as properties

        @property
        def trials(self) -> tuple[Trial, ...]:
            """Those that are known, in their order."""

        @property
        def total(self) -> int:
            """How many trials there are to be."""

        @property
        def statuses(self) -> Mapping[str, str]:
            """trial_id -> status, of every trial that has a row."""

        @property
        def where(self) -> tuple[str, ...]:
            """Hyperparameters that say which trial is meant."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Of all known trials, in their order."""
        return tuple(trial.id for trial in self.trials)

    @property
    def label(self) -> str:
        """The preset and what the request changed in it: `digits, epochs=5`."""
        return self.changes.label or self.preset

    @property
    def views(self) -> str:
        """Where below the folder of a kind of view this request's are: those of presets, and of requests that change
        one, stand side by side."""
        return f"{self.name}/{self.changes.folder or self.preset}"

    @property
    def headline(self) -> Metric:
        """The metric that says which trial is best."""
        return self.sweep.headline(self.preset)

    @property
    def counts(self) -> dict[str, int]:
        """Trials by status, those without a row as `to run`."""
        found = dict.fromkeys((*STATUSES, TO_RUN), 0)
        for trial in self.trials:
            found[self.statuses.get(trial.id, TO_RUN)] += 1
        return found | {TO_RUN: found[TO_RUN] + self.total - len(self.trials)}

    @property
    def left(self) -> int:
        """Trials that this run has to train: those without a row and those that failed."""
        return self.counts[TO_RUN] + self.counts["failed"]


@dataclass(frozen=True)
class GridPlan(Plan):
    """Trials that are all known before."""

    trials: tuple[Trial, ...]
    groups: Sequence[Group]
    """Trials that may share a cohort."""
    steps: Sequence[int]
    """Of each group: training steps of a trial, from beginning to end."""
    statuses: Mapping[str, str]
    space: Grid | Grids | None = None
    """What the trials were enumerated from."""
    unsized: tuple[str, ...] = ()
    """Data sets of unknown size, whose trials have 0 in `steps`."""

    @property
    def total(self) -> int:
        return len(self.trials)

    @property
    def where(self) -> tuple[str, ...]:
        return tuple(filter(None, (*self.sweep.shown[self.headline.name], self.sweep.breakdown)))

    @property
    def id(self) -> str:
        """A hash of the trials' ids."""
        return content_hash(sorted(self.ids))
