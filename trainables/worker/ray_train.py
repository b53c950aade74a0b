"""Run the training loop in a Ray Train TorchTrainer, itself inside a Ray Tune function.

A cohort on one device, or a fraction of one, runs in TorchTrainer's in-process mode (`num_workers=0`), which starts in
tenths of a second where a worker group needs tens of seconds; there the loop reports through Tune. A cohort with
`workers` above 1 gets a worker group with a device for each worker; the first worker's reports are passed on to Tune.
"""

import contextlib
import functools
import os
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import ray
import ray.train
import torch
from ray import tune
from ray.train import RunConfig, ScalingConfig, TrainingFailedError
from ray.train.torch import TorchConfig, TorchTrainer, get_device
from ray.tune.integration.ray_train import TuneReportCallback
from threadpoolctl import threadpool_limits

from trainables.config.trial import resolve_sent
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.profiling.contention import measure_slowdowns
from trainables.profiling.measurement import CompiledProbe, Measurement, Probe
from trainables.profiling.throughput import device_memory, measure, measure_compiled
from trainables.reports import Judge, OutOfMemory
from trainables.worker.messages import KEY, CohortTask, DeviceShare, Message
from trainables.worker.sigterm import on_sigterm
from trainables.worker.step_watchdog import GRACE
from trainables.worker.worker import WorkerSettings, train_cohort

ACCELERATOR = "accelerator_type:"
"""Prefix of the Ray resource that names the kind of a node's GPUs."""
JudgeFactory = Callable[[str], Judge]
"""Makes the judge that compares the members of a cohort, named by its id, with those of other cohorts."""


@dataclass(frozen=True)
class Dispatch:
    """Where and how the cohorts of a dispatch run."""

    settings: WorkerSettings
    resources: Mapping[str, float]
    """Ray resources of each worker of a cohort."""
    storage: str
    """Folder or URI for Ray Train's own scratch files, reachable from all nodes that train one cohort."""
    judge_factory: JudgeFactory | None = None
    """Needed if tasks are compared at rungs."""
    module_folders: Sequence[str] = ()
    """Folders from which the user's modules are imported, besides those of the process that started Ray."""


def run_cohort(task: CohortTask, *, dispatch: Dispatch) -> None:
    """Ray Tune function that trains a cohort. It sends each message to Tune under `KEY`.

    Raises OutOfMemory if the cohort needs more memory. A process that is asked to end, or that hangs, exits and leaves
    the reason in a file (`trainables.worker.exit_file`).
    """
    import_from(dispatch.module_folders)
    workers, judge = task.spec.config(0).training.processes, _judge(task, dispatch.judge_factory)
    if workers == 1:

        def alone(_: dict[str, Any]) -> None:
            resources = ray.get_runtime_context().get_assigned_resources()
            _use_cores(resources.get("CPU", 1.0))
            share = device_share(resources, _node_resources(), 1)
            train_cohort(task, dispatch.settings, judge, _device(), SINGLE_PROCESS, _report_to_tune, share)

        TorchTrainer(alone, train_loop_config={}, scaling_config=ScalingConfig(num_workers=0)).fit()
        return

    def together(_: dict[str, Any]) -> None:
        import_from(dispatch.module_folders)
        _use_cores(dispatch.resources.get("CPU", 1.0))
        context = ray.train.get_context()
        peers = Peers(context.get_world_rank(), context.get_world_size())
        share = device_share(dispatch.resources, _node_resources(), peers.size)
        train_cohort(task, dispatch.settings, judge, get_device(), peers, _report_to_train, share)

    gpu = dispatch.resources.get("GPU", 0) > 0
    trainer = TorchTrainer(
        together,
        train_loop_config={},
        scaling_config=ScalingConfig(
            num_workers=workers, use_gpu=gpu, resources_per_worker=dict(dispatch.resources), placement_strategy="PACK"
        ),
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
        run_config=RunConfig(
            storage_path=dispatch.storage,
            name=uuid.uuid4().hex,
            callbacks=[cast(Any, TuneReportCallback())],  # Ray's own, of a class beside the declared one
        ),
    )
    with on_sigterm(_exit_after_grace):  # this process, which started the workers, stays alive while they save
        try:
            trainer.fit()
        except TrainingFailedError as error:
            lines = [line for line in str(error).splitlines() if OutOfMemory.__name__ in line]
            raise OutOfMemory(lines[-1].partition(": ")[2]) if lines else error from None


def import_from(folders: Sequence[str]) -> None:
    """Import modules in this process from these folders, too, before all others."""
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]


def _report_to_tune(message: Message) -> None:
    tune.report({KEY: message})


def _report_to_train(message: Message) -> None:
    ray.train.report({KEY: message})


def _exit_after_grace() -> None:
    """End this process after `GRACE` seconds, even if no worker has ended by then."""
    timer = threading.Timer(GRACE, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _judge(task: CohortTask, judge_factory: JudgeFactory | None) -> Judge | None:
    """The judge of the task's members; None if they are not compared."""
    if task.comparison.population:
        return task.comparison.population.judge_of(task.spec.configs())
    return judge_factory(task.cohort) if judge_factory and task.comparison.rungs else None


def measure_configs(
    configs: Sequence[Mapping[str, Any]],
    data: str,
    *,
    seconds: float,
    threads: int,
    processes: int,
    widths: Sequence[int],
    compiled: CompiledProbe | None = None,
    wait: Callable[[], None] = lambda: None,
) -> Probe:
    """Describe the device of this process and measure how `configs` train on it.

    `seconds`: time limit of the throughput measurement; 0 leaves it out. `threads`: CPU threads to use. With
    `processes > 1` up to so many processes then share the device, each stepping a stack of each of `widths`, to measure
    how they slow each other down. `compiled` asks for a measurement of compiled steps; `wait` is called while they are
    compiled, and may raise to end that. `measurements` is empty where training fails.
    """
    device = _device()
    _use_cores(threads)
    resolved = [resolve_sent(config) for config in configs]
    measurements: Sequence[Measurement] = ()
    if seconds:
        with contextlib.suppress(Exception):  # training will raise the same error again and report it
            measurements = measure(resolved, Path(data), device, seconds)
    slowdowns = None
    if processes > 1:
        slowdowns = measure_slowdowns(
            resolved, Path(data), device, widths=widths, max_processes=processes, cores=threads
        )
    seconds_compiled = None
    if compiled:
        with contextlib.suppress(Exception):  # as above
            members = resolved[: compiled.width]
            seconds_compiled = measure_compiled(members, Path(data), device, build=compiled.build, wait=wait)
    return Probe(device_memory(device), measurements, slowdowns, seconds_compiled)


def _device() -> torch.device:
    """The GPU that Ray gave this worker, or the CPU."""
    return torch.device("cuda" if ray.get_gpu_ids() and torch.cuda.is_available() else "cpu")


def device_share(resources: Mapping[str, float], node: Mapping[str, float], processes: int) -> DeviceShare:
    """What a cohort reserves, from the Ray `resources` of each of its `processes` and those of their whole `node`."""
    name = "GPU" if resources.get("GPU", 0) > 0 else "CPU"
    devices = resources.get(name, 1.0)
    kinds = [key.removeprefix(ACCELERATOR) for key in sorted(node) if key.startswith(ACCELERATOR)]
    kind = kinds[0] if name == "GPU" and kinds else ""
    return DeviceShare(devices * processes, max(node.get(name, 1.0), devices), kind)


@functools.cache
def _node_resources() -> Mapping[str, float]:
    """All Ray resources of the node of this process."""
    here = ray.get_runtime_context().get_node_id()
    return next((node["Resources"] for node in ray.nodes() if node["NodeID"] == here), {})


def _use_cores(cores: float) -> None:
    """Use one thread per whole core, so that workers on one machine do not compete for cores. A worker may have loaded
    NumPy before Ray told it its number of cores."""
    threads = max(1, int(cores))
    torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")
