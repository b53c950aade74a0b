"""The studies of a search, wave by wave: what is to be trained next, and what is told of what was trained."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from sweeper import cohorts
from sweeper.cohorts import Cohort, Cut, Group
from sweeper.course import Course, result
from sweeper.feed import Record
from sweeper.study import Study
from sweeper.trials import Trial

ROOM = 1 << 32
"""Of places from one cohort to the next: for its halves, their halves and so on."""


class Ladder(Protocol):
    """Is told of every cohort whose members are compared at rungs (`sweeper.referee`)."""

    def expect(self, study: str, place: int, cohort: str, numbers: Sequence[int]) -> None: ...
    def seed(self, study: str, place: int, numbers: Sequence[int], reached: Sequence[Mapping[int, float]]) -> None: ...
    def split(self, cohort: str, parts: Sequence[str], second: int, count: int) -> None: ...
    def started(self, cohort: str) -> None: ...
    def stopped(self, cohort: str) -> None: ...
    def reported(self, cohort: str, report: Mapping[str, Any]) -> None: ...
    def end(self, cohort: str) -> None: ...


@dataclass
class Waves:
    """A `feed.Feed` of the cohorts of all studies."""

    courses: Sequence[Course]
    shape: Callable[[Trial], Hashable]
    """Trials of equal shape may share a cohort."""
    stream: Callable[[Trial], Hashable]
    """Trials of equal streams read the same data."""
    population: Callable[[Study], Mapping[str, Any]]
    """What `options` says of the cohorts of a study."""
    cut: Callable[[Sequence[Group], bool], list[Cut]] | None = None
    """See `cutting.wave_cut`."""
    ladder: Ladder | None = None
    heard: Callable[[Course], None] | None = None
    """Is told of a study one of whose waves has been told."""
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    _ready: deque[Cohort] = field(default_factory=deque)
    _course: dict[str, Course] = field(default_factory=dict)
    _before: dict[str, Sequence[Cohort]] = field(default_factory=dict)
    _places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each cohort that is compared at rungs: its place, and the room behind it for its parts."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All that were asked so far, study by study."""
        return tuple(trial for course in self.courses for trial in course.trials)

    def begin(
        self,
        cut: Callable[[Sequence[Group], bool], list[Cut]],
        ladder: Ladder | None = None,
        heard: Callable[[Course], None] | None = None,
    ) -> None:
        """From now on cohorts are given."""
        self.cut, self.ladder, self.heard = cut, ladder, heard
        for course in self.courses:
            if self.heard:
                self.heard(course)
            for number, wave in enumerate(course.waves[:-1]):
                self._seed(course, number, 0, wave)
            if not course.ended:
                self._open(course)

    @property
    def ended(self) -> bool:
        return not self._ready and all(course.ended for course in self.courses)

    def next(self) -> Cohort | None:
        return self._ready.popleft() if self._ready else None

    def options(self, cohort: str) -> Mapping[str, Any]:
        study = self._course[cohort].study
        return {**self.population(study), "judged": study.search.pruner is not None}

    def before(self, cohort: str) -> Sequence[Cohort]:
        return self._before.get(cohort, ())

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        course = self._course[cohort.id]
        if course.study.search.population:  # whose members copy each other
            return ()
        parts = cohorts.halves(cohort)
        first, second = (part.id for part in parts)
        self.cohorts |= {part.id: part for part in parts}
        self._course |= dict.fromkeys((first, second), course)
        self._before |= dict.fromkeys((first, second), (cohort, *self.before(cohort.id)))
        if cohort.id in self._places:
            assert self.ladder is not None
            place, room = self._places[cohort.id]
            self._places |= {first: (place, room // 2), second: (place + room // 2, room // 2)}
            self.ladder.split(cohort.id, (first, second), place + room // 2, len(parts[0].trials))
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
        course = self._course[cohort]
        if self.ladder:
            self.ladder.end(cohort)
        if not course.told({str(row["trial_id"]): result(course.study, row, history) for row in rows}):
            return
        if self.heard:
            self.heard(course)
        if not course.ended:
            self._open(course)

    def _open(self, course: Course) -> None:
        """The cohorts of a course's last wave, largest first: cut from the whole of it, without the trials that have a
        result."""
        assert self.cut is not None
        number, wave = len(course.waves) - 1, course.waves[-1]
        groups = cohorts.group(wave, self.shape, self.stream)
        cuts = self.cut(groups, course.study.search.population is not None)
        whole = sorted(cohorts.cut(groups, cuts), key=lambda cohort: -len(cohort.trials))
        statuses = course.statuses
        for index, cohort in enumerate(whole):
            done = tuple(trial for trial in cohort.trials if trial.id in statuses)
            left = cohorts.remaining([cohort], statuses)
            if done:
                self._seed(course, number, 2 * index, done)
            for rest in left:
                self._give(course, _place(number, 2 * index + 1), rest)

    def _give(self, course: Course, place: int, cohort: Cohort) -> None:
        self.cohorts[cohort.id], self._course[cohort.id] = cohort, course
        if self.ladder and course.study.search.pruner:
            self._places[cohort.id] = place, ROOM
            self.ladder.expect(course.id, place, cohort.id, _numbers(cohort.trials))
        self._ready.append(cohort)

    def _seed(self, course: Course, wave: int, index: int, trials: Sequence[Trial]) -> None:
        if self.ladder and course.study.search.pruner:
            reached = [course.reached(trial) for trial in trials]
            self.ladder.seed(course.id, _place(wave, index), _numbers(trials), reached)


def _numbers(trials: Sequence[Trial]) -> list[int]:
    return [cast(int, trial.facts["number"]) for trial in trials]


def _place(wave: int, index: int) -> int:
    """The order in which cohorts of a study start."""
    return (wave * 1_000_000 + index) * ROOM
