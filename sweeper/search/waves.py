"""Cohorts of a search, wave by wave.

At a rung a cohort waits only for cohorts at lower positions, and a part of one for the other parts. The cohort `index`
of a wave has the position `(wave, index)`, in this run and in later ones, and so have its parts.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from sweeper.plan import cohorts
from sweeper.plan.cohorts import Cohort, Cut, Group, Trial
from sweeper.plan.sources import CohortSource, Record, RecordHalved
from sweeper.search import rungs as events
from sweeper.search.study_run import StudyRun, result

if TYPE_CHECKING:  # it imports torch
    from trainables.reports import Report
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
        tell_rungs: Callable[[events.RungEvent], None] = lambda event: None,
        wave_ended: Callable[[StudyRun], None] = lambda study_run: None,
        halved: Collection[str] = (),
        record_halved: RecordHalved = lambda cohort, parts: None,
    ) -> None:
        """Open the last wave of every study.

        Trials of equal `shape` may share a cohort; those of equal `stream` read the same data. The replicates of a
        proposal stay together, as one stream does. For `cut` see `WaveCutter.cut`. `tell_rungs` is called with the
        events of studies that prune. `wave_ended` is called with each study at first and after each of its waves.
        `halved` has the ids of the cohorts that were halved in earlier runs, and `record_halved` is called with
        every cohort that is halved now.
        """
        super().__init__(record_halved)
        self.study_runs = study_runs
        self._shape, self._stream, self._cut = shape, stream, cut
        self._tell_rungs, self._wave_ended, self._halved = tell_rungs, wave_ended, halved
        self._ready: deque[Cohort] = deque()
        self._study_run_of: dict[str, StudyRun] = {}
        self._in_turn: defaultdict[str, defaultdict[int, dict[int, float | None]]]
        self._in_turn = defaultdict(lambda: defaultdict(dict))
        """Cohort whose members are trained in turn -> epoch -> index of each member that has reported there -> value,
        since its process began."""
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
        self._tell(study_run, events.CohortSplit(cohort.id, {part.id: len(part.trials) for part in parts}))
        return parts

    def started(self, cohort: str) -> None:
        self._in_turn.pop(cohort, None)
        self._tell(self._study_run_of[cohort], events.CohortStarted(cohort))

    def stopped(self, cohort: str) -> None:
        self._tell(self._study_run_of[cohort], events.CohortStopped(cohort))

    def reported(self, cohort: str, message: CohortReport) -> None:
        study_run, epoch = self._study_run_of[cohort], message.report.epoch
        metric = study_run.study.search.objectives[0].name
        if message.report.records is not None:
            self._reported_in_turn(study_run, cohort, message.report, metric)
        elif not message.judged:  # else the judge has the values
            values = {
                index: member.metrics.get(metric)
                for index, member in enumerate(message.report.members)
                if member.status == "running" or (member.status, member.epochs_run) == ("pruned", epoch)
            }
            self._tell(study_run, events.CohortReported(cohort, epoch, values))

    def _reported_in_turn(self, study_run: StudyRun, cohort: str, report: Report, metric: str) -> None:
        """Tell of each epoch at which all members have reported that do not end before, as the judge was told that is
        not asked again where a process continues."""
        if not study_run.study.search.pruner:
            return
        of_epochs = self._in_turn[cohort]
        for index, epoch, metrics in report.new:
            of_epochs[epoch][index] = metrics.get(metric)
        ends = {index: each.epochs_run for index, each in enumerate(report.members) if each.status != "running"}
        diverged = {index for index, each in enumerate(report.members) if each.status == "diverged"}
        for epoch in sorted(of_epochs):
            if all(index in of_epochs[epoch] or ends.get(index, epoch) < epoch for index in range(len(report.members))):
                values = of_epochs.pop(epoch)
                left = {index: each for index, each in values.items() if index not in diverged or ends[index] > epoch}
                self._tell(study_run, events.CohortReported(cohort, epoch, left))

    def completed(self, cohort: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Record]) -> None:
        study_run = self._study_run_of[cohort]
        self._tell(study_run, events.CohortEnded(cohort))
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
        self._ancestors |= cohorts.lineage(whole_cohorts, self._halved)
        for index, cohort in enumerate(whole_cohorts):
            self._make_ready(study_run, (wave_number, index), cohort)

    def _make_ready(self, study_run: StudyRun, position: events.Position, whole: Cohort) -> None:
        """Announce a cohort, and make the trials of its parts that have no result ready."""
        statuses, trials = study_run.statuses, whole.trials
        reached = {index: study_run.reached(trial) for index, trial in enumerate(trials) if trial.id in statuses}
        self._tell(study_run, events.CohortAnnounced(study_run.id, position, whole.id, _numbers(trials), reached))
        parts = cohorts.halved([whole], self._halved)
        left = cohorts.remaining(parts, statuses)
        if left and len(parts) > 1:
            self._tell(study_run, events.CohortSplit(whole.id, {part.id: len(part.trials) for part in left}))
        self._whole |= {part.id: part for part in parts}
        self.cohorts |= {part.id: part for part in left}
        self._study_run_of |= dict.fromkeys((part.id for part in left), study_run)
        self._ready += left

    def _restore(self, study_run: StudyRun, position: events.Position, trials: Sequence[Trial]) -> None:
        values = [study_run.reached(trial) for trial in trials]
        self._tell(study_run, events.CohortRestored(study_run.id, position, _numbers(trials), values))

    def _tell(self, study_run: StudyRun, event: events.RungEvent) -> None:
        if study_run.study.search.pruner:
            self._tell_rungs(event)


def _numbers(trials: Sequence[Trial]) -> list[int]:
    return list(map(_number, trials))


def _number(trial: Trial) -> int:
    return cast(int, trial.facts["number"])
