"""The devices of a cluster: how they are told apart, what is known of them, and how many cohorts share one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import ClusterError
from sweeper.packing.cluster import (
    ASSUMED_CORE,
    ASSUMED_GPU,
    Cluster,
    DeviceInfo,
    DeviceKind,
    Devices,
    MeasurementRequest,
    cpu_devices,
    device_kinds,
    gpu_slots,
    is_local,
    kind_resources,
    profile_devices,
    read_devices,
    write_devices,
)
from sweeper.storage.files import Files
from tests.sweeper.packing.fake_cluster import CORES, LARGE, MANY, MIB, PLENTY, FakeMeasure
from trainables.training.measurement import DeviceMeasurement, DeviceMemory

DEVICES = [DeviceInfo("device A", 2000 * MIB, 50 * MIB, LARGE), DeviceInfo("device B", 900 * MIB, 50 * MIB, MANY)]


@pytest.mark.parametrize(
    ("address", "local"), [(None, True), ("local", True), ("auto", False), ("ray://head:10001", False)]
)
def test_a_cluster_without_an_address_is_local(address: str | None, local: bool) -> None:
    assert is_local(address) is Cluster(address, (CORES,), FakeMeasure({})).local is local


def test_one_device_of_each_kind_is_inspected_and_none_is_measured() -> None:
    measure = FakeMeasure({"A": 2000 * MIB, "B": 900 * MIB})
    assert profile_devices(measure.cluster(LARGE, MANY)) == DEVICES
    assert measure.requests == [MeasurementRequest(kind=LARGE), MeasurementRequest(kind=MANY)]


def test_a_kind_on_which_no_worker_starts_is_left_out() -> None:
    measure = FakeMeasure({"A": 2000 * MIB, "B": 900 * MIB})
    cluster = replace(measure.cluster(LARGE, MANY), measure=lambda requests: [None, *measure(requests)[1:]])
    assert profile_devices(cluster) == DEVICES[1:]
    with pytest.raises(ClusterError, match="report its device, but none did"):
        profile_devices(replace(cluster, measure=lambda requests: [None for _ in requests]))


def gib(size: int) -> DeviceMeasurement:
    return DeviceMeasurement(DeviceMemory(f"A100, {size} GiB", size * 2**30, 50 * MIB))


def test_gpus_of_one_name_are_two_kinds_if_their_memories_differ() -> None:
    """The third node is busy: it counts as one with little memory, as do nodes that join later."""
    a100 = DeviceKind(True, "A100", (4, 2, 8), node_ids=("n40", "n80", "busy"))
    found = {"n40": gib(40), "n80": gib(80), "busy": None}
    large, small = profile_devices(
        Cluster("auto", (a100,), lambda requests: [found[request.kind.node_ids[0]] for request in requests])
    )
    assert (large.bytes, large.kind.nodes, large.kind.node_ids) == (80 * 2**30, (2,), ("n80",))
    assert (small.bytes, small.kind.nodes, small.kind.node_ids) == (40 * 2**30, (4, 8), ("n40", "busy"))
    slots = [gpu_slots(device, [large, small], 1) for device in (large, small)]
    assert [(slot.only_on, slot.never_on) for slot in slots] == [(("n80",), ()), ((), ("n80",))]


def test_gpus_of_one_memory_run_on_all_nodes_of_their_name() -> None:
    a100 = DeviceKind(True, "A100", (4, 2), node_ids=("a", "b"))
    (device,) = profile_devices(Cluster("auto", (a100,), lambda requests: [gib(40) for _ in requests]))
    slot = gpu_slots(device, [device], 1)
    assert device.kind == a100 and (slot.only_on, slot.never_on, slot.resources) == ((), (), {"GPU": 1.0, "CPU": 1.0})


def test_devices_are_kept_by_address(tmp_path: Path) -> None:
    files = Files(tmp_path)
    write_devices(files, "auto", DEVICES)
    write_devices(files, None, DEVICES[:1])
    assert read_devices(files, "auto") == DEVICES and read_devices(files, "local") == DEVICES[:1]
    assert read_devices(files, "ray://head:10001") is None
    write_devices(files, "auto", DEVICES[1:], "gpu")
    assert read_devices(files, "auto", "gpu") == DEVICES[1:] and read_devices(files, "auto") == DEVICES


def node(resources: dict[str, float], alive: bool = True, name: str = "") -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources, "NodeID": name}


A, B = {"CPU": 16.0, "GPU": 4.0, "accelerator_type:A": 1.0}, {"CPU": 6.0, "GPU": 1.0, "accelerator_type:B": 1.0}


def test_gpus_are_told_apart_and_cores_beside_them_are_theirs() -> None:
    nodes = [node({"CPU": 64.0}), node(B, name="b"), node(A, name="a0"), node(A | {"CPU": 8.0}, name="a1")]
    gpu_kinds = device_kinds([*nodes, node(B, alive=False)], local=True)
    assert gpu_kinds == (
        DeviceKind(True, "A", (4, 4), cores=2.0, node_ids=("a0", "a1")),
        DeviceKind(True, "B", (1,), cores=6.0, node_ids=("b",)),
    )
    assert [kind_resources(kind, gpu_kinds) for kind in gpu_kinds] == [
        {"accelerator_type:A": 0.001},
        {"accelerator_type:B": 0.001},
    ]


def test_a_single_kind_is_not_requested_by_name() -> None:
    """Nodes that an autoscaler brings may not be called so before they are there."""
    (kind,) = device_kinds([node(A)], local=False)
    assert kind_resources(kind, [kind]) == {}


def test_without_gpus_the_cores_count() -> None:
    assert device_kinds([node({"CPU": cores}) for cores in (2.0, 0.0, 3.0)], local=False) == (
        DeviceKind(False, "", (2, 3)),
    )


@pytest.mark.parametrize("nodes", [[], [node({"memory": 1.0})], [node({"CPU": 0.0})]])
def test_a_growing_cluster_without_devices_is_expected_to_have_gpus(nodes: list[dict[str, Any]]) -> None:
    assert device_kinds(nodes, local=False) == (ASSUMED_GPU,)
    assert not device_kinds(nodes, local=True)[0].gpus


GROWING = [node({"CPU": 8.0})]
GPU_TYPE, CORES_TYPE = {"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0}


def test_a_growing_cluster_trains_on_what_its_autoscaler_can_start() -> None:
    """On GPUs if there may be any, though only cores are there now."""
    assert device_kinds(GROWING, False, None, [CORES_TYPE, GPU_TYPE]) == (ASSUMED_GPU,)
    assert device_kinds(GROWING, False, None, [CORES_TYPE]) == device_kinds(GROWING, False) != (ASSUMED_CORE,)
    assert device_kinds([], False, None, [CORES_TYPE]) == (ASSUMED_CORE,)


def test_the_devices_to_train_on_can_be_chosen() -> None:
    nodes = [*GROWING, node(A)]
    assert [kind.gpus for kind in device_kinds(nodes, True)] == [True]
    for local in (True, False):
        assert device_kinds(nodes, local, "cpu") == (DeviceKind(False, "", (8, 16)),)
    assert device_kinds(GROWING, False, "gpu") == (ASSUMED_GPU,)
    assert device_kinds([], False, "cpu", [GPU_TYPE]) == (ASSUMED_CORE,)
    with pytest.raises(ClusterError, match="--devices gpu needs a GPU, but Ray finds none here"):
        device_kinds(GROWING, True, "gpu")


def test_a_ratio_holds_for_narrower_stacks_and_not_for_wider_ones() -> None:
    kind = Devices(1, PLENTY, slowdowns={4: {2: 1.2, 4: 1.5}, 16: {2: 1.9}})
    assert [kind.slowdown(1, 2), kind.slowdown(4, 2), kind.slowdown(5, 2), kind.slowdown(17, 2)] == [1.2, 1.2, 1.9, 2.0]
    assert [kind.slowdown(2, n) for n in (1, 3, 4, 8)] == pytest.approx([1.0, 1.8, 1.5, 3.0])


@pytest.mark.parametrize("wrong", [{"count": 0}, {"bytes": 0}, {"cores": 0}, {"speed": 0.0}, {"node_devices": 0}])
def test_impossible_devices_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))} > 0` must hold of devices"):
        replace(Devices(1, 1), **wrong)


def test_a_ratio_of_sharing_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="`slowdowns >= 1` must hold"):
        Devices(1, 1, slowdowns={1: {2: 0.5}})


@pytest.mark.parametrize(("cores", "threads", "count"), [(8, 1, 8), (8, 3, 2), (8, 8, 1), (1, 1, 1)])
def test_no_more_threads_than_cores(cores: int, threads: int, count: int) -> None:
    kind = cpu_devices([cores], 1000, threads)
    assert kind.count == count and kind.count * threads <= cores and kind.bytes * kind.count <= 1000
    assert kind.process_counts == [1]
    with pytest.raises(ValueError, match=f"threads={cores + 1} of {cores} cores"):
        cpu_devices([cores], 1000, cores + 1)
