"""Sweeps in this process without Ray: their cohorts train one after the other.

The plan, the retry queue, the tasks, the training, the rungs, the recorder and the store are real. Tune, its slots and
the actors are replaced.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sweeper import run
from sweeper.execution import executor, remote_profiler
from sweeper.execution.executor import Limits
from sweeper.execution.listener import CohortListener
from sweeper.execution.retries import RetryQueue
from sweeper.execution.stop_signal import StopSignal
from sweeper.execution.tune_adapter import TuneCallback
from sweeper.packing.cluster import Cluster
from sweeper.packing.device_kinds import DeviceKind
from sweeper.packing.slots import Slots
from sweeper.plan.cohort_source import CohortSource
from sweeper.plan.cohorts import Cohort
from sweeper.pruning import rung_client
from sweeper.storage.io.files import Files
from trainables.learners.data_parallel import SINGLE_PROCESS
from trainables.profiling.measurement import DeviceMemory, Measurement, Probe
from trainables.worker import ray_train, worker
from trainables.worker.messages import KEY, CohortTask, Comparison, Message
from trainables.worker.ray_train import JudgeFactory
from trainables.worker.worker import WorkerSettings

CORES = DeviceKind(False, "", (2,))
PROBE = Probe(DeviceMemory("cpu", 2**34, 2**20), [Measurement(width, 0.01, 2**20, 0) for width in (1, 2, 4, 8)])


@contextlib.contextmanager
def without_ray(scratch: Path, before_training: Callable[[CohortTask], None] = lambda task: None) -> Iterator[None]:
    """Context in which `run.main` trains in this process. `scratch` is an empty folder.

    `before_training` is called with the task of every attempt; an exception that it raises is the worker's.
    """

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
        comparison: Callable[[Cohort], Comparison],
        judge_factory: JudgeFactory | None,
    ) -> None:
        settings = WorkerSettings("run", data, executor._Checkpoints(checkpoints), limits.save_every)
        queue = RetryQueue(source, limits.retries)
        callback = TuneCallback(queue, listener, lambda cohort: None, stopping)
        while attempt := queue.next():
            task = executor._task(checkpoint_path, comparison, attempt, memory=None)
            trial: Any = SimpleNamespace(config={"cohort": task.cohort}, error_file=f"{scratch}/error.txt")

            def send(message: Message, trial: Any = trial) -> None:
                callback.on_trial_result(0, [], trial, {KEY: message})
                if callback.stopper.stop_all():
                    raise InterruptedError

            callback.on_trial_start(0, [], trial)
            try:
                before_training(task)
                judge = ray_train._judge(task, task.spec.configs(), judge_factory)
                worker.train_cohort(task, settings, judge, torch.device("cpu"), SINGLE_PROCESS, send)
            except Exception as error:
                if not callback.stopper.stop_all():
                    Path(trial.error_file).write_text(f"{type(error).__name__}: {error}")
                    callback.on_trial_error(0, [], trial)
            stopping.check()
            if callback.error:
                raise callback.error

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a worker with one core
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "connected", lambda address: contextlib.nullcontext(str(scratch)))
        patched.setattr(run, "NodeHealth", lambda: lambda: None)
        patched.setattr(executor, "dispatch", dispatch)
        patched.setattr(
            remote_profiler,
            "ray_cluster",
            lambda *_: Cluster(None, (CORES,), lambda requests: [PROBE] * len(requests)),
        )
        patched.setattr(worker, "on_sigterm", lambda callback: contextlib.nullcontext())
        patched.setattr(rung_client, "ray", LocalActors())
        patched.setattr(rung_client, "NodeAffinitySchedulingStrategy", lambda *_, **__: None)
        yield
    torch.set_num_threads(threads)


class LocalActors:
    """What `rung_client` needs of Ray: an actor whose calls run at once, in this process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "here")

    def remote(self, actor: Callable[..., Any]) -> Any:
        return SimpleNamespace(
            options=lambda **_: SimpleNamespace(remote=lambda *a, **b: _Handle(self, actor(*a, **b)))
        )

    def call(self, coroutine: Any) -> Any:
        """The result of a call. Raises TimeoutError if it waits for a cohort that does not train meanwhile."""
        return self._loop.run_until_complete(asyncio.wait_for(coroutine, 60))

    def get(self, result: Any) -> Any:
        return result


class _Handle:
    """The handle of an actor."""

    def __init__(self, actors: LocalActors, actor: Any) -> None:
        self._actors, self._actor = actors, actor

    def __getattr__(self, method: str) -> Any:
        def remote(*arguments: Any) -> Any:
            return self._actors.call(getattr(self._actor, method)(*arguments))

        return SimpleNamespace(remote=remote)
