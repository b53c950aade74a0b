"""The loop inside a Ray Train TorchTrainer, itself inside a Ray Tune function.

A cohort on one device, or a fraction of one, runs in TorchTrainer's in-process mode (`num_workers=0`), which costs
tenths of a second where a worker group costs tens. There the loop reports through Tune.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import ray
import torch
from ray import tune
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

from trainables.config import resolve
from trainables.measure import Measurement, measure, memory_at_hand
from trainables.train import train


class Checkpoints(Protocol):
    """Where a cohort's checkpoint lives, readable from every node."""

    def read(self, path: str) -> bytes | None: ...

    def write(self, path: str, data: bytes) -> None: ...


def run_cohort(task: Mapping[str, Any], *, data: str, checkpoints: Checkpoints, save_every: float) -> None:
    """A Ray Tune function: train the cohort `task` (`configs`, `width`, `checkpoint`: its path), report as it goes.

    Each report is a dict: `report` (a `contract.Report` as a dict), `device`, `host`, `pid`, `started`. A checkpoint
    that is there is gone on from.
    """
    configs = [resolve(config) for config in task["configs"]]
    where = {"device": _device_name(), "host": socket.gethostname(), "pid": os.getpid()}
    started = datetime.now(UTC).isoformat()

    def loop(_: dict[str, Any]) -> None:
        _use_cores(ray.get_runtime_context().get_assigned_resources().get("CPU", 1.0))
        reports = train(
            configs,
            Path(data),
            device=_device(),
            width=task["width"],
            resume=checkpoints.read(task["checkpoint"]),
            save=lambda content: checkpoints.write(task["checkpoint"], content),
            save_every=save_every,
        )
        for report in reports:
            tune.report({"report": asdict(report), "started": started, **where})

    TorchTrainer(loop, train_loop_config={}, scaling_config=ScalingConfig(num_workers=0)).fit()


def measure_configs(
    configs: list[dict[str, Any]], data: str, resources: Mapping[str, float]
) -> tuple[list[Measurement], int]:
    """`trainables.measure` in this process, and the bytes of memory that are its share of the device.

    `resources` are those of Ray that a cohort takes.
    """
    cores, device = resources.get("CPU", 1.0), _device()
    share = resources["GPU"] if device.type == "cuda" else cores / (os.cpu_count() or 1)
    _use_cores(cores)
    return measure([resolve(config) for config in configs], Path(data), device), memory_at_hand(device, min(share, 1.0))


def _device() -> torch.device:
    """The GPU that Ray gave this worker, or the CPU."""
    return torch.device("cuda" if ray.get_gpu_ids() and torch.cuda.is_available() else "cpu")


def _device_name() -> str:
    return torch.cuda.get_device_name() if _device().type == "cuda" else "cpu"


def _use_cores(cores: float) -> None:
    """As many threads as whole cores, so that workers that share a machine do not crowd each other."""
    torch.set_num_threads(max(1, int(cores)))
