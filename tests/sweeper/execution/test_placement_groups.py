"""Placement groups that are given back while placing one takes so long that Ray's own manager leaks resources."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
import ray
import ray.tune.tune
from ray import tune
from ray.air.execution.resources.placement_group import PlacementGroupResourceManager
from ray.air.execution.resources.request import ResourceRequest

from sweeper.execution import executor, placement_groups
from sweeper.execution.driver.connection import connected
from sweeper.execution.placement_groups import PlacementGroupPool
from sweeper.execution.process.stop_signal import StopSignal
from sweeper.packing.slots import SlotResources, Slots
from sweeper.plan.cohort_source import CohortQueue
from sweeper.plan.cohorts import Cut, cut
from sweeper.storage.io.files import Files
from tests.sweeper.packing.measured import members
from trainables.reports import Report
from trainables.worker.messages import KEY, CohortReport, CohortTask, Origin

pytestmark = pytest.mark.slow

WRITES = 30
"""Milliseconds that the control store needs to write a group. It also writes when a group is prepared, and a group that
is removed at that moment is lost."""
BYTES = 1e6
Manager = PlacementGroupResourceManager


@pytest.fixture(scope="module")
def scratch() -> Iterator[str]:
    """Scratch folder of a cluster that ends with this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_testing_asio_delay_us", f"GcsInMemoryStore.Put={1000 * WRITES}:{1000 * WRITES}")
        with connected(None) as folder:
            yield folder


def free(kind: str, expected: float, seconds: float = 300.0) -> float:
    """Return the available amount of a resource, once it is `expected`, or after so many seconds."""
    deadline = time.monotonic() + seconds
    while (amount := ray.available_resources().get(kind, 0.0)) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return amount


def lost_groups(
    manager: type[Manager], give_back: Callable[[Manager, ResourceRequest], None], seconds: float = 300.0
) -> float:
    """Return the number of groups lost after several were requested and given back, each later in its placing."""
    before = ray.available_resources()["memory"]
    request, pool = ResourceRequest([{"memory": BYTES}]), manager()
    for turn in range(15):
        pool.request_resources(request)
        time.sleep(turn * WRITES / 6000)
        give_back(pool, request)
    pool.clear()
    return (before - free("memory", before, seconds)) / BYTES


def cancel(manager: Manager, request: ResourceRequest) -> None:
    manager.cancel_resource_request(request)


def clear(manager: Manager, request: ResourceRequest) -> None:
    manager.clear()


@pytest.mark.parametrize("give_back", [cancel, clear])
def test_nothing_is_lost(scratch: str, give_back: Any) -> None:
    assert lost_groups(PlacementGroupPool, give_back) == 0


@pytest.mark.xfail(
    reason="ray-project/ray issue 64693: once this passes, `sweeper.execution.placement_groups` is not needed",
    strict=False,
)
def test_rays_own_manager_loses_nothing(scratch: str) -> None:
    assert lost_groups(Manager, cancel, seconds=1.0) == 0


def state(group: Any) -> str:
    return str(ray.util.placement_group_table(group)["state"])


def test_a_cancelled_group_is_used_by_the_next_equal_request_or_removed_in_time(
    scratch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = ray.cluster_resources()["CPU"]
    manager, everything = PlacementGroupPool(), ResourceRequest([{"CPU": cores}])
    manager.request_resources(everything)
    ray.get(manager.get_resource_futures())
    acquired = manager.acquire_resources(everything)
    assert acquired is not None

    manager.request_resources(everything)
    (pending,) = manager.get_resource_futures()
    manager.cancel_resource_request(everything)
    manager.request_resources(everything)
    assert manager.get_resource_futures() == [pending], "it was not taken"
    manager.cancel_resource_request(everything)
    manager.request_resources(ResourceRequest([{"CPU": cores / 2}]))
    assert len(manager.get_resource_futures()) == 2, "another one was taken for it"

    (group,) = manager._request_to_staged_pgs[everything]
    monkeypatch.setattr(placement_groups, "SPARE_SECONDS", 0.0)
    manager.free_resources(acquired)
    manager.get_resource_futures()
    assert state(group) == "PENDING", "it was removed where it may be being placed"
    ray.get(pending)
    manager.update_state()
    assert state(group) == "CREATED"
    manager.get_resource_futures()
    assert state(group) == "REMOVED", "it was kept though nobody wants it"

    ray.get(manager.get_resource_futures())
    manager.request_resources(everything)
    (group,) = manager._request_to_staged_pgs[everything]
    manager.cancel_resource_request(everything)
    monkeypatch.setattr(placement_groups, "SETTLING_SECONDS", 0.0)
    manager.get_resource_futures()
    assert state(group) == "REMOVED", "a node would be started for it"
    manager.clear()
    assert free("CPU", cores) == cores


def test_the_end_of_a_cluster_waits_for_no_group(scratch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, everything = Mock(), ResourceRequest([{"CPU": ray.cluster_resources()["CPU"] + 1}])
    monkeypatch.setattr(ray, "wait", waits)
    ends, goes_on = PlacementGroupPool(cluster_ends=lambda: True), PlacementGroupPool(cluster_ends=lambda: False)
    ends.request_resources(everything)
    ends.clear()
    assert not waits.called
    goes_on.request_resources(everything)
    goes_on.clear()
    assert waits.called


def report_at_once(task: CohortTask, *, dispatch: object) -> None:
    """What trains a cohort, without the training."""
    origin = Origin("cpu", "here", os.getpid(), datetime.now(UTC))
    tune.report({KEY: CohortReport(Report(1, (), 0.0, done=True), origin)})


def test_a_dispatch_requests_its_groups_from_the_pool(scratch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[ResourceRequest] = []
    request = PlacementGroupPool.request_resources

    def request_and_record(self: PlacementGroupPool, resource_request: ResourceRequest) -> None:
        requests.append(resource_request)
        request(self, resource_request)

    monkeypatch.setattr(PlacementGroupPool, "request_resources", request_and_record)
    monkeypatch.setattr(executor, "run_cohort", report_at_once)
    usual, listener, cores = ray.tune.tune.TuneController, Mock(), ray.cluster_resources()["CPU"]
    executor.dispatch(
        CohortQueue(cut([members(2)], [Cut(1, 1)])),
        data="data",
        checkpoints=Files(scratch),
        checkpoint_path=lambda cohort: f"checkpoints/{cohort}",
        slots=Slots((SlotResources({"CPU": 1.0}, int(cores)),), local=True),
        limits=executor.Limits(0, 60.0, 600.0),
        scratch=scratch,
        stopping=StopSignal(),
        listener=listener,
    )
    assert listener.reported.call_count == 2 and not listener.failed.called
    assert set(requests) == {ResourceRequest([{"CPU": 1.0}])}
    assert ray.tune.tune.TuneController is usual
    assert free("CPU", cores) == cores
