"""Cohorts of a search, wave by wave.

At a rung a cohort waits only for cohorts at lower positions, and a part of one for the other parts. The cohort `index`
of a wave has the position `(wave, index)`, in this run and in later ones, and so have its parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from sweeper.planning import cohorts
from sweeper.planning.cohorts import Cohort, Cut, Group, Trial
from sweeper.planning.sources import CohortSource, Record, RecordHalved
from sweeper.search.rungs import Place, Position, Rungs
from sweeper.search.study_run import StudyRun, result

if TYPE_CHECKING:  # it imports torch
    from trainables.worker.messages import CohortReport


class Waves(CohortSource):
    """The cohorts of all studies of a search."""

    def __init__(
        self,
        study_runs: Sequence[StudyRun],
        shape: Callable[[Trial], Hashable],
        stream: Callable[[Trial], Hashable],
        cut: Callable[[Sequence[Group], bool, int], list[Cut]],
        *,
        rungs: Mapping[str, Rungs] | None = None,
        wave_ended: Callable[[StudyRun], None] = lambda study_run: None,
        halved: Collection[str] = (),
        record_halved: RecordHalved = lambda cohort: None,
    ) -> None:
        """Open the last wave of every study.

        Trials of equal `shape` may share a cohort; those of equal `stream` read the same data. The replicates of a
        proposal stay together, as one stream does. For `cut` see `WaveCutter.cut`. `rungs` has those of each study
        that prunes, by its id. `wave_ended` is called with each study at first and after each of its waves. `halved`
        has the ids of the cohorts that were halved in earlier runs, and `record_halved` is called with every cohort
        that is halved now.
        """
        super().__init__(record_halved)
        self.study_runs = study_runs
        self._shape, self._stream, self._cut = shape, stream, cut
        self._rungs, self._wave_ended, self._halved = rungs or {}, wave_ended, halved
        self._ready: deque[Cohort] = deque()
        self._study_run_of: dict[str, StudyRun] = {}
        self._places: dict[str, Place] = {}
        """Id of each cohort of a study that prunes -> its place."""
        self._at_rung: dict[str, CohortReport] = {}
        """Id of each cohort that has ended at a rung -> its report there, the latest one."""
        for study_run in study_runs:
            self._wave_ended(study_run)
            for number, wave in enumerate(study_run.waves[:-1]):
                self._restore(study_run, (number,), wave)
            if not study_run.ended:
                self._open(study_run)

    @property
    def exhausted(self) -> bool:
        return not self._ready and all(study_run.ended for study_run in self.study_runs)

    def next(self) -> Cohort | None:
        return self._ready.popleft() if self._ready else None

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        """Replace a cohort by its halves; but a cohort of a population stays whole, as its members copy each other."""
        study_run = self._study_run_of[cohort.id]
        if study_run.study.search.population:
            return ()
        parts = self._replace_by_halves(cohort, study_run.statuses)
        self._study_run_of |= dict.fromkeys((part.id for part in parts), study_run)
        self._split(cohort.id, parts)
        return parts

    def reported(self, cohort: str, message: CohortReport) -> None:
        if (place := self._places.get(cohort)) is None:
            return
        report, metric = message.report, self._study_run_of[cohort].study.search.objectives[0].name
        if message.waits:
            self._at_rung[cohort] = message
        if message.waits or report.records is None:
            values = {
                index: member.metrics.get(metric)
                for index, member in enumerate(report.members)
                if member.status == "running" or (member.status, member.epochs_run) == ("pruned", report.epoch)
            }
            place.post(report.epoch, values)
            return
        for index, epoch, metrics in report.new:
            member = report.members[index]
            at_last = member.epochs_run == epoch  # where it was compared by the latest value of the metric
            value = (member.metrics if at_last else metrics).get(metric)
            place.post(epoch, {} if at_last and member.status == "diverged" else {index: value}, [index])
        for index, member in enumerate(report.members):
            for epoch in place.rungs.epochs if member.status != "running" else ():
                if epoch > member.epochs_run:
                    place.post(epoch, {}, [index])

    def place(self, cohort: str) -> Place | None:
        """Return the place of a cohort at the rungs of its study; None if that does not prune."""
        return self._places.get(cohort)

    def waits(self, cohort: str) -> bool:
        message = self._at_rung.get(cohort)
        return message is not None and self._places[cohort].waits(message.report.epoch)

    def last_report(self, cohort: str) -> CohortReport | None:
        message = None if self.waits(cohort) else self._at_rung.get(cohort)
        if message is None:
            return None
        report = message.report
        pruned = self._places[cohort].verdict(report.epoch)
        running = {index for index, member in enumerate(report.members) if member.status == "running"}
        if not running <= pruned.keys():
            return None
        members = tuple(
            replace(member, status="pruned", error=pruned[index]) if index in running else member
            for index, member in enumerate(report.members)
        )
        return replace(message, report=replace(report, members=members, done=True), waits=False)

    def completed(self, cohort: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Record]) -> None:
        study_run = self._study_run_of[cohort]
        self._at_rung.pop(cohort, None)
        if place := self._places.get(cohort):
            place.end()
        if study_run.add_results({str(row["trial_id"]): result(study_run.study, row, history) for row in rows}):
            self._wave_ended(study_run)
            if not study_run.ended:
                self._open(study_run)

    def _open(self, study_run: StudyRun) -> None:
        """Make the cohorts of the study's last wave ready, largest first.

        The whole wave is cut, and its cohorts are halved as in earlier runs. The trials that already have a result are
        then removed, so that a continued search has the same cohorts.
        """
        wave_number, wave = len(study_run.waves) - 1, study_run.waves[-1]
        search = study_run.study.search
        groups = cohorts.group(wave, self._shape, _number if search.replicates else self._stream)
        cuts = self._cut(groups, search.population is not None, search.repeats)
        whole_cohorts = sorted(cohorts.cut(groups, cuts), key=lambda cohort: -len(cohort.trials))
        for index, cohort in enumerate(whole_cohorts):
            self._make_ready(study_run, (wave_number, index), cohort)

    def _make_ready(self, study_run: StudyRun, position: Position, whole: Cohort) -> None:
        """Give a cohort its position, and make the trials of its parts that have no result ready."""
        statuses, trials = study_run.statuses, whole.trials
        ended = {index: study_run.reached(trial) for index, trial in enumerate(trials) if trial.id in statuses}
        if rungs := self._rungs.get(study_run.id):
            rungs.announce(position, rungs.brackets(_numbers(trials)), ended, _numbers(trials))
            left_over = tuple(index for index in range(len(trials)) if index not in ended)
            self._places[whole.id] = Place(rungs, position, left_over)
        parts = cohorts.halved([whole], self._halved)
        left = cohorts.remaining(parts, statuses)
        if left and len(parts) > 1:
            self._split(whole.id, left)
        self._whole |= {part.id: part for part in parts}
        self.cohorts |= {part.id: part for part in left}
        self._study_run_of |= dict.fromkeys((part.id for part in left), study_run)
        self._ready += left

    def _split(self, whole: str, parts: Sequence[Cohort]) -> None:
        """Give the members of a cohort to its parts, which keep its position."""
        self._at_rung.pop(whole, None)
        if place := self._places.get(whole):
            places = place.parts([len(part.trials) for part in parts])
            self._places |= dict(zip((part.id for part in parts), places, strict=True))

    def _restore(self, study_run: StudyRun, position: Position, trials: Sequence[Trial]) -> None:
        """Give trials that ended in an earlier run their position."""
        if rungs := self._rungs.get(study_run.id):
            values = dict(enumerate(study_run.reached(trial) for trial in trials))
            rungs.announce(position, rungs.brackets(_numbers(trials)), values, _numbers(trials))


def _numbers(trials: Sequence[Trial]) -> list[int]:
    return list(map(_number, trials))


def _number(trial: Trial) -> int:
    return cast(int, trial.facts["number"])
