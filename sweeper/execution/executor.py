"""Cohorts -> reports over the cluster, through Ray Tune.

Tune schedules: resources, concurrency, nodes to come. Its own state is scratch; the truth is what `Listener` is told.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ray import tune

from sweeper.errors import StoreError
from sweeper.execution.placement_groups import patched_placement_groups
from sweeper.execution.retries import Cause, RetryQueue
from sweeper.execution.slot_assignment import SlotAssigner
from sweeper.execution.stop_signal import StopSignal
from sweeper.execution.tune_adapter import MEMORY, CohortSearcher, TuneCallback, of_cohort
from sweeper.packing.slots import Slots
from sweeper.plan.cohort_source import CohortSource
from sweeper.plan.cohorts import Cohort
from sweeper.storage.io.files import Files
from trainables.contract import HUNG, STOPPED, WHY, CheckpointError
from trainables.worker.ray_train import Judges, Place, run_cohort

WAITING = {"memory": 1.0}
"""What the function takes that starts a group of workers and awaits it: a byte, for Tune refuses nothing at all. The
workers take their own."""
COHORTS_A_TUNER = 1000
"""Tune remembers every cohort that it has run, so after so many a new one goes on."""
NODE_LOST = "node has died"
"""What Ray says of an actor that was lost with its machine."""


class Listener(Protocol):
    """Is told what happens, on the driver. An exception it raises ends the dispatch and comes out of it."""

    def started(self, cohort: str) -> None:
        """A worker has taken up the cohort."""

    def reported(self, cohort: str, message: Mapping[str, Any]) -> None:
        """A report: `report`, `device`, `host`, `pid`, `started`, and a `notice` where there is
        something to say (see `trainables.worker.ray_train`)."""

    def advanced(self, cohort: str, heartbeat: Mapping[str, Any]) -> None:
        """The cohort trains: a `trainables.contract.Heartbeat`, as a dict."""

    def interrupted(self, cohort: str, error: str) -> None:
        """The cohort's worker failed or was lost; it is tried again."""

    def split(self, cohort: str, parts: Sequence[Cohort], error: str) -> None:
        """The cohort has failed as often as it may, or does not fit; these parts of it take its place."""

    def failed(self, cohort: str, error: str) -> None:
        """The cohort has failed as often as it may."""


@dataclass(frozen=True)
class Limits:
    retries: int
    """How often a cohort is tried again after a failure or a lost worker, in a row without getting further."""
    save_every: float
    """Seconds between a cohort's checkpoints."""
    patience: float
    """Seconds without a step after which a cohort is given up."""


def dispatch(
    feed: CohortSource,
    *,
    data: str,
    checkpoints: Files,
    checkpoint: Callable[[str], str],
    slots: Slots,
    limits: Limits,
    scratch: str,
    stopping: StopSignal,
    listener: Listener,
    judges: Judges | None = None,
) -> None:
    """Run all cohorts of the feed; returns when each has finished or failed for good. KeyboardInterrupt when asked to
    stop.

    `checkpoint` says where in `checkpoints` a cohort of that id keeps its own. `slots` are of one cohort, whose trials
    each take as many workers as `slots` says. `judges` say which members of a cohort are pruned.
    """
    run = uuid.uuid4().hex
    shared = None if slots.here or slots.workers == 1 else checkpoint(f"ray-{run}")
    place = Place(
        run=run,
        data=data,
        checkpoints=_Checkpoints(checkpoints),
        save_every=limits.save_every,
        resources=slots.resources,
        storage=checkpoints.address(shared) if shared else scratch,
        judges=judges,
        patience=limits.patience,
    )
    attempts = RetryQueue(feed, limits.retries)
    watcher = TuneCallback(_Events(attempts, listener, partial(last_words, checkpoints, checkpoint, run)), stopping)
    seating, waiting = SlotAssigner(attempts, slots), WAITING if slots.workers > 1 else None
    trainable = of_cohort(partial(run_cohort, place=place))
    at_once = slots.count if judges or slots.workers > 1 else None  # who waits for a judge is met
    try:
        while not attempts.ended:
            feeding = CohortSearcher(attempts, checkpoint, seating, waiting, COHORTS_A_TUNER)
            with patched_placement_groups():
                _tuner(trainable, feeding, watcher, at_once, scratch).fit()
            shutil.rmtree(Path(scratch, "tune"), ignore_errors=True)
            stopping.check()
            if watcher.error:
                raise watcher.error
    finally:
        if shared:
            checkpoints.delete_folder(shared)


def _tuner(
    trainable: Any, feeding: CohortSearcher, watcher: TuneCallback, at_once: int | None, scratch: str
) -> tune.Tuner:
    """Without retries of its own: what failed is fed again. None at once is as many as find a place."""
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=feeding,
            num_samples=-1,
            reuse_actors=True,
            max_concurrent_trials=at_once,
            trial_name_creator=lambda trial: trial.config["cohort"],
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            storage_path=scratch, name="tune", verbose=0, callbacks=[watcher], stop=watcher.stopper
        ),
    )


class _Events:
    """Tune's events -> what becomes of cohorts -> the listener."""

    def __init__(self, attempts: RetryQueue, listener: Listener, last_words: Callable[[str], str | None]) -> None:
        self._attempts, self._listener, self._last_words = attempts, listener, last_words

    def started(self, cohort: str) -> None:
        self._listener.started(cohort)

    def reported(self, cohort: str, message: Mapping[str, Any]) -> None:
        self._listener.reported(cohort, message)
        self._attempts.reported(cohort, message["report"]["epoch"], message["report"]["done"])

    def advanced(self, cohort: str, heartbeat: Mapping[str, Any]) -> None:
        self._listener.advanced(cohort, heartbeat)

    def ended(self, cohort: str) -> None:
        self.lost(cohort, "its training ended without a last report")  # nothing where there was one

    def lost(self, cohort: str, reason: str) -> None:
        if not self._attempts.runs(cohort):
            return
        reason = self._last_words(cohort) or reason
        fate = self._attempts.lost(cohort, cause(reason))
        if fate.kind == "again":
            self._listener.interrupted(cohort, reason)
        elif fate.kind == "smaller":
            self._listener.split(cohort, fate.parts, reason)
        else:
            self._listener.failed(cohort, reason)


def cause(reason: str) -> Cause:
    """What a line says of a cohort that did not end."""
    if MEMORY in reason:
        return "memory"
    if reason.startswith(HUNG):
        return "hung"
    return "machine" if reason.startswith(STOPPED) or NODE_LOST in reason else "error"


def last_words(checkpoints: Files, checkpoint: Callable[[str], str], run: str, cohort: str) -> str | None:
    """Why the cohort's worker ended itself, once; what a worker of another run left is deleted."""
    path = checkpoint(cohort) + WHY
    with contextlib.suppress(StoreError):
        if (words := checkpoints.read(path)) is not None:
            checkpoints.delete(path)
            whose, _, why = words.decode(errors="replace").strip().partition(" ")
            return why if whose == run else None
    return None


@dataclass(frozen=True)
class _Checkpoints:
    """The store's checkpoints, for a worker.

    Neither reading nor writing one costs a cohort its retries. One that cannot be read counts as absent. One that the
    store does not take is gone without: whether the store takes anything at all shows on the driver, at the next row.
    """

    files: Files

    def read(self, path: str) -> bytes | None:
        """CheckpointError where it cannot be read, after the patience of `files`."""
        try:
            return self.files.read(path)
        except StoreError as error:
            raise CheckpointError(str(error)) from error

    def write(self, path: str, data: bytes) -> None:
        with contextlib.suppress(StoreError):
            self.files.write(path, data)
