"""A tracker of experiments that lives on when drivers die, and that refuses calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from sweeper.record.tracker import Reports, TrackedTrial, Tracker, end_of
from tests.simulation.files import Client
from tests.simulation.processes import Killed, Time

SAID = re.compile(r"^((?:\d+ \w+(?:, )?)+) of (\d+) trials$", re.MULTILINE)
"""What the end of a driver says of its trials."""
FIRST = 12
"""Calls of a driver of which some fail."""
Result = TypeVar("Result")


@dataclass
class Run:
    """A trial in the tracker."""

    reports: dict[int, Mapping[str, float]] = field(default_factory=dict)
    ended: str | None = None
    """When the training ended whose row it has."""


@dataclass
class SimulatedTracker(Tracker):
    """The tracker as one driver calls it."""

    time: Time
    random: Random
    runs: dict[str, Run]
    """Trial -> its run, of all drivers."""
    client: Client
    refuses: float
    """Probability that one of the first calls fails. It may have its effect."""
    calls: int = 0

    def _do(self, effect: Callable[[], Result]) -> Result:
        self.time.current.sleep(self.random.expovariate(10.0))
        if self.client.dead:
            raise Killed
        self.calls += 1
        fails = self.client.faulty and self.calls <= FIRST and self.random.random() < self.refuses
        if fails:
            self.client.refused = bool(SAID.search(self.client.output.getvalue()))
        if fails and self.random.random() < 0.5:
            raise ConnectionError("simulated")
        result = effect()
        if fails:
            raise ConnectionError("simulated, and done")
        return result

    def ended(self) -> Mapping[str, str]:
        return self._do(lambda: {trial: run.ended for trial, run in self.runs.items() if run.ended})

    def start(self, trial: TrackedTrial, anew: bool) -> int:
        def begin() -> int:
            if anew:
                self.runs.pop(trial.id, None)
            run = self.runs.setdefault(trial.id, Run())
            run.ended = None
            return max(run.reports, default=-1)

        return self._do(begin)

    def report(self, trial: TrackedTrial, reports: Reports) -> None:
        self._do(lambda: self.runs[trial.id].reports.update(reports))

    def end(self, trial: TrackedTrial, row: Mapping[str, Any]) -> None:
        self._do(lambda: setattr(self.runs[trial.id], "ended", end_of(row)))

    def close(self) -> None:
        self._do(lambda: None)
