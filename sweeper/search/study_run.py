"""One study of a search: its trials so far, wave by wave, and what is told of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeper.plan.cohort_source import Record
from sweeper.plan.trials import Trial, content_hash
from sweeper.search.ask_tell import AskTellStudy, TrialResult
from sweeper.search.warm_start import WarmStart
from sweeper.spec.grid import Value
from sweeper.spec.search import Study

FAILED = "failed"


@dataclass(frozen=True)
class RecordedTrial:
    """What the store has of one trial of a study."""

    params: Mapping[str, Value]
    told: TrialResult


class StudyRun:
    """One study: its trials so far, a wave of which is open until each has a result."""

    def __init__(
        self,
        study: Study,
        identity: str,
        warm: WarmStart,
        recorded: Mapping[int, RecordedTrial],
        complete: Callable[[Mapping[str, Value]], Mapping[str, Value]],
        facts: Mapping[str, Value] | None = None,
    ) -> None:
        """`recorded`: by number, what the store has; `complete` adds the defaults to a trial's values; `facts`: what
        the row of each trial says beside its study, number and wave."""
        self.study, self.id, self.warm, self.engine = study, identity, warm, AskTellStudy(study, warm.results)
        self.waves: list[tuple[Trial, ...]] = []
        self._recorded, self._complete, self._facts = recorded, complete, facts or {}
        self._told: dict[str, TrialResult] = {}
        self._advance()

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All that were asked so far."""
        return tuple(trial for wave in self.waves for trial in wave)

    @property
    def ended(self) -> bool:
        """Every trial has a result."""
        return len(self.trials) == self.study.search.trials and not self._open

    @property
    def statuses(self) -> dict[str, str]:
        """trial_id -> status of those that have a result."""
        return {trial: told.status for trial, told in self._told.items()}

    @property
    def ahead(self) -> list[str]:
        """Statuses of the recorded trials that have not been asked again yet: an earlier wave waits for a trial that
        failed."""
        return [one.told.status for number, one in self._recorded.items() if number >= len(self.trials)]

    def reached(self, trial: Trial) -> Mapping[int, float]:
        """Epoch -> objective of a trial that has a result."""
        return self._told[trial.id].reached

    def told(self, results: Mapping[str, TrialResult]) -> bool:
        """Take up results by trial_id; True where a wave is complete by them."""
        self._told |= results
        complete = not self._open
        self._advance()
        return complete

    @property
    def _open(self) -> bool:
        return bool(self.waves) and any(trial.id not in self._told for trial in self.waves[-1])

    def _advance(self) -> None:
        """Tell whole waves and ask for the next, as far as results are there."""
        while not self._open:
            if self.waves:
                self.engine.tell([self._told[trial.id] for trial in self.waves[-1]])
            if len(self.trials) == self.study.search.trials:
                break
            self.waves.append(self._ask())

    def _ask(self) -> tuple[Trial, ...]:
        begun, search = len(self.trials), self.study.search
        known = {number: one.params for number, one in self._recorded.items()}
        asked = self.engine.ask(min(search.wave, search.trials - begun), known)
        trials = []
        for number, params in asked:
            config = dict(self._complete({**self.study.fixed, **params}))
            facts: dict[str, Value] = {
                **self._facts,
                "study": self.study.name,
                "study_id": self.id,
                "number": number,
                "wave": len(self.waves),
            }
            trials.append(Trial(content_hash([self.id, number, config]), config, facts))
            recorded = self._recorded.get(number)
            if recorded and recorded.told.status != FAILED:  # what failed is tried again
                self._told[trials[-1].id] = recorded.told
        return tuple(trials)


def result(study: Study, row: Mapping[str, Any], history: Sequence[Record]) -> TrialResult:
    """What a row, and the history of its trial, say to the study."""
    objectives = study.search.objectives
    values = tuple(_number(row.get(metric.name)) for metric in objectives)
    reached: dict[int, float] = {}
    if len(objectives) == 1:
        trial, name = str(row["trial_id"]), objectives[0].name
        before = row["epochs_run"] if row["status"] == "diverged" else math.inf  # where it was compared no more
        reached = {
            epoch: value for one, epoch, metric, value in history if one == trial and metric == name and epoch < before
        }
    attributes = {"trial_id": str(row["trial_id"]), "status": str(row["status"])}
    return TrialResult(int(row["number"]), row["status"], values, reached, attributes)


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
