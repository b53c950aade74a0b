"""Cohorts -> reports over the cluster, through Ray Tune.

Tune schedules: resources, retries, concurrency. Its own state is scratch; the truth is what `Listener` is told.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ray import tune
from ray.tune.search import Searcher

from sweeper.feed import Feed
from sweeper.files import Files, StoreError
from sweeper.places import Seating, Slots
from sweeper.stopping import Stopping
from trainables.ray_train import Judges, Place, run_cohort

WAITING = {"memory": 1.0}
"""What the function takes that starts a group of workers and awaits it: a byte, for Tune refuses nothing at all. The
workers take their own."""


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
    feed: Feed,
    *,
    data: str,
    checkpoints: Files,
    checkpoint: Callable[[str], str],
    slots: Slots,
    limits: Limits,
    scratch: str,
    stopping: Stopping,
    listener: Listener,
    judges: Judges | None = None,
) -> None:
    """Run all cohorts of the feed; returns when each has finished or failed for good. KeyboardInterrupt when asked to
    stop.

    `checkpoint` says where in `checkpoints` a cohort of that id keeps its own. `slots` are of one cohort, whose trials
    each take as many workers as `slots` says. `judges` say which members of a cohort are pruned.
    """
    shared = None if slots.here or slots.workers == 1 else checkpoint(f"ray-{uuid.uuid4().hex}")
    place = Place(
        data=data,
        checkpoints=_Checkpoints(checkpoints),
        save_every=limits.save_every,
        resources=slots.resources,
        storage=checkpoints.address(shared) if shared else scratch,
        judges=judges,
    )
    train = partial(run_cohort, place=place)
    waiting = WAITING if slots.workers > 1 else None
    watcher = _Watcher(listener, stopping)
    tuner = tune.Tuner(
        tune.with_resources(_of_cohort(train), _resources),
        tune_config=tune.TuneConfig(
            search_alg=_Feeding(feed, checkpoint, Seating(feed, slots), waiting),
            num_samples=-1,
            reuse_actors=True,
            max_concurrent_trials=slots.count if judges or slots.workers > 1 else None,  # who waits for a judge is met
            trial_name_creator=lambda trial: trial.config["cohort"],
            trial_dirname_creator=lambda trial: trial.config["cohort"],
        ),
        run_config=tune.RunConfig(
            storage_path=scratch,
            name="tune",
            verbose=0,
            callbacks=[watcher],
            stop=watcher.stopper,
            failure_config=tune.FailureConfig(max_failures=limits.retries),
        ),
    )
    try:
        tuner.fit()
    finally:
        if shared:
            checkpoints.delete_folder(shared)
    stopping.check()
    if watcher.error:
        raise watcher.error


@dataclass(frozen=True)
class _Checkpoints:
    """The store's checkpoints, for a worker.

    One that the store does not take is gone without: a full disk then costs no cohort its retries, and whether the
    store takes anything at all shows on the driver, at the next row.
    """

    files: Files

    def read(self, path: str) -> bytes | None:
        return self.files.read(path)

    def write(self, path: str, data: bytes) -> None:
        with contextlib.suppress(StoreError):
            self.files.write(path, data)


class _Watcher(tune.Callback):
    """Passes Tune's events on; keeps the listener's first exception and then stops everything, as when asked to."""

    def __init__(self, listener: Listener | None = None, stopping: Stopping | None = None) -> None:
        self.error: BaseException | None = None
        self.stopping = stopping or Stopping()
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
                getattr(self._listener, event)(trial.config["cohort"], *details)
            except Exception as error:
                self.error = error


class _Stopper(tune.Stopper):
    def __init__(self, watcher: _Watcher) -> None:
        self._watcher = watcher

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._watcher.error is not None or self._watcher.stopping.asked


class _Feeding(Searcher):
    """Tune asks it for the next cohort; what became of one the feed hears from the listener, after the rows.

    A task travels as one string, the values that all its members share but once: Tune copies and logs what stands in a
    trial's configuration.
    """

    def __init__(
        self,
        feed: Feed | None = None,
        checkpoint: Callable[[str], str] = str,
        seating: Seating | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        """`resources`: of every cohort, where they are not those of the share that it is given."""
        super().__init__()
        self._feed, self._checkpoint, self._seating, self._resources = feed, checkpoint, seating, resources

    def __reduce__(self) -> tuple[type[_Feeding], tuple[()]]:
        """As `_Watcher`'s."""
        return _Feeding, ()

    def suggest(self, trial_id: str) -> Any:
        assert self._feed is not None and self._seating is not None
        seated = self._seating.next(trial_id)
        if seated is None:
            return Searcher.FINISHED if self._seating.ended else None
        cohort, share = seated
        configs = [dict(trial.config) for trial in cohort.trials]
        shared = {key: value for key, value in configs[0].items() if all(one[key] == value for one in configs)}
        own = [{key: value for key, value in one.items() if key not in shared} for one in configs]
        task = {"shared": shared, "own": own, "width": cohort.width, "checkpoint": self._checkpoint(cohort.id)}
        task |= {"memory": share.memory} | dict(self._feed.options(cohort.id))
        resources = dict(self._resources or share.resources)
        return {"cohort": cohort.id, "resources": resources, "task": json.dumps(task)}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        assert self._seating is not None
        self._seating.left(trial_id)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: the store is the truth."""


def _resources(config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
    """Of the trial that has this configuration."""
    return tune.PlacementGroupFactory([config["resources"]])


def _of_cohort(train: Callable[[str, Mapping[str, Any]], None]) -> Any:
    """A plain function, which is what Tune takes."""

    def cohort(config: dict[str, Any]) -> None:
        train(config["cohort"], json.loads(config["task"]))

    return cohort


def _reason(trial: Any) -> str:
    """The last line of what went wrong last: the exception itself, or that the worker died.

    It is read from this machine's disk, because Tune has not brought it to its storage when it calls us.
    """
    try:
        lines = [line.strip() for line in Path(trial.error_file).read_text(errors="replace").splitlines()]
    except (OSError, TypeError):
        lines = []
    last = next((line for line in reversed(lines) if line), "nothing is known of why")
    return last.split(". ")[0] if last.startswith("The actor ") else last
