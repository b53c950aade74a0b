"""Groups of workers: how they connect, and what is told of their failures. Nothing here starts a process.

`test_data_parallel.py` of the learners shows what connected processes do.
"""

import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ray.exceptions import ActorDiedError
from ray.train import ControllerError, WorkerGroupError

from sweeper.execution.backend import failure_of
from trainables.learners.data_parallel import Peers
from trainables.reports import OutOfMemory, UnusableGpu
from trainables.worker import ray_group
from trainables.worker.messages import Failure
from trainables.worker.ray_group import cause_of, process_group

CPU = torch.device("cpu")


class Wrapped(Exception):
    """As Ray Train wraps the exception of a worker."""

    def __init__(self, error: BaseException) -> None:
        self._base_exc = error


class WorkerGroupStartupTimeoutError(Exception):
    """As Ray Train names it."""


def connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_group, "broadcast_from_rank_zero", lambda data: data)
    monkeypatch.setattr(ray_group.ray.util, "get_node_ip_address", lambda: "127.0.0.1")


def test_workers_are_connected_while_they_train(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch)
    with process_group(Peers(), CPU):
        assert dist.get_backend() == "gloo" and dist.get_world_size() == 1
    assert not dist.is_initialized()


def test_what_connecting_raises_is_the_workers_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch)

    def init(backend: str, **_: Any) -> None:
        raise ValueError(f"{backend}: no GPUs found!")

    monkeypatch.setattr(dist, "init_process_group", init)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    with pytest.raises(ValueError, match="nccl: no GPUs found!"), process_group(Peers(), torch.device("cuda")):
        pass


def test_workers_that_do_not_connect_in_time_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch)
    forever = threading.Event()
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: forever.wait())
    monkeypatch.setattr(ray_group, "START_SECONDS", 0.01)
    law = r"2 workers must connect by gloo within 0 s, but did not; is traffic"
    with pytest.raises(RuntimeError, match=law), process_group(Peers(0, 2), CPU):
        pass
    forever.set()


@pytest.mark.parametrize("telling", [OutOfMemory("it may use 1 MiB"), UnusableGpu("no driver")])
def test_the_error_that_explains_those_of_the_other_workers_is_told(telling: Exception) -> None:
    lost = Wrapped(RuntimeError("Connection closed by peer"))
    assert cause_of(WorkerGroupError("", {0: lost, 1: Wrapped(telling)})) is telling
    assert cause_of(WorkerGroupError("", {1: Wrapped(telling), 0: lost})) is telling


def test_an_exception_of_training_explains_the_death_of_another_worker() -> None:
    raised = ValueError("out of luck")
    assert cause_of(WorkerGroupError("", {0: ActorDiedError(), 1: Wrapped(raised)})) is raised


def test_devices_that_do_not_become_free_cost_no_retry() -> None:
    cause = cause_of(ControllerError(WorkerGroupStartupTimeoutError()))
    assert failure_of(cause) == Failure("machine", "the devices of its workers did not become free")
    assert failure_of(cause_of(ControllerError(ValueError("a bug")))) == Failure("error", "ValueError: a bug")
