"""The loop inside a Ray Train TorchTrainer, itself inside a Ray Tune function.

A cohort on one device, or a fraction of one, runs in TorchTrainer's in-process mode (`num_workers=0`), which costs
tenths of a second where a worker group costs tens. There the loop reports through Tune. A cohort whose trials ask for
several `workers` gets a worker group, a device for each; its first worker's reports are passed on to Tune.
"""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import ray
import ray.train
import torch
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, get_device
from ray.tune.integration.ray_train import TuneReportCallback

from trainables.config import TrialConfig, resolve
from trainables.contract import Judge
from trainables.measure import Measurement, Room, measure, room
from trainables.peers import ALONE, Peers
from trainables.population import Population
from trainables.sharing import measure_overlap
from trainables.train import train


class Checkpoints(Protocol):
    """Where a cohort's checkpoint lives, readable from every node."""

    def read(self, path: str) -> bytes | None: ...

    def write(self, path: str, data: bytes) -> None: ...


class Judges(Protocol):
    """Who says which members of a cohort are pruned."""

    def judge_of(self, cohort: str) -> Judge: ...


@dataclass(frozen=True)
class Place:
    """Where cohorts run."""

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


def run_cohort(cohort: str, task: Mapping[str, Any], *, place: Place) -> None:
    """A Ray Tune function: train the cohort of that id and report as it goes.

    `task`: `shared` and `own` values of the members' configs, the `width` of a stack, the path of the `checkpoint`,
    of a population the fields of its `population`, and whether members are `judged` beside those of other cohorts. Each
    report is a dict: `report` (a `contract.Report` as a dict), `device`, `host`, `pid`, `started`. A checkpoint that is
    there is gone on from.
    """
    configs = [resolve(task["shared"] | own) for own in task["own"]]
    workers = configs[0].training.workers
    if "population" in task:
        judge: Judge | None = Population(**task["population"]).judge_of(configs)
    else:
        judge = place.judges.judge_of(cohort) if place.judges and task.get("judged") else None
    work = _Work(configs, task["width"], task["checkpoint"], judge)
    if workers == 1:

        def alone(_: dict[str, Any]) -> None:
            _use_cores(ray.get_runtime_context().get_assigned_resources().get("CPU", 1.0))
            _train(work, place, _device(), ALONE, tune.report)

        TorchTrainer(alone, train_loop_config={}, scaling_config=ScalingConfig(num_workers=0)).fit()
        return

    def together(_: dict[str, Any]) -> None:
        _use_cores(place.resources.get("CPU", 1.0))
        context = ray.train.get_context()
        peers = Peers(context.get_world_rank(), context.get_world_size())
        _train(work, place, get_device(), peers, ray.train.report)

    gpu = place.resources.get("GPU", 0) > 0
    TorchTrainer(
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
    ).fit()


@dataclass(frozen=True)
class _Work:
    """What one process, or each of a group, is to do."""

    configs: Sequence[TrialConfig]
    width: int
    checkpoint: str
    judge: Judge | None


def _train(
    work: _Work,
    place: Place,
    device: torch.device,
    peers: Peers,
    report: Callable[[dict[str, Any]], None],
) -> None:
    """The loop in this process, each report passed on; of peers the first alone writes checkpoints."""
    started = datetime.now(UTC).isoformat()
    where = {"device": _device_name(device), "host": socket.gethostname(), "pid": os.getpid(), "started": started}
    reports = train(
        work.configs,
        Path(place.data),
        device=device,
        width=work.width,
        resume=place.checkpoints.read(work.checkpoint),
        save=(lambda content: place.checkpoints.write(work.checkpoint, content)) if peers.rank == 0 else None,
        save_every=place.save_every,
        peers=peers,
        judge=work.judge,
    )
    for one in reports:
        report({"report": asdict(one), **where})


@dataclass(frozen=True)
class Probe:
    """What was found on a device."""

    room: Room
    measured: Sequence[Measurement] = ()
    """Of a group of configs; nothing where that could not be measured."""
    overlap: Mapping[int, Mapping[int, float]] | None = None
    """See `trainables.sharing`; None where it was not asked for."""


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


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _use_cores(cores: float) -> None:
    """As many threads as whole cores, so that workers that share a machine do not crowd each other."""
    torch.set_num_threads(max(1, int(cores)))
