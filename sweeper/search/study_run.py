"""One study of a search in progress: its trials so far, wave by wave, and their results."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeper.plan.cohort_source import Record
from sweeper.plan.trials import Trial, content_hash
from sweeper.search.ask_tell import AskTellStudy, TrialResult
from sweeper.search.warm_start import WarmStart, definition_path, read_warm_start
from sweeper.spec.grid import Value
from sweeper.spec.search import Study
from sweeper.storage.files import Files


@dataclass(frozen=True)
class RecordedTrial:
    """One trial of a study as the store has it."""

    params: Mapping[str, Value]
    """Value of every searched key."""
    result: TrialResult


class StudyRun:
    """One study in progress. Its last wave is open until each of its trials has a result; then the next is asked."""

    def __init__(
        self,
        study: Study,
        identity: str,
        warm: WarmStart,
        recorded: Mapping[int, RecordedTrial],
        complete: Callable[[Mapping[str, Value]], Mapping[str, Value]],
        facts: Mapping[str, Value] | None = None,
    ) -> None:
        """Ask and tell as many waves as the recorded results complete.

        `recorded` maps trial numbers to what the store has. `complete` adds the defaults to a trial's values. `facts`
        are further columns for the row of every trial, besides its study, number and wave.
        """
        self.study, self.id, self.warm, self.engine = study, identity, warm, AskTellStudy(study, warm.results)
        self.waves: list[tuple[Trial, ...]] = []
        self._recorded, self._complete, self._facts = recorded, complete, facts or {}
        self._results: dict[str, TrialResult] = {}
        self._advance()

    @property
    def trials(self) -> tuple[Trial, ...]:
        return tuple(trial for wave in self.waves for trial in wave)

    @property
    def ended(self) -> bool:
        return len(self.trials) == self.study.search.trials and not self._open

    @property
    def statuses(self) -> dict[str, str]:
        """trial_id -> status, for the trials that have a result."""
        return {trial_id: result.status for trial_id, result in self._results.items()}

    @property
    def ahead(self) -> list[str]:
        """Statuses of the recorded trials not yet asked again: an earlier wave is open, as one of its trials failed."""
        return [trial.result.status for number, trial in self._recorded.items() if number >= len(self.trials)]

    def write_definition(self, files: Files, sweep: str) -> None:
        """Write the definition and the warm start of the study to the store, unless they are already there."""
        path = definition_path(sweep, self.id)
        if read_warm_start(files, path, self.study) is None:
            self.warm.write(files, path, self.study)

    def reached(self, trial: Trial) -> Mapping[int, float]:
        """Epoch -> objective, for a trial that has a result."""
        return self._results[trial.id].reached

    def add_results(self, results: Mapping[str, TrialResult]) -> bool:
        """Add results, keyed by trial_id. Returns whether they complete the open wave."""
        self._results |= results
        complete = not self._open
        self._advance()
        return complete

    @property
    def _open(self) -> bool:
        """Whether the last wave has a trial without a result."""
        return bool(self.waves) and any(trial.id not in self._results for trial in self.waves[-1])

    def _advance(self) -> None:
        """Tell complete waves and ask for the next, until a wave is open or the study has all its trials."""
        while not self._open:
            if self.waves:
                self.engine.tell([self._results[trial.id] for trial in self.waves[-1]])
            if len(self.trials) == self.study.search.trials:
                break
            self.waves.append(self._ask())

    def _ask(self) -> tuple[Trial, ...]:
        """Ask for the next wave. Takes over the recorded results of its trials, except failures."""
        asked_before, search = len(self.trials), self.study.search
        known = {number: recorded.params for number, recorded in self._recorded.items()}
        asked = self.engine.ask(min(search.wave, search.trials - asked_before), known)
        trials = []
        for number, params in asked:
            config = dict(self._complete({**self.study.fixed, **params}))
            facts: dict[str, Value] = {"study": self.study.name, "study_id": self.id, "number": number}
            facts = {**self._facts, **facts, "wave": len(self.waves)}
            trials.append(Trial(content_hash([self.id, number, config]), config, facts))
            recorded = self._recorded.get(number)
            if recorded and recorded.result.status != "failed":  # failed trials are tried again
                self._results[trials[-1].id] = recorded.result
        return tuple(trials)


def result(study: Study, row: Mapping[str, Any], history: Sequence[Record]) -> TrialResult:
    """Result of the trial of `row`; its reports are taken from `history`, which may hold other trials, too."""
    objectives = study.search.objectives
    values = tuple(_number(row.get(metric.name)) for metric in objectives)
    end = row["epochs_run"] if row["status"] == "diverged" else math.inf  # no rung compares a diverged member
    reached = {
        epoch: value
        for trial_id, epoch, metric, value in history
        if len(objectives) == 1 and trial_id == row["trial_id"] and metric == objectives[0].name and epoch < end
    }
    attributes = {"trial_id": str(row["trial_id"]), "status": str(row["status"])}
    return TrialResult(int(row["number"]), row["status"], values, reached, attributes)


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
