"""The plan of a search, whose trials become known wave by wave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeper.plan.cohorts import Trial
from sweeper.plan.plan import TO_RUN, Plan
from sweeper.spec.space import Search, Searches

if TYPE_CHECKING:  # it imports Optuna
    from sweeper.search.study_run import StudyRun


@dataclass(frozen=True)
class SearchPlan(Plan):
    """Plan of one or several studies."""

    space: Search | Searches
    """With the request's changes."""
    study_runs: Sequence[StudyRun]
    """The studies, rebuilt from their rows."""
    steps: Sequence[int] = ()
    """Training steps of a trial of each study, from beginning to end; the least where they differ."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        return tuple(trial for study_run in self.study_runs for trial in study_run.trials)

    @property
    def total(self) -> int:
        return self.space.count

    @property
    def statuses(self) -> Mapping[str, str]:
        return {trial: status for study_run in self.study_runs for trial, status in study_run.statuses.items()}

    @property
    def counts(self) -> dict[str, int]:
        counts = super().counts
        for status in (status for study_run in self.study_runs for status in study_run.ahead):
            counts[status] += 1
            counts[TO_RUN] -= 1
        return counts

    @property
    def study_names(self) -> Mapping[str, str]:
        """trial_id -> name of its study here. Its row names the study that trained it, such as that of a preset."""
        return {trial.id: study_run.study.name for study_run in self.study_runs for trial in study_run.trials}

    @property
    def diverged_studies(self) -> list[str]:
        """Names of the studies whose trials have all diverged."""
        return [
            study_run.study.name
            for study_run in self.study_runs
            if len(study_run.statuses) == study_run.study.search.trials
            and set(study_run.statuses.values()) == {"diverged"}
        ]

    @property
    def identifying_columns(self) -> tuple[str, ...]:
        searches = self.space.searches if isinstance(self.space, Searches) else (self.space,)
        several = ("study",) if len(self.study_runs) > 1 else ()
        return (*several, *(key for search in searches for key in search.space))
