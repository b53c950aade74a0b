"""Train a cohort in a group of workers of Ray Train, one device each.

The workers form their process group themselves, in the training function: Ray ends a group whose training raises, but
keeps the devices of one whose own set-up of the process group has failed until the driver ends.
"""

import contextlib
import datetime
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray.exceptions import RayError
from ray.train import ControllerError, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError
from ray.train.backend import Backend
from ray.train.collective import broadcast_from_rank_zero
from ray.train.torch import TorchConfig, TorchTrainer

from trainables.learners.data_parallel import Peers
from trainables.reports import NoDevices, OutOfMemory, UnusableGpu

START_SECONDS = 300.0
"""Seconds within which workers that have started must have formed their process group."""
STARTS = 10
"""Times that Ray waits for the devices of a group, each a minute long."""
TELLING = (OutOfMemory, UnusableGpu)
"""Errors of one worker that explain those of the others, which have lost it."""


class _OwnGroup(Backend):
    """Leaves the process group to the workers. Each sees the GPUs of all workers of its node, as NCCL needs it."""

    share_cuda_visible_devices = True


class _OwnGroupConfig(TorchConfig):
    @property
    def backend_cls(self) -> type[Backend]:
        return _OwnGroup


def train_group(
    train: Callable[[], None], workers: int, resources: Mapping[str, float], labels: Mapping[str, str], storage: str
) -> None:
    """Call `train` in each of several workers with these Ray `resources`, on nodes that the label selector allows.

    Raises the exception of a worker, by preference one that explains those of the others, and NoDevices if the devices
    do not become free.
    """
    # The types that Ray declares are those of an earlier version of Ray Train.
    placed: dict[str, Any] = {"label_selector": dict(labels) or None}
    starts: dict[str, Any] = {"controller_failure_limit": STARTS - 1}
    trainer = TorchTrainer(
        lambda _: train(),
        train_loop_config={},
        scaling_config=ScalingConfig(
            num_workers=workers,
            use_gpu=resources.get("GPU", 0) > 0,
            resources_per_worker=dict(resources),
            placement_strategy="PACK",
            **placed,
        ),
        torch_config=_OwnGroupConfig(),
        run_config=RunConfig(storage_path=storage, name=uuid.uuid4().hex, failure_config=FailureConfig(**starts)),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        raise cause_of(error) from None


def cause_of(error: Exception) -> BaseException:
    """Return the exception that Ray's error about a group is due to."""
    if isinstance(error, WorkerGroupError) and error.worker_failures:
        by_rank = [error.worker_failures[rank] for rank in sorted(error.worker_failures)]
        causes = [getattr(failure, "_base_exc", failure) for failure in by_rank]  # as the worker raised it
        return min(causes, key=lambda cause: (not isinstance(cause, TELLING), isinstance(cause, RayError)))
    if isinstance(error, ControllerError):
        cause = error.controller_failure
        if type(cause).__name__ == "WorkerGroupStartupTimeoutError":
            return NoDevices("the devices of its workers did not become free")
        return cause
    return error


@contextlib.contextmanager
def process_group(peers: Peers, device: torch.device) -> Any:
    """Context in which the workers are connected by torch.distributed's default group: NCCL for GPUs, else gloo.

    Raises RuntimeError if the group is not formed within `START_SECONDS`, and what forming it raises.
    """
    backend = "nccl" if device.type == "cuda" else "gloo"
    errors: list[BaseException] = []

    def form() -> None:
        try:
            if device.type == "cuda":
                torch.cuda.set_device(device)
            dist.init_process_group(backend, store=_store(peers), rank=peers.rank, world_size=peers.size)
            peers.maximum(0)  # NCCL connects the GPUs for the first call
        except BaseException as error:
            errors.append(error)

    forming = threading.Thread(target=form, name="process group", daemon=True)
    forming.start()
    forming.join(START_SECONDS)
    if errors:
        raise errors[0]
    if forming.is_alive():
        raise RuntimeError(
            f"{peers.size} workers must connect by {backend} within {START_SECONDS:.0f} s, but did not; is traffic "
            "between their nodes blocked?"
        )
    yield
    dist.destroy_process_group()  # after an exception the process ends, and peers that died would be waited for


def _store(peers: Peers) -> dist.Store:
    """Return the store by which the workers find each other. The first worker serves it."""
    timeout, host = datetime.timedelta(seconds=START_SECONDS), ray.util.get_node_ip_address()
    server = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout) if not peers.rank else None
    host, port = broadcast_from_rank_zero((host, server.port if server else 0))
    return server or dist.TCPStore(host, port, is_master=False, timeout=timeout)
