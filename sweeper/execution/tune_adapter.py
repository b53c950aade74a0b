"""Ray Tune's side of a dispatch: it asks for the next cohort, and its events are passed on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ray import tune
from ray.tune.search import Searcher

from sweeper.execution.retries import Attempt, RetryQueue
from sweeper.execution.slot_assignment import SlotAssigner
from sweeper.execution.stop_signal import StopSignal
from sweeper.plan.cohorts import Cohort

MEMORY = "OutOfMemory"
"""What is in the name of every error of memory, Ray's own included."""


class Events(Protocol):
    """Is told what happens to a cohort. What it raises stops everything, as when asked to."""

    def started(self, cohort: str) -> None:
        """A worker has taken it up."""

    def reported(self, cohort: str, message: Mapping[str, Any]) -> None:
        """See `trainables.worker.ray_train`."""

    def advanced(self, cohort: str, heartbeat: Mapping[str, Any]) -> None:
        """A `trainables.contract.Heartbeat`, as a dict."""

    def ended(self, cohort: str) -> None:
        """Its worker is done with it."""

    def lost(self, cohort: str, reason: str) -> None:
        """Its worker has failed or was lost; why, in one line."""


class TuneCallback(tune.Callback):
    """Passes Tune's events on; keeps the first exception and then stops everything."""

    def __init__(self, events: Events | None = None, stopping: StopSignal | None = None) -> None:
        self.error: BaseException | None = None
        self.stopping = stopping or StopSignal()
        self.stopper = SweepStopper(self)
        self._events = events

    def __reduce__(self) -> tuple[type[TuneCallback], tuple[()]]:
        """Tune pickles its callbacks for a restore that we never ask for: what listens stays here."""
        return TuneCallback, ()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell("started", trial)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "report" in result:
            self._tell("reported", trial, result)
        elif "heartbeat" in result:
            self._tell("advanced", trial, result["heartbeat"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell("ended", trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell("lost", trial, _reason(trial))

    def _tell(self, event: str, trial: Any, *details: Any) -> None:
        if self.error is None:
            try:
                getattr(self._events, event)(trial.config["cohort"], *details)
            except Exception as error:
                self.error = error


class SweepStopper(tune.Stopper):
    """Ends everything where the watcher has an error, or somebody has asked."""

    def __init__(self, watcher: TuneCallback) -> None:
        self._watcher = watcher

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._watcher.error is not None or self._watcher.stopping.asked


class CohortSearcher(Searcher):
    """Tune asks it for the next cohort, up to `most`; what became of one the attempts hear from the events.

    A task travels as one string, the values that all its members share but once: Tune copies and logs what stands in a
    trial's configuration.
    """

    def __init__(
        self,
        attempts: RetryQueue | None = None,
        checkpoint: Callable[[str], str] = str,
        seating: SlotAssigner | None = None,
        resources: Mapping[str, float] | None = None,
        most: int | None = None,
    ) -> None:
        """`resources`: of every cohort, where they are not those of the share that it is given."""
        super().__init__()
        self._attempts, self._checkpoint, self._seating = attempts, checkpoint, seating
        self._resources, self._left = resources, most

    def __reduce__(self) -> tuple[type[CohortSearcher], tuple[()]]:
        """As `TuneCallback`'s."""
        return CohortSearcher, ()

    def suggest(self, trial_id: str) -> Any:
        assert self._seating is not None
        if self._left == 0:
            return Searcher.FINISHED
        seated = self._seating.next(trial_id)
        if seated is None:
            return Searcher.FINISHED if self._seating.ended else None
        if self._left is not None:
            self._left -= 1
        given, share = seated
        task = json.dumps(self._task(given) | {"memory": share.memory})
        return {"cohort": given.cohort.id, "resources": dict(self._resources or share.resources), "task": task}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        assert self._seating is not None
        self._seating.left(trial_id)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: the store is the truth."""

    def _task(self, given: Attempt) -> dict[str, Any]:
        assert self._attempts is not None
        task = self._members(given.cohort) | dict(self._attempts.options(given.cohort.id))
        return {**task, "before": [self._members(one) for one in given.before]} if given.before else task

    def _members(self, cohort: Cohort) -> dict[str, Any]:
        configs = [dict(trial.config) for trial in cohort.trials]
        shared = {key: value for key, value in configs[0].items() if all(one[key] == value for one in configs)}
        own = [{key: value for key, value in one.items() if key not in shared} for one in configs]
        return {"shared": shared, "own": own, "width": cohort.width, "checkpoint": self._checkpoint(cohort.id)}


def of_cohort(train: Callable[[str, Mapping[str, Any]], None]) -> Any:
    """A plain function, which is what Tune takes, with the resources that its configuration says."""

    def cohort(config: dict[str, Any]) -> None:
        train(config["cohort"], json.loads(config["task"]))

    return tune.with_resources(cohort, lambda config: tune.PlacementGroupFactory([config["resources"]]))


def _reason(trial: Any) -> str:
    """The last line of what went wrong last: the exception itself, or that the worker died.

    It is read from this machine's disk, because Tune has not brought it to its storage when it calls us.
    """
    try:
        lines = [line.strip() for line in Path(trial.error_file).read_text(errors="replace").splitlines()]
    except (OSError, TypeError):
        lines = []
    last = next((line for line in reversed(lines) if line), "nothing is known of why")
    memory = next((line for line in reversed(lines) if MEMORY in line), None)  # Ray says more below it
    return memory or (last.split(". ")[0] if last.startswith("The actor ") else last)
