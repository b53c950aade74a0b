"""The studies of a search, wave by wave: what is to be trained next, and what is told of what was trained."""

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
"""Of places from one cohort of a wave to the next: for its halves, their halves and so on, and before each of them for
those of its trials that have a result."""


class RungVerbs(Protocol):
    """Is told of every cohort whose members are compared at rungs (`sweeper.pruning.rung_client`)."""

    def expect(self, study: str, place: int, cohort: str, numbers: Sequence[int]) -> None: ...
    def seed(self, study: str, place: int, numbers: Sequence[int], reached: Sequence[Mapping[int, float]]) -> None: ...
    def split(self, cohort: str, parts: Sequence[str], second: int, count: int) -> None: ...
    def started(self, cohort: str) -> None: ...
    def stopped(self, cohort: str) -> None: ...
    def reported(self, cohort: str, report: Mapping[str, Any]) -> None: ...
    def end(self, cohort: str) -> None: ...


@dataclass
class Waves:
    """A `feed.CohortSource` of the cohorts of all studies."""

    study_runs: Sequence[StudyRun]
    shape: Callable[[Trial], Hashable]
    """Trials of equal shape may share a cohort."""
    stream: Callable[[Trial], Hashable]
    """Trials of equal streams read the same data."""
    population: Callable[[Study], Mapping[str, Any]]
    """What `options` says of the cohorts of a study."""
    cut: Callable[[Sequence[Group], bool], list[Cut]] | None = None
    """See `cutting.wave_cut`."""
    ladder: RungVerbs | None = None
    heard: Callable[[StudyRun], None] | None = None
    """Is told of a study one of whose waves has been told."""
    halved: Collection[str] = ()
    """Ids of the cohorts that were halved in earlier runs."""
    record: Callable[[str], None] = lambda cohort: None
    """Is told of every cohort that is halved."""
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    _whole: dict[str, Cohort] = field(default_factory=dict)
    """Each cohort with those of its trials that had a result before."""
    _ready: deque[Cohort] = field(default_factory=deque)
    _course: dict[str, StudyRun] = field(default_factory=dict)
    _before: dict[str, Sequence[Cohort]] = field(default_factory=dict)
    _places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each cohort that is compared at rungs: its place, and the room behind it for its parts."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All that were asked so far, study by study."""
        return tuple(trial for study_run in self.study_runs for trial in study_run.trials)

    def begin(
        self,
        cut: Callable[[Sequence[Group], bool], list[Cut]],
        ladder: RungVerbs | None = None,
        heard: Callable[[StudyRun], None] | None = None,
        halved: Collection[str] = (),
        record: Callable[[str], None] = lambda cohort: None,
    ) -> None:
        """From now on cohorts are given."""
        self.cut, self.ladder, self.heard, self.halved, self.record = cut, ladder, heard, halved, record
        for study_run in self.study_runs:
            if self.heard:
                self.heard(study_run)
            for number, wave in enumerate(study_run.waves[:-1]):
                self._seed(study_run, _place(number, 0), wave)
            if not study_run.ended:
                self._open(study_run)

    @property
    def ended(self) -> bool:
        return not self._ready and all(study_run.ended for study_run in self.study_runs)

    def next(self) -> Cohort | None:
        return self._ready.popleft() if self._ready else None

    def options(self, cohort: str) -> Mapping[str, Any]:
        study = self._course[cohort].study
        return {**self.population(study), "judged": study.search.pruner is not None}

    def before(self, cohort: str) -> Sequence[Cohort]:
        return self._before.get(cohort, ())

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        """As `CohortQueue.halve`."""
        study_run = self._course[cohort.id]
        if study_run.study.search.population:  # whose members copy each other
            return ()
        halves = cohorts.halves(self._whole[cohort.id])
        self.record(cohort.id)
        parts = cohorts.remaining(halves, study_run.statuses)
        ids = [part.id for part in parts]
        self._whole |= {half.id: half for half in halves}
        self.cohorts |= {part.id: part for part in parts}
        self._course |= dict.fromkeys(ids, study_run)
        self._before |= dict.fromkeys(ids, (cohort, *self.before(cohort.id)))
        if cohort.id in self._places:
            assert self.ladder is not None
            place, room = self._places[cohort.id]
            room //= 2
            self._places |= {part: (place + nth * room, room) for nth, part in enumerate(ids)}
            if len(parts) == 2:
                self.ladder.split(cohort.id, ids, place + room, len(parts[0].trials))
            else:  # the same trials, at the same place
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
        study_run = self._course[cohort]
        if self.ladder:
            self.ladder.end(cohort)
        if not study_run.told({str(row["trial_id"]): result(study_run.study, row, history) for row in rows}):
            return
        if self.heard:
            self.heard(study_run)
        if not study_run.ended:
            self._open(study_run)

    def _open(self, study_run: StudyRun) -> None:
        """The cohorts of a course's last wave, largest first: cut from the whole of it and halved as in earlier runs,
        without the trials that have a result."""
        assert self.cut is not None
        number, wave = len(study_run.waves) - 1, study_run.waves[-1]
        groups = cohorts.group(wave, self.shape, self.stream)
        cuts = self.cut(groups, study_run.study.search.population is not None)
        whole = sorted(cohorts.cut(groups, cuts), key=lambda cohort: -len(cohort.trials))
        statuses = study_run.statuses
        self._before |= cohorts.lineage(whole, self.halved)
        for index, cohort in enumerate(whole):
            parts = cohorts.halved([cohort], self.halved)
            room = ROOM // len(parts)
            for nth, part in enumerate(parts):
                place = _place(number, index) + nth * room
                if done := [trial for trial in part.trials if trial.id in statuses]:
                    self._seed(study_run, place, done)
                for rest in cohorts.remaining([part], statuses):
                    self._whole[part.id] = part
                    self._give(study_run, place + 1, room - 1, rest)

    def _give(self, study_run: StudyRun, place: int, room: int, cohort: Cohort) -> None:
        self.cohorts[cohort.id], self._course[cohort.id] = cohort, study_run
        if self.ladder and study_run.study.search.pruner:
            self._places[cohort.id] = place, room
            self.ladder.expect(study_run.id, place, cohort.id, _numbers(cohort.trials))
        self._ready.append(cohort)

    def _seed(self, study_run: StudyRun, place: int, trials: Sequence[Trial]) -> None:
        if self.ladder and study_run.study.search.pruner:
            self.ladder.seed(study_run.id, place, _numbers(trials), [study_run.reached(trial) for trial in trials])


def _numbers(trials: Sequence[Trial]) -> list[int]:
    return [cast(int, trial.facts["number"]) for trial in trials]


def _place(wave: int, index: int) -> int:
    """The order in which cohorts of a study start."""
    return (wave * 1_000_000 + index) * ROOM
