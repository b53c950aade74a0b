"""Runs cohorts on the cluster through Ray Tune, and passes their reports to a listener.

Tune schedules: resources, concurrency, autoscaling. Its own state is scratch; what counts is what `Listener` receives.
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
from sweeper.execution.tune_adapter import MEMORY, CohortSearcher, TuneCallback, cohort_trainable
from sweeper.packing.slots import Slots
from sweeper.plan.cohort_source import CohortSource
from sweeper.plan.cohorts import Cohort
from sweeper.storage.io.files import Files
from trainables.contract import HUNG, STOPPED, WHY, CheckpointError
from trainables.worker.ray_train import Judges, Place, run_cohort

STARTER_RESOURCES = {"memory": 1.0}
"""Ray resources of the function that starts a group of workers and waits for it; the workers take their own. One byte:
Tune rejects an empty resource request."""
COHORTS_A_TUNER = 1000
"""Cohorts after which a new Tuner takes over, because Tune remembers every cohort that it has run."""
NODE_LOST = "node has died"
"""Part of Ray's message about an actor that was lost with its machine."""


class Listener(Protocol):
    """Receives on the driver what happens to cohorts, which are named by their ids.

    An exception that a method raises ends the dispatch, which raises it again.
    """

    def started(self, cohort: str) -> None:
        """A worker has started the cohort."""

    def reported(self, cohort: str, message: Mapping[str, Any]) -> None:
        """The cohort has reported; see `trainables.worker.ray_train.run_cohort` for the keys of the message."""

    def advanced(self, cohort: str, heartbeat: Mapping[str, Any]) -> None:
        """The cohort is training: a `trainables.contract.Heartbeat` as a dict."""

    def interrupted(self, cohort: str, error: str) -> None:
        """The cohort's worker failed or was lost; the cohort is tried again."""

    def split(self, cohort: str, parts: Sequence[Cohort], error: str) -> None:
        """The cohort has failed as often as it may, or does not fit; its `parts` replace it."""

    def failed(self, cohort: str, error: str) -> None:
        """The cohort has failed as often as it may, and is given up."""


@dataclass(frozen=True)
class Limits:
    """Limits of a dispatch."""

    retries: int
    """How often in a row a cohort is tried again after an error without reaching a further epoch."""
    save_every: float
    """Seconds between a cohort's checkpoints."""
    patience: float
    """Seconds without a step after which a worker ends itself as hung."""


def dispatch(
    source: CohortSource,
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
    """Run all cohorts of a source until each has finished or failed for good.

    `checkpoint` maps the id of a cohort to the path of its checkpoint in `checkpoints`. `data` is the folder of the
    data sets, `scratch` a folder for Tune's files. All cohorts take as many workers as `slots` says. `judges` decide
    which members of a cohort are pruned. Raises KeyboardInterrupt when `stopping` was asked to stop, and any exception
    that `listener` raised.
    """
    run = uuid.uuid4().hex
    shared = None if slots.local or slots.workers == 1 else checkpoint(f"ray-{run}")
    place = Place(
        run=run,
        data=data,
        checkpoints=_Checkpoints(checkpoints),
        save_every=limits.save_every,
        resources=slots.resources,
        storage=checkpoints.uri_of(shared) if shared else scratch,
        judges=judges,
        patience=limits.patience,
    )
    attempts = RetryQueue(source, limits.retries)
    callback = TuneCallback(_Events(attempts, listener, partial(last_words, checkpoints, checkpoint, run)), stopping)
    slot_assigner, resources = SlotAssigner(attempts, slots), STARTER_RESOURCES if slots.workers > 1 else None
    trainable = cohort_trainable(partial(run_cohort, place=place))
    # Cohorts that are judged wait for each other, so no more of them are requested than run at once.
    at_once = slots.count if judges or slots.workers > 1 else None
    try:
        while not attempts.ended:
            searcher = CohortSearcher(attempts, checkpoint, slot_assigner, resources, COHORTS_A_TUNER)
            with patched_placement_groups():
                _tuner(trainable, searcher, callback, at_once, scratch).fit()
            shutil.rmtree(Path(scratch, "tune"), ignore_errors=True)
            stopping.check()
            if callback.error:
                raise callback.error
    finally:
        if shared:
            checkpoints.delete_folder(shared)


def _tuner(
    trainable: Any, searcher: CohortSearcher, callback: TuneCallback, at_once: int | None, scratch: str
) -> tune.Tuner:
    """Return a Tuner that runs up to `at_once` cohorts; None runs as many as there are resources for.

    It retries nothing itself: the searcher gives it failed cohorts again.
    """
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1,
            reuse_actors=True,
            max_concurrent_trials=at_once,
            trial_name_creator=lambda trial: trial.config["cohort"],
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            storage_path=scratch, name="tune", verbose=0, callbacks=[callback], stop=callback.stopper
        ),
    )


class _Events:
    """Passes Tune's events to the retry queue, and its decisions to the listener."""

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
        self.lost(cohort, "its training ended without a last report")  # ignored if there was a last report

    def lost(self, cohort: str, reason: str) -> None:
        if not self._attempts.runs(cohort):
            return
        reason = self._last_words(cohort) or reason
        decision = self._attempts.lost(cohort, cause(reason))
        if decision.kind == "again":
            self._listener.interrupted(cohort, reason)
        elif decision.kind == "smaller":
            self._listener.split(cohort, decision.parts, reason)
        else:
            self._listener.failed(cohort, reason)


def cause(reason: str) -> Cause:
    """Return the cause of a failure from its reason, one line."""
    if MEMORY in reason:
        return "memory"
    if reason.startswith(HUNG):
        return "hung"
    return "machine" if reason.startswith(STOPPED) or NODE_LOST in reason else "error"


def last_words(checkpoints: Files, checkpoint: Callable[[str], str], run: str, cohort: str) -> str | None:
    """Return the reason that a cohort's worker wrote before it ended itself, and delete it.

    None if there is no reason, the store fails, or the reason is by a worker of another `run`.
    """
    path = checkpoint(cohort) + WHY
    with contextlib.suppress(StoreError):
        if (words := checkpoints.read(path)) is not None:
            checkpoints.delete(path)
            writer, _, reason = words.decode(errors="replace").strip().partition(" ")
            return reason if writer == run else None
    return None


@dataclass(frozen=True)
class _Checkpoints:
    """The store's checkpoints, for a worker.

    A checkpoint that cannot be read counts as absent, and one that cannot be written is skipped, so neither costs a
    cohort its retries. If the store takes no files at all, the driver notices when it writes the next row.
    """

    files: Files

    def read(self, path: str) -> bytes | None:
        """Raises CheckpointError if the file cannot be read, after the retries of `files`."""
        try:
            return self.files.read(path)
        except StoreError as error:
            raise CheckpointError(str(error)) from error

    def write(self, path: str, data: bytes) -> None:
        with contextlib.suppress(StoreError):
            self.files.write(path, data)
