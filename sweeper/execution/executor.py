"""Runs cohorts on the cluster through Ray Tune, and passes their reports to a listener.

Tune schedules: resources, concurrency, autoscaling. Its own state is scratch; what counts is what the listener gets.
"""

import contextlib
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune

from sweeper.errors import StoreError
from sweeper.execution.failures import read_exit_file
from sweeper.execution.lean_tune import lean_tune
from sweeper.execution.listener import CohortListener
from sweeper.execution.placement_groups import patched_placement_groups
from sweeper.execution.process.stop_signal import StopSignal
from sweeper.execution.retries import Attempt, RetryQueue
from sweeper.execution.slot_assignment import SlotAssigner
from sweeper.execution.tune_adapter import CohortSearcher, TuneCallback, cohort_trainable
from sweeper.packing.slots import Slots
from sweeper.plan.cohort_source import CohortSource
from sweeper.plan.cohorts import Cohort
from sweeper.spec import user_code
from sweeper.storage.io.files import Files
from sweeper.storage.layout import model_path
from trainables.reports import CheckpointError, ModelError
from trainables.worker.messages import CohortSpec, CohortTask, Comparison, Kept, ModelPaths
from trainables.worker.ray_train import Dispatch, JudgeFactory, run_cohort
from trainables.worker.worker import WorkerSettings

STARTER_RESOURCES = {"memory": 1.0}
"""Ray resources of the function that starts a group of workers and waits for it; the workers take their own. One byte:
Tune rejects an empty resource request."""
COHORTS_A_TUNER = 1000
"""Cohorts after which a new Tuner takes over, because Tune remembers every cohort that it has run."""


@dataclass(frozen=True)
class Limits:
    """Limits of a dispatch."""

    retries: int
    """How often in a row a cohort is tried again after an error without reaching a further epoch."""
    save_every: float
    """Seconds between a cohort's checkpoints."""
    step_timeout: float
    """Seconds without a step after which a worker ends itself as hung."""


@dataclass(frozen=True)
class ModelStorage:
    """Where workers write the models of trials that have finished."""

    files: Files
    sweep: str
    kept: Kept
    """Which of them will stay."""

    def write(self, path: str, data: bytes) -> None:
        """Write the file at `path`. Raises ModelError if it cannot be written, after the retries of `files`."""
        try:
            self.files.write(path, data)
        except StoreError as error:
            raise ModelError(str(error)) from error

    def paths(self, cohort: Cohort) -> ModelPaths:
        """Where the models of the cohort's members belong."""
        trials = tuple(trial.id for trial in cohort.trials)
        return ModelPaths(trials, tuple(model_path(self.sweep, trial) for trial in trials), self.kept)


def dispatch(
    source: CohortSource,
    *,
    data: str,
    checkpoints: Files,
    checkpoint_path: Callable[[str], str],
    slots: Slots,
    limits: Limits,
    scratch: str,
    stopping: StopSignal,
    listener: CohortListener,
    comparison: Callable[[Cohort], Comparison] = lambda cohort: Comparison(),
    judge_factory: JudgeFactory | None = None,
    models: ModelStorage | None = None,
    cluster_ends: bool = False,
) -> None:
    """Run all cohorts of a source until each has finished or failed for good.

    `checkpoint_path` maps the id of a cohort to the path of its checkpoint in `checkpoints`. `data` is the folder of
    the data sets, `scratch` a folder for Tune's files. All cohorts take as many workers as `slots` says. `comparison`
    says how the members of a cohort are compared, and `judge_factory` makes the judges of those that are compared at
    rungs. `models` takes the trained models; None keeps none. `cluster_ends` says that Ray is shut down next. Raises
    KeyboardInterrupt when `stopping` was asked to stop, and any exception that `listener` raised.
    """
    run = uuid.uuid4().hex
    shared = None if slots.local or slots.workers == 1 else checkpoint_path(f"ray-{run}")
    settings = WorkerSettings(run, data, _Checkpoints(checkpoints), limits.save_every, limits.step_timeout, models)
    storage = checkpoints.uri_of(shared) if shared else scratch
    shipped = Dispatch(settings, slots.resources, storage, judge_factory, user_code.folders())
    trainable = cohort_trainable(partial(run_cohort, dispatch=shipped))
    queue = RetryQueue(source, limits.retries)
    callback = TuneCallback(
        queue, listener, lambda cohort: read_exit_file(checkpoints, checkpoint_path(cohort), run), stopping
    )
    slot_assigner, resources = SlotAssigner(queue, slots), STARTER_RESOURCES if slots.workers > 1 else None
    make_task = partial(_task, checkpoint_path, comparison, models)
    # Cohorts that are judged wait for each other, so no more of them are requested than run at once.
    at_once = slots.count if judge_factory or slots.workers > 1 else None
    try:
        while not queue.ended:
            searcher = CohortSearcher(slot_assigner, make_task, resources, COHORTS_A_TUNER)
            with patched_placement_groups(lambda: cluster_ends and queue.ended), lean_tune(slots.local):
                _tuner(trainable, searcher, callback, at_once, scratch).fit()
            shutil.rmtree(Path(scratch, "tune"), ignore_errors=True)
            stopping.check()
            if callback.error:
                raise callback.error
    finally:
        if shared:
            checkpoints.delete_folder(shared)


def _task(
    checkpoint_path: Callable[[str], str],
    comparison: Callable[[Cohort], Comparison],
    models: ModelStorage | None,
    attempt: Attempt,
    memory: int | None,
) -> CohortTask:
    """Return the task of an attempt, with a memory limit in bytes for each of its processes."""

    def spec(cohort: Cohort) -> CohortSpec:
        configs = [trial.config for trial in cohort.trials]
        return CohortSpec.of(configs, cohort.width, checkpoint_path(cohort.id), cohort.compiled)

    cohort = attempt.cohort
    paths = models.paths(cohort) if models else None
    return CohortTask(cohort.id, spec(cohort), tuple(map(spec, attempt.earlier)), comparison(cohort), memory, paths)


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
