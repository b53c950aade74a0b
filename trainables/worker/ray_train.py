"""The loop inside a Ray Train TorchTrainer, itself inside a Ray Tune function.

A cohort on one device, or a fraction of one, runs in TorchTrainer's in-process mode (`num_workers=0`), which costs
tenths of a second where a worker group costs tens. There the loop reports through Tune. A cohort whose trials ask for
several `workers` gets a worker group, a device for each; its first worker's reports are passed on to Tune.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import ray
import ray.train
import torch
from ray import tune
from ray.train import RunConfig, ScalingConfig, TrainingFailedError
from ray.train.torch import TorchConfig, TorchTrainer, get_device
from ray.tune.integration.ray_train import TuneReportCallback

from trainables.config.trial import TrialConfig, resolve
from trainables.contract import Judge, OutOfMemory
from trainables.learners.data_parallel import ALONE, Peers
from trainables.profiling.contention import measure_overlap
from trainables.profiling.throughput import Measurement, Room, measure, room
from trainables.training.population import Population
from trainables.worker.sigterm import on_sigterm
from trainables.worker.step_watchdog import GRACE
from trainables.worker.worker import Before, Checkpoints, Work, train_cohort


class Judges(Protocol):
    """Who says which members of a cohort are pruned."""

    def judge_of(self, cohort: str) -> Judge: ...


@dataclass(frozen=True)
class Place:
    """Where cohorts run."""

    run: str
    """A token of the dispatch that starts them, without spaces."""
    data: str
    """Folder of the data sets."""
    checkpoints: Checkpoints
    save_every: float
    """Seconds between a cohort's checkpoints."""
    resources: Mapping[str, float]
    """Ray resources of each of a cohort's workers."""
    storage: str
    """A folder or URI for Ray Train's own scratch files, reachable from every node that works for one cohort."""
    judges: Judges | None = None
    patience: float = 600.0
    """Seconds without a step after which a process gives up and ends itself."""


def run_cohort(cohort: str, task: Mapping[str, Any], *, place: Place) -> None:
    """A Ray Tune function: train the cohort of that id and report as it goes.

    `task`: `shared` and `own` values of the members' configs, the `width` of a stack, the path of the `checkpoint`,
    of a population the fields of its `population`, whether members are `judged` beside those of other cohorts, the
    bytes of `memory` that each process may use, and the cohorts that these members were part of `before`, nearest
    first, each with its `shared`, `own`, `width` and `checkpoint`. Each report is a dict: `report` (a `contract.Report`
    as a dict) or `heartbeat` (a `contract.Heartbeat`), and `device`, `host`, `pid`, `started`, and a `notice`, one
    line, where a checkpoint is of no use. A checkpoint that is there is gone on from, else one from before.

    OutOfMemory if it needs more memory. A process that is asked to end, or does not go on, ends itself, and says why in
    one line beside the checkpoint (`contract.WHY`).
    """
    configs = _configs(task)
    workers = configs[0].training.workers
    if "population" in task:
        judge: Judge | None = Population(**task["population"]).judge_of(configs)
    else:
        judge = place.judges.judge_of(cohort) if place.judges and task.get("judged") else None
    before = [Before(_configs(one), one["width"], one["checkpoint"]) for one in task.get("before", ())]
    work = Work(configs, task["width"], task["checkpoint"], judge, task.get("memory"), before)
    if workers == 1:

        def alone(_: dict[str, Any]) -> None:
            _use_cores(ray.get_runtime_context().get_assigned_resources().get("CPU", 1.0))
            train_cohort(work, place, _device(), ALONE, tune.report)

        TorchTrainer(alone, train_loop_config={}, scaling_config=ScalingConfig(num_workers=0)).fit()
        return

    def together(_: dict[str, Any]) -> None:
        _use_cores(place.resources.get("CPU", 1.0))
        context = ray.train.get_context()
        peers = Peers(context.get_world_rank(), context.get_world_size())
        train_cohort(work, place, get_device(), peers, ray.train.report)

    gpu = place.resources.get("GPU", 0) > 0
    trainer = TorchTrainer(
        together,
        train_loop_config={},
        scaling_config=ScalingConfig(
            num_workers=workers, use_gpu=gpu, resources_per_worker=dict(place.resources), placement_strategy="PACK"
        ),
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
        run_config=RunConfig(
            storage_path=place.storage,
            name=uuid.uuid4().hex,
            callbacks=[TuneReportCallback()],  # type: ignore[list-item]  # Ray's own, of a class beside the declared one
        ),
    )
    with on_sigterm(_end_later):  # who started the workers stays while they save
        try:
            trainer.fit()
        except TrainingFailedError as error:
            short = [line for line in str(error).splitlines() if OutOfMemory.__name__ in line]
            raise OutOfMemory(short[-1].partition(": ")[2]) if short else error from None


def _end_later() -> None:
    """Also if no worker ends."""
    timer = threading.Timer(GRACE, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _configs(task: Mapping[str, Any]) -> list[TrialConfig]:
    return [resolve(task["shared"] | own) for own in task["own"]]


@dataclass(frozen=True)
class Probe:
    """What was found on a device."""

    room: Room
    measured: Sequence[Measurement] = ()
    """Of a group of configs; nothing where that could not be measured."""
    overlap: Mapping[int, Mapping[int, float]] | None = None
    """See `trainables.profiling.contention`; None where it was not asked for."""


def measure_configs(
    configs: Sequence[Mapping[str, Any]],
    data: str,
    *,
    seconds: float = 0.0,
    threads: int = 1,
    sharing: int = 0,
    widths: Sequence[int] = (),
) -> Probe:
    """The whole device of this process, and how configs train on it: measured for so many `seconds`; and where up to
    `sharing` processes share it, which step stacks of these widths. Nothing is found where training fails."""
    device = _device()
    _use_cores(threads)
    resolved = [resolve(config) for config in configs]
    measured: Sequence[Measurement] = ()
    if seconds:
        with contextlib.suppress(Exception):  # whatever it is, training will meet it again and name it
            measured = measure(resolved, Path(data), device, seconds)
    overlap = None
    if sharing > 1:
        overlap = measure_overlap(resolved, Path(data), device, widths=widths, most=sharing, cores=threads)
    return Probe(room(device), measured, overlap)


def _device() -> torch.device:
    """The GPU that Ray gave this worker, or the CPU."""
    return torch.device("cuda" if ray.get_gpu_ids() and torch.cuda.is_available() else "cpu")


def _use_cores(cores: float) -> None:
    """As many threads as whole cores, so that workers that share a machine do not crowd each other."""
    torch.set_num_threads(max(1, int(cores)))
