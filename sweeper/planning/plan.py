"""The plan of a sweep: the trials of its grids and their groups, its studies, and the status of all in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from sweeper.definition import Space, Sweep
from sweeper.definition.metric import Metric
from sweeper.planning.changes import Changes
from sweeper.planning.cohorts import Group, Trial, content_hash
from sweeper.storage.layout import file_name
from sweeper.storage.requests import RequestRows
from sweeper.storage.rows import STATUSES

if TYPE_CHECKING:  # it imports Optuna
    from sweeper.search.study_run import StudyRun

TO_RUN = "to run"
"""Status of a trial that has no row yet."""


@dataclass(frozen=True)
class Plan:
    """A whole request, finished trials included.

    The trials of its grids are known from the start, and form groups across all of them. Those of its studies become
    known wave by wave.
    """

    name: str
    preset: str
    sweep: Sweep
    grid_trials: tuple[Trial, ...] = ()
    groups: Sequence[Group] = ()
    """The trials of its grids."""
    steps: Sequence[int] = ()
    """Training steps of one trial of each group, from beginning to end."""
    grid_statuses: Mapping[str, str] = field(default_factory=dict)
    """trial_id -> status, of every trial of the sweep's grids that has a row."""
    study_runs: Sequence[StudyRun] = ()
    """The studies of its searches, rebuilt from their rows."""
    _: KW_ONLY
    space: Space = ()
    """The preset with the request's changes."""
    changes: Changes = field(default=Changes("", {}))
    """What the request changes in the preset."""
    whole: RequestRows | None = None
    """The rows of the request without its narrowing; None if they are those of the plan's own trials."""
    notes: tuple[str, ...] = ()
    """What the user should know before it runs, one line each."""
    without_model: frozenset[str] = frozenset()
    """Trials that have a row, but are trained again because their model could not be written."""
    unsized: tuple[str, ...] = ()
    """Data sets of unknown size; `steps` is 0 for their trials."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials that are known so far, in order."""
        of_studies = [trial for study_run in self.study_runs for trial in study_run.trials]
        return (*self.grid_trials, *of_studies) if of_studies else self.grid_trials

    @property
    def ahead(self) -> list[tuple[Trial, str]]:
        """Further trials that have a row, and their statuses: those of waves after one whose failed trials are tried
        again first."""
        return [trial for study_run in self.study_runs for trial in study_run.ahead]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(trial.id for trial in self.trials)

    @property
    def total(self) -> int:
        """Number of trials of the finished request."""
        searches = (study_run.study.search for study_run in self.study_runs)
        return len(self.grid_trials) + sum(search.trials * search.repeats for search in searches)

    @property
    def statuses(self) -> Mapping[str, str]:
        """trial_id -> status, of every trial that has a row."""
        of_studies = {trial: status for study_run in self.study_runs for trial, status in study_run.statuses.items()}
        return {**self.grid_statuses, **of_studies} if of_studies else self.grid_statuses

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials by status; those without a row count as `to run`."""
        counts, statuses = dict.fromkeys((*STATUSES, TO_RUN), 0), self.statuses
        for trial in self.trials:
            counts[statuses.get(trial.id, TO_RUN)] += 1
        ahead = self.ahead
        for _, status in ahead:
            counts[status] += 1
        return counts | {TO_RUN: counts[TO_RUN] + self.total - len(self.trials) - len(ahead)}

    @property
    def trials_left(self) -> int:
        """Number of trials that this run has to train: those without a row and those that failed."""
        return self.counts[TO_RUN] + self.counts["failed"]

    @property
    def request(self) -> str:
        """The name of the request: the preset and what the request changes in it, `digits, epochs=5`."""
        return self.whole.request if self.whole else self.changes.name or self.preset

    @property
    def request_rows(self) -> RequestRows:
        """The rows that belong to the request, of which a plan that narrows it trains a part."""
        return self.whole or RequestRows(self.request, self.preset, self.ids)

    @property
    def request_folder(self) -> str:
        """Path of this request's folder below that of each kind of figure, e.g. `anomaly_grid/digits, epochs=5`."""
        return f"{self.name}/{file_name(self.request)}"

    @property
    def headline(self) -> Metric:
        return self.sweep.headline(self.preset)

    @property
    def identifying_columns(self) -> tuple[str, ...]:
        """Hyperparameters that identify a trial to a reader."""
        axes = self.sweep.axes_by_metric.get(self.headline.name, ()) if self.groups else ()
        breakdown = (self.sweep.breakdown,) if self.groups and self.sweep.breakdown else ()
        several = ("study",) if len(self.study_runs) > 1 else ()
        searched = (key for study_run in self.study_runs for key in study_run.study.search.searched)
        return tuple(dict.fromkeys((*axes, *breakdown, *several, *searched)))

    @property
    def grid_id(self) -> str:
        """A hash of the trials of its grids, by which their cuts are recorded."""
        return content_hash(sorted(trial.id for trial in self.grid_trials))

    def share_left(self, group: Group) -> float:
        """Return the share of a group's trials that this run has to train."""
        trials = [trial for stream in group for trial in stream]
        return sum(self.grid_statuses.get(trial.id, "failed") == "failed" for trial in trials) / len(trials)

    @property
    def study_names(self) -> Mapping[str, str]:
        """trial_id -> name of its study here. Its row names the study that trained it, such as that of a preset."""
        return {trial.id: study_run.study.name for study_run in self.study_runs for trial in study_run.trials}

    @property
    def diverged_studies(self) -> list[str]:
        """Names of the studies whose proposals have all diverged."""
        return [study_run.study.name for study_run in self.study_runs if study_run.diverged]
