"""Cohorts of a search, wave by wave.

The cohorts of a study that prunes have positions (`place`) in the order in which they start. At a rung a cohort waits
only for cohorts at lower positions. A wave's cohorts stand `ROOM` positions apart, so that the parts of a halved cohort
find positions between it and the next cohort.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from sweeper.plan import cohorts
from sweeper.plan.cohort_source import Record
from sweeper.plan.cohorts import Cohort, Cut, Group
from sweeper.plan.trials import Trial
from sweeper.search.study_run import StudyRun, result
from sweeper.spec.search import Study

ROOM = 1 << 32
"""Positions from one cohort of a wave to the next.

The parts of a cohort share its positions equally. When a part is opened, its trials that already have a result take its
first position, and the remaining trials take the next.
"""


class RungVerbs(Protocol):
    """What `Waves` needs of a `sweeper.pruning.rung_client.RungClient`.

    It is told of every cohort whose members are compared at rungs.
    """

    def expect(self, study: str, place: int, cohort: str, numbers: Sequence[int]) -> None: ...
    def seed(self, study: str, place: int, numbers: Sequence[int], reached: Sequence[Mapping[int, float]]) -> None: ...
    def split(self, cohort: str, parts: Sequence[str], second: int, count: int) -> None: ...
    def started(self, cohort: str) -> None: ...
    def stopped(self, cohort: str) -> None: ...
    def reported(self, cohort: str, report: Mapping[str, Any]) -> None: ...
    def end(self, cohort: str) -> None: ...


@dataclass
class Waves:
    """`CohortSource` of the cohorts of all studies of a search. Call `begin` before `next`."""

    study_runs: Sequence[StudyRun]
    shape: Callable[[Trial], Hashable]
    """Trials of equal shape may share a cohort."""
    stream: Callable[[Trial], Hashable]
    """Trials of equal stream read the same data."""
    population: Callable[[Study], Mapping[str, Any]]
    """Returns the population's part of the `options` of a study's cohorts."""
    cut: Callable[[Sequence[Group], bool], list[Cut]] | None = None
    """See `sweeper.packing.cuts.wave_cut`."""
    ladder: RungVerbs | None = None
    """Rungs at which cohorts are compared; None if no study prunes."""
    heard: Callable[[StudyRun], None] | None = None
    """Called with a study after one of its waves has been told."""
    halved: Collection[str] = ()
    """Ids of the cohorts that were halved in earlier runs."""
    record: Callable[[str], None] = lambda cohort: None
    """Called with the id of every cohort that is halved."""
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    """Cohort by id."""
    _whole: dict[str, Cohort] = field(default_factory=dict)
    """Cohort by id, including the trials that had a result before it was opened."""
    _ready: deque[Cohort] = field(default_factory=deque)
    _study_run_of: dict[str, StudyRun] = field(default_factory=dict)
    _before: dict[str, Sequence[Cohort]] = field(default_factory=dict)
    """Id of a part -> the cohorts that it was halved from, nearest first."""
    _places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Id -> first position and number of positions, for the cohorts that are compared at rungs."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials asked so far, study by study."""
        return tuple(trial for study_run in self.study_runs for trial in study_run.trials)

    def begin(
        self,
        cut: Callable[[Sequence[Group], bool], list[Cut]],
        ladder: RungVerbs | None = None,
        heard: Callable[[StudyRun], None] | None = None,
        halved: Collection[str] = (),
        record: Callable[[str], None] = lambda cohort: None,
    ) -> None:
        """Open the last wave of every study. The arguments set the attributes of the same names."""
        self.cut, self.ladder, self.heard, self.halved, self.record = cut, ladder, heard, halved, record
        for study_run in self.study_runs:
            if self.heard:
                self.heard(study_run)
            for number, wave in enumerate(study_run.waves[:-1]):
                self._seed(study_run, _first_place(number, 0), wave)
            if not study_run.ended:
                self._open(study_run)

    @property
    def ended(self) -> bool:
        return not self._ready and all(study_run.ended for study_run in self.study_runs)

    def next(self) -> Cohort | None:
        return self._ready.popleft() if self._ready else None

    def options(self, cohort: str) -> Mapping[str, Any]:
        study = self._study_run_of[cohort].study
        return {**self.population(study), "judged": study.search.pruner is not None}

    def before(self, cohort: str) -> Sequence[Cohort]:
        return self._before.get(cohort, ())

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        """As `CohortQueue.halve`, but returns nothing for a cohort of a population, whose members copy each other."""
        study_run = self._study_run_of[cohort.id]
        if study_run.study.search.population:
            return ()
        halves = cohorts.halves(self._whole[cohort.id])
        self.record(cohort.id)
        parts = cohorts.remaining(halves, study_run.statuses)
        ids = [part.id for part in parts]
        self._whole |= {half.id: half for half in halves}
        self.cohorts |= {part.id: part for part in parts}
        self._study_run_of |= dict.fromkeys(ids, study_run)
        self._before |= dict.fromkeys(ids, (cohort, *self.before(cohort.id)))
        if cohort.id in self._places:
            assert self.ladder is not None
            place, room = self._places[cohort.id]
            room //= 2
            self._places |= {part_id: (place + index * room, room) for index, part_id in enumerate(ids)}
            if len(parts) == 2:
                self.ladder.split(cohort.id, ids, place + room, len(parts[0].trials))
            else:  # all remaining trials are in one half, which takes the cohort's position
                self.ladder.expect(study_run.id, place, ids[0], _numbers(cohort.trials))
        return parts

    def started(self, cohort: str) -> None:
        if self.ladder:
            self.ladder.started(cohort)

    def stopped(self, cohort: str) -> None:
        if self.ladder:
            self.ladder.stopped(cohort)

    def reported(self, cohort: str, report: Mapping[str, Any]) -> None:
        if self.ladder:
            self.ladder.reported(cohort, report)

    def told(self, cohort: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Record]) -> None:
        study_run = self._study_run_of[cohort]
        if self.ladder:
            self.ladder.end(cohort)
        if not study_run.told({str(row["trial_id"]): result(study_run.study, row, history) for row in rows}):
            return
        if self.heard:
            self.heard(study_run)
        if not study_run.ended:
            self._open(study_run)

    def _open(self, study_run: StudyRun) -> None:
        """Make the cohorts of the study's last wave ready, largest first.

        The whole wave is cut, and its cohorts are halved as in earlier runs. The trials that already have a result are
        then removed, so that a continued search has the same cohorts.
        """
        assert self.cut is not None
        wave_number, wave = len(study_run.waves) - 1, study_run.waves[-1]
        groups = cohorts.group(wave, self.shape, self.stream)
        cuts = self.cut(groups, study_run.study.search.population is not None)
        whole_cohorts = sorted(cohorts.cut(groups, cuts), key=lambda cohort: -len(cohort.trials))
        statuses = study_run.statuses
        self._before |= cohorts.lineage(whole_cohorts, self.halved)
        for cohort_index, cohort in enumerate(whole_cohorts):
            parts = cohorts.halved([cohort], self.halved)
            room = ROOM // len(parts)
            for part_index, part in enumerate(parts):
                place = _first_place(wave_number, cohort_index) + part_index * room
                if done := [trial for trial in part.trials if trial.id in statuses]:
                    self._seed(study_run, place, done)
                for remaining in cohorts.remaining([part], statuses):
                    self._whole[part.id] = part
                    self._make_ready(study_run, place + 1, room - 1, remaining)

    def _make_ready(self, study_run: StudyRun, place: int, room: int, cohort: Cohort) -> None:
        self.cohorts[cohort.id], self._study_run_of[cohort.id] = cohort, study_run
        if self.ladder and study_run.study.search.pruner:
            self._places[cohort.id] = place, room
            self.ladder.expect(study_run.id, place, cohort.id, _numbers(cohort.trials))
        self._ready.append(cohort)

    def _seed(self, study_run: StudyRun, place: int, trials: Sequence[Trial]) -> None:
        """Tell the rungs, if the study prunes, what these trials reached in earlier runs."""
        if self.ladder and study_run.study.search.pruner:
            self.ladder.seed(study_run.id, place, _numbers(trials), [study_run.reached(trial) for trial in trials])


def _numbers(trials: Sequence[Trial]) -> list[int]:
    """Numbers of the trials in their study."""
    return [cast(int, trial.facts["number"]) for trial in trials]


def _first_place(wave: int, index: int) -> int:
    """First position of the cohort `index` of a wave, in the order in which a study's cohorts start."""
    return (wave * 1_000_000 + index) * ROOM
