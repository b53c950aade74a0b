"""Adapters to Ray Tune: the searcher that gives it cohorts, and the callback that passes its events on."""

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
"""Part of the name of every error about memory, Ray's own included."""


class Events(Protocol):
    """Receives what happens to cohorts, which are named by their ids. An exception of a method stops the sweep."""

    def started(self, cohort: str) -> None:
        """A worker has started the cohort."""

    def reported(self, cohort: str, message: Mapping[str, Any]) -> None:
        """The cohort has reported; see `trainables.worker.ray_train.run_cohort` for the keys of the message."""

    def advanced(self, cohort: str, heartbeat: Mapping[str, Any]) -> None:
        """The cohort is training: a `trainables.contract.Heartbeat` as a dict."""

    def ended(self, cohort: str) -> None:
        """The cohort's worker has returned."""

    def lost(self, cohort: str, reason: str) -> None:
        """The cohort's worker has failed or was lost; `reason` is one line."""


class TuneCallback(tune.Callback):
    """Passes Tune's events on. The first exception that they raise is kept, and stops the sweep."""

    def __init__(self, events: Events | None = None, stopping: StopSignal | None = None) -> None:
        self.error: BaseException | None = None
        """The first exception that `events` raised."""
        self.stopping = stopping or StopSignal()
        self.stopper = SweepStopper(self)
        self._events = events

    def __reduce__(self) -> tuple[type[TuneCallback], tuple[()]]:
        """Pickle without the listeners: Tune pickles its callbacks for a restore that never happens."""
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
    """Stops all cohorts after an exception in the callback, or when the process was asked to stop."""

    def __init__(self, callback: TuneCallback) -> None:
        self._callback = callback

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._callback.error is not None or self._callback.stopping.asked


class CohortSearcher(Searcher):
    """Gives Tune the next cohort with a slot, up to `most` cohorts.

    Results do not come back through the searcher, but through `TuneCallback`. A task is sent as one JSON string, in
    which values that all members share occur once, because Tune copies and logs a trial's configuration.
    """

    def __init__(
        self,
        attempts: RetryQueue | None = None,
        checkpoint: Callable[[str], str] = str,
        slot_assigner: SlotAssigner | None = None,
        resources: Mapping[str, float] | None = None,
        most: int | None = None,
    ) -> None:
        """`resources` are Ray resources of every cohort; None takes those of the cohort's slot."""
        super().__init__()
        self._attempts, self._checkpoint, self._slot_assigner = attempts, checkpoint, slot_assigner
        self._resources, self._left = resources, most

    def __reduce__(self) -> tuple[type[CohortSearcher], tuple[()]]:
        """Pickle without state; see `TuneCallback.__reduce__`."""
        return CohortSearcher, ()

    def suggest(self, trial_id: str) -> Any:
        assert self._slot_assigner is not None
        if self._left == 0:
            return Searcher.FINISHED
        assignment = self._slot_assigner.next(trial_id)
        if assignment is None:
            return Searcher.FINISHED if self._slot_assigner.ended else None
        if self._left is not None:
            self._left -= 1
        attempt, slot = assignment
        task = json.dumps(self._task(attempt) | {"memory": slot.memory})
        return {"cohort": attempt.cohort.id, "resources": dict(self._resources or slot.resources), "task": task}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        assert self._slot_assigner is not None
        self._slot_assigner.left(trial_id)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Save nothing: a sweep is continued from the store."""

    def _task(self, attempt: Attempt) -> dict[str, Any]:
        """Return the task of an attempt, as `trainables.worker.ray_train.run_cohort` takes it."""
        assert self._attempts is not None
        task = self._members(attempt.cohort) | dict(self._attempts.options(attempt.cohort.id))
        return {**task, "before": [self._members(cohort) for cohort in attempt.before]} if attempt.before else task

    def _members(self, cohort: Cohort) -> dict[str, Any]:
        """Return the configs of a cohort's members, split into shared and own values, its width and its checkpoint."""
        configs = [dict(trial.config) for trial in cohort.trials]
        shared = {key: value for key, value in configs[0].items() if all(config[key] == value for config in configs)}
        own = [{key: value for key, value in config.items() if key not in shared} for config in configs]
        return {"shared": shared, "own": own, "width": cohort.width, "checkpoint": self._checkpoint(cohort.id)}


def cohort_trainable(train: Callable[[str, Mapping[str, Any]], None]) -> Any:
    """Return a Tune trainable that calls `train(cohort, task)`, with the resources of the trial's configuration."""

    def cohort(config: dict[str, Any]) -> None:
        train(config["cohort"], json.loads(config["task"]))

    return tune.with_resources(cohort, lambda config: tune.PlacementGroupFactory([config["resources"]]))


def _reason(trial: Any) -> str:
    """Return the last line of a trial's error file: the exception, or that the worker died.

    The file is read from this machine's disk, because Tune calls this before it copies the file to its storage.
    """
    try:
        lines = [line.strip() for line in Path(trial.error_file).read_text(errors="replace").splitlines()]
    except (OSError, TypeError):
        lines = []
    last = next((line for line in reversed(lines) if line), "the reason is unknown")
    memory = next((line for line in reversed(lines) if MEMORY in line), None)  # Ray writes further lines below it
    return memory or (last.split(". ")[0] if last.startswith("The actor ") else last)
