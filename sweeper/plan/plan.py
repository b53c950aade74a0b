"""What is to run: a sweep's trials, what the store has of them, and how a grid's are cut into cohorts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sweeper.plan import cohorts
from sweeper.plan.changes import Changes
from sweeper.plan.cohorts import Cut, Group
from sweeper.plan.trials import Trial, content_hash
from sweeper.spec.metric import Metric
from sweeper.spec.search import Search, Searches
from sweeper.spec.sweep import Grid, Grids, Sweep
from sweeper.storage.io.files import Files
from sweeper.storage.json_records import read_record, whole
from sweeper.storage.schema import STATUSES

if TYPE_CHECKING:
    from sweeper.search.waves import Waves

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


@dataclass(frozen=True)
class SearchPlan(Plan):
    """Studies, whose trials become known wave by wave."""

    space: Search | Searches
    waves: Waves

    @property
    def trials(self) -> tuple[Trial, ...]:
        return self.waves.trials

    @property
    def total(self) -> int:
        return self.space.count

    @property
    def statuses(self) -> Mapping[str, str]:
        return {trial: status for course in self.waves.courses for trial, status in course.statuses.items()}

    @property
    def counts(self) -> dict[str, int]:
        found = super().counts
        for status in (status for course in self.waves.courses for status in course.ahead):
            found[status] += 1
            found[TO_RUN] -= 1
        return found

    @property
    def where(self) -> tuple[str, ...]:
        searches = self.space.searches if isinstance(self.space, Searches) else (self.space,)
        several = ("study",) if len(self.waves.courses) > 1 else ()
        return (*several, *(key for search in searches for key in search.space))


def recorded_cut(files: Files, plan: GridPlan) -> list[Cut] | None:
    """The cut that this plan was begun with; None if it was not begun, or the record is damaged."""

    def parse(plain: Any) -> list[Cut]:
        cuts = [Cut(whole(cut["size"], 1), whole(cut["width"], 1)) for cut in plain["cuts"]]
        if len(cuts) != len(plan.groups):
            raise ValueError(f"must have {len(plan.groups)} cuts, but has {len(cuts)}")
        return cuts

    return read_record(files, _path(plan), parse)


def recorded_threads(files: Files, plan: GridPlan) -> int:
    """With how many threads on a CPU each process trains, upon which the last bits of its results may depend."""
    return read_record(files, _path(plan), lambda plain: whole(plain.get("threads", 1), 1)) or 1


def record_cut(files: Files, plan: GridPlan, cuts: Sequence[Cut], measured: object, threads: int = 1) -> None:
    """Keep the cut, and the measurements it was chosen by, for when the sweep is continued."""
    content = {"preset": plan.preset, "cuts": [asdict(cut) for cut in cuts], "threads": threads, "measured": measured}
    files.write(_path(plan), json.dumps(content, indent=1).encode())


def records_of(files: Files, plan: GridPlan) -> list[str]:
    """Files that say how the plan was cut, and which of its cohorts were halved."""
    cuts, halved = recorded_cut(files, plan), recorded_halves(files, plan.name)
    before = cohorts.lineage(cohorts.cut(plan.groups, cuts), halved) if cuts else {}
    wholes = dict.fromkeys(whole.id for every in before.values() for whole in every)
    return [_path(plan), *(f"{_halved(plan.name)}/{whole}" for whole in wholes)]


def recorded_halves(files: Files, name: str) -> set[str]:
    """Ids of the cohorts of a sweep that were halved, because they did not fit or one of their trials cannot train."""
    return set(files.list(_halved(name)))


def record_halved(files: Files, name: str, cohort: str) -> None:
    """Keep that it was halved, for when the sweep is continued."""
    files.write(f"{_halved(name)}/{cohort}", b"")


def _path(plan: GridPlan) -> str:
    return f"cuts/sweep={plan.name}/{plan.id}.json"


def _halved(name: str) -> str:
    return f"cuts/sweep={name}/halved"
