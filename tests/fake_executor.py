"""Sweeps in this process without Ray: their cohorts train one after the other.

The plan, the dispatch with its retries and tasks, the training, the rungs, the recorder and the store are real. The
Tuner and the actors are replaced.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import sweeper.run as run
from sweeper.execution import executor, remote_profiler
from sweeper.execution.tune_adapter import CohortSearcher, TuneCallback
from sweeper.packing.profiling.cluster import Cluster
from sweeper.packing.profiling.device_kinds import DeviceKind
from sweeper.pruning import rung_client
from trainables.learners.data_parallel import SINGLE_PROCESS
from trainables.profiling.measurement import DeviceMemory, Measurement, Probe
from trainables.worker import ray_train, worker
from trainables.worker.messages import KEY, CohortTask, Message
from trainables.worker.ray_train import Dispatch

CORES = DeviceKind(False, "", (2,))
PROBE = Probe(DeviceMemory("cpu", 2**34, 2**20), [Measurement(width, 0.01, 2**20, 0) for width in (1, 2, 4, 8)])


@contextlib.contextmanager
def without_ray(scratch: Path, before_training: Callable[[CohortTask], None] = lambda task: None) -> Iterator[None]:
    """Context in which `run.main` trains in this process. `scratch` is an empty folder.

    `before_training` is called with the task of every attempt; an exception that it raises is the worker's.
    """

    tuners: list[LocalTuner] = []

    def start(*arguments: Any) -> LocalTuner:
        tuners.append(LocalTuner(*arguments))
        return tuners[-1]

    def run_cohort(task: CohortTask, *, dispatch: Dispatch) -> None:
        before_training(task)
        judge = ray_train._judge(task, dispatch.judge_factory)
        worker.train_cohort(task, dispatch.settings, judge, torch.device("cpu"), SINGLE_PROCESS, tuners[-1].report)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a worker with one core
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "connected", lambda *_, **__: contextlib.nullcontext(str(scratch)))
        patched.setattr(run, "NodeHealth", lambda: lambda: None)
        patched.setattr(executor, "_tuner", start)
        patched.setattr(executor, "run_cohort", run_cohort)
        patched.setattr(
            remote_profiler,
            "ray_cluster",
            lambda *_: Cluster(None, (CORES,), lambda requests: [PROBE] * len(requests)),
        )
        patched.setattr(worker, "on_sigterm", lambda callback: contextlib.nullcontext())
        patched.setattr(rung_client, "ray", LocalActors())
        patched.setattr(rung_client, "NodeAffinitySchedulingStrategy", lambda *_, **__: None)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


class LocalTuner:
    """Takes the place of the Tuner of `executor.dispatch`: one cohort after the other, in this process."""

    def __init__(
        self,
        trainable: Callable[[dict[str, Any]], None],
        searcher: CohortSearcher,
        callback: TuneCallback,
        at_once: int | None,
        scratch: str,
    ) -> None:
        self._trainable, self._searcher, self._callback = trainable, searcher, callback
        self._error_file = f"{scratch}/error.txt"
        self._trial: Any = None

    def fit(self) -> None:
        for number in itertools.count():
            config = self._searcher.suggest(str(number))
            assert config is not None, "a cohort waits for one that does not train"
            if config == CohortSearcher.FINISHED or self._callback.stopper.stop_all():
                return
            self._trial = SimpleNamespace(config=config, error_file=self._error_file)
            self._callback.on_trial_start(0, [], self._trial)
            try:
                self._trainable(config)
            except InterruptedError:
                return
            except Exception as error:
                Path(self._error_file).write_text(f"{type(error).__name__}: {error}")
                self._callback.on_trial_error(0, [], self._trial)
            else:
                self._callback.on_trial_complete(0, [], self._trial)
            self._searcher.on_trial_complete(str(number))

    def report(self, message: Message) -> None:
        """Take a message of the cohort that trains. Raises InterruptedError if the sweep must stop."""
        self._callback.on_trial_result(0, [], self._trial, {KEY: message})
        if self._callback.stopper.stop_all():
            raise InterruptedError


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
