"""Cohorts -> reports over the cluster, through Ray Tune.

Tune schedules: resources, retries, concurrency. Its own state is scratch; the truth is what `Listener` is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import ray
from ray import tune

from sweeper.cluster import Slots
from sweeper.cohorts import Cohort
from sweeper.files import Files
from trainables.measure import Measurement
from trainables.ray_train import measure_configs, run_cohort


class Listener(Protocol):
    """Is told what happens, on the driver. An exception it raises ends the dispatch and comes out of it."""

    def started(self, cohort: str) -> None:
        """A worker has taken up the cohort."""

    def reported(self, cohort: str, message: Mapping[str, Any]) -> None:
        """A report: `report`, `device`, `host`, `pid`, `started` (see `trainables.ray_train`)."""

    def interrupted(self, cohort: str, error: str) -> None:
        """The cohort's worker failed or was lost; it is tried again."""

    def failed(self, cohort: str, error: str) -> None:
        """The cohort has failed as often as it may."""


@dataclass(frozen=True)
class Limits:
    retries: int
    """How often a cohort is tried again after a failure or a lost worker."""
    save_every: float
    """Seconds between a cohort's checkpoints."""


def dispatch(
    cohorts: Sequence[Cohort],
    *,
    data: str,
    checkpoints: Files,
    checkpoint: Callable[[str], str],
    slots: Slots,
    limits: Limits,
    scratch: str,
    listener: Listener,
) -> None:
    """Run all cohorts; returns when each has finished or failed for good.

    `checkpoint` says where in `checkpoints` a cohort of that id keeps its own.
    """
    tasks = [
        {
            "cohort": cohort.id,
            "configs": [dict(trial.config) for trial in cohort.trials],
            "width": cohort.width,
            "checkpoint": checkpoint(cohort.id),
        }
        for cohort in cohorts
    ]
    trainable = partial(run_cohort, data=data, checkpoints=checkpoints, save_every=limits.save_every)
    watcher = _Watcher(listener)
    tune.Tuner(
        tune.with_resources(_named(trainable), slots.resources),
        param_space={"task": tune.grid_search(tasks)},
        tune_config=tune.TuneConfig(
            reuse_actors=True,
            trial_name_creator=lambda trial: trial.config["task"]["cohort"],
            trial_dirname_creator=lambda trial: trial.config["task"]["cohort"],
        ),
        run_config=tune.RunConfig(
            storage_path=scratch,
            name="tune",
            verbose=0,
            callbacks=[watcher],
            stop=watcher.stopper,
            failure_config=tune.FailureConfig(max_failures=limits.retries),
        ),
    ).fit()
    if watcher.error:
        raise watcher.error


def measure(
    groups: Sequence[Sequence[Mapping[str, Any]]], data: str, slots: Slots
) -> list[tuple[list[Measurement], int]]:
    """For each group of configs its speed and memory at several stack widths, and the bytes that a cohort may use.

    Measured on a worker like those that will train.
    """
    resources = slots.resources
    remote = ray.remote(num_cpus=resources.get("CPU", 0), num_gpus=resources.get("GPU", 0))(measure_configs)
    return ray.get([remote.remote([dict(config) for config in configs], data) for configs in groups])


class _Watcher(tune.Callback):
    """Passes Tune's events on; keeps the first exception of the listener and then stops everything."""

    def __init__(self, listener: Listener | None = None) -> None:
        self.error: BaseException | None = None
        self.stopper = _Stopper(self)
        self._listener = listener

    def __reduce__(self) -> tuple[type[_Watcher], tuple[()]]:
        """Tune pickles its callbacks for a restore that we never ask for: what listens stays here."""
        return _Watcher, ()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell("started", trial)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "report" in result:
            self._tell("reported", trial, result)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell("interrupted", trial, _reason(trial))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell("failed", trial, _reason(trial))

    def _tell(self, event: str, trial: Any, *details: Any) -> None:
        if self.error is None:
            try:
                getattr(self._listener, event)(trial.config["task"]["cohort"], *details)
            except Exception as error:
                self.error = error


class _Stopper(tune.Stopper):
    def __init__(self, watcher: _Watcher) -> None:
        self._watcher = watcher

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._watcher.error is not None


def _named(trainable: partial[None]) -> Any:
    """A plain function of the task, which is what Tune takes."""

    def cohort(config: dict[str, Any]) -> None:
        trainable(config["task"])

    return cohort


def _reason(trial: Any) -> str:
    """The last line of what went wrong: the exception itself."""
    error = trial.get_pickled_error() or trial.get_error()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
