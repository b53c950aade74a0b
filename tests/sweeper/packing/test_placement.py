"""Where cohorts run: slots of whole and shared devices."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sweeper.errors import ClusterError
from sweeper.packing.allocate import least_threads, longest_group, on_cores, on_gpus
from sweeper.packing.cluster import DeviceInfo, SlotResources, Slots, whole_device_slots
from sweeper.packing.packer import TOLERANCE
from sweeper.packing.profiler import GroupProfile
from sweeper.packing.workloads import COHORT_START_SECONDS, Workload
from tests.sweeper.packing.fake_cluster import CORES, LARGE, MANY
from tests.sweeper.packing.measured import MIB, measurement, members

GPU_A, GPU_B = DeviceInfo("A", 2000 * MIB, 0, LARGE), DeviceInfo("B", 1000 * MIB, 0, MANY)
MACHINE = DeviceInfo("cores", 8000 * MIB, 0, CORES)
STEP = measurement(1, 1e-3, 100 * MIB)
WORKLOAD = Workload(members(16), [STEP], 10_000)


def profile(seconds: float, **slowdowns: float) -> GroupProfile:
    measured = {1: {int(count[1:]): ratio for count, ratio in slowdowns.items()}}
    return GroupProfile((replace(STEP, seconds=seconds),), 0, measured)


@pytest.mark.parametrize(
    ("devices", "fraction", "expected"),
    [
        ([MACHINE], None, [SlotResources({"CPU": 1.0}, 4, 2000 * MIB, "cores")]),
        ([MACHINE], 0.5, [SlotResources({"CPU": 0.5}, 8, 1000 * MIB, "cores")]),
        ([GPU_A], None, [SlotResources({"GPU": 1.0, "CPU": 8.0}, 2, 2000 * MIB, "A")]),
        ([GPU_A], 0.3, [SlotResources({"GPU": 0.3, "CPU": 2.0}, 6, 2000 * MIB // 3, "A")]),
        (
            [GPU_A, GPU_B],
            None,
            [
                SlotResources({"GPU": 1.0, "CPU": 8.0, "accelerator_type:A": 0.001}, 2, 2000 * MIB, "A"),
                SlotResources({"GPU": 1.0, "CPU": 4.0, "accelerator_type:B": 0.001}, 8, 1000 * MIB, "B"),
            ],
        ),
    ],
)
def test_a_slot_is_a_whole_device_or_the_requested_fraction(
    devices: Sequence[DeviceInfo], fraction: float | None, expected: list[SlotResources]
) -> None:
    assert list(whole_device_slots(devices, fraction, local=True).by_kind) == expected


def test_a_gpu_with_fewer_cores_than_slots_gives_each_a_part_of_a_core() -> None:
    device = replace(GPU_A, kind=replace(LARGE, cores=2.0))
    assert whole_device_slots([device], 0.3, local=True).resources == {"GPU": 0.3, "CPU": 0.6666}


def test_the_speed_of_a_kind_is_relative_to_the_first() -> None:
    profiles = [[profile(1e-3), profile(3e-3)], [profile(2e-3), profile(6e-3)]]
    packing = on_gpus([WORKLOAD, WORKLOAD], [GPU_A, GPU_B], profiles, fraction=None, local=True)
    assert [kind.speed for kind in packing.devices] == [1.0, pytest.approx(0.5)]


def test_a_kind_that_was_not_measured_is_taken_to_be_as_fast_as_the_first() -> None:
    profiles = [[profile(1e-3)], [GroupProfile((), 0)]]
    assert on_gpus([WORKLOAD], [GPU_A, GPU_B], profiles, fraction=None, local=True).devices[1].speed == 1.0


def test_slots_are_the_parts_of_a_gpu_that_the_packing_chose() -> None:
    packing = on_gpus([WORKLOAD], [GPU_A], [[profile(1e-3, n2=1.0)]], fraction=None, local=False)
    assert packing.slots_per_device == (2,) and not packing.slots[1].local
    assert packing.slots[1].by_kind == (SlotResources({"GPU": 0.5, "CPU": 4.0}, 4, 1000 * MIB, "A"),)


def test_a_cohort_that_fits_no_kind_goes_to_the_one_with_most_room() -> None:
    large = replace(WORKLOAD, measurements=[replace(STEP, bytes=9000 * MIB)])
    packing = on_gpus([large], [GPU_A, GPU_B], [[profile(1e-3)], [profile(1e-3)]], fraction=1.0, local=True)
    assert set(packing.slots[1].fitting_kinds.values()) == {(0,)} and len(packing.slots[1].fitting_kinds) == 16


@pytest.mark.parametrize(
    ("count", "threads", "seconds"), [(2, 2, COHORT_START_SECONDS + 6), (32, 1, 8 * (COHORT_START_SECONDS + 10))]
)
def test_on_cores_the_number_of_threads_that_ends_soonest_is_taken(count: int, threads: int, seconds: float) -> None:
    """On four cores, two trials take two cores each, which makes them faster; thirty-two trials take one each."""
    by_threads = {
        threads: [replace(WORKLOAD, group=members(count), measurements=[replace(STEP, seconds=step)])]
        for threads, step in {1: 1e-3, 2: 6e-4, 4: 5e-4}.items()
    }
    packing = on_cores(by_threads, MACHINE, 0, fraction=None, local=True)
    assert packing.threads == threads and packing.workloads == by_threads[threads]
    assert packing.seconds == pytest.approx(seconds, rel=TOLERANCE - 1)
    assert packing.slots[1].by_kind == (SlotResources({"CPU": threads}, 4 // threads, 2000 * MIB * threads, "cores"),)


@pytest.mark.parametrize(("mebibytes", "threads"), [(8000, 1), (400, 2), (200, 4), (10, 4)])
def test_threads_are_at_least_so_many_that_all_processes_fit(mebibytes: int, threads: int) -> None:
    """A process needs 150 MiB, and gets four fifths of its part of the machine's memory."""
    device = replace(MACHINE, bytes=mebibytes * MIB)
    assert least_threads([WORKLOAD], device, overhead=50 * MIB) == threads


def test_the_group_that_trains_longest_is_found() -> None:
    assert longest_group([WORKLOAD, replace(WORKLOAD, steps=20_000), replace(WORKLOAD, group=members(17))]) == 1


LOCAL = Slots((SlotResources({"CPU": 1.0}, 4),), local=True)
REMOTE = Slots((SlotResources({"GPU": 1.0, "CPU": 2.0}, 4),), local=False)


@pytest.mark.parametrize(("workers", "count"), [(1, 4), (2, 2), (3, 1), (4, 1)])
def test_workers_share_the_available_slots(workers: int, count: int) -> None:
    for slots in (LOCAL, REMOTE):
        shared = slots.for_workers(workers)
        assert (shared.count, shared.workers) == (count, workers)
        assert (shared.resources, shared.local) == (slots.resources, slots.local)
    assert (LOCAL.workers, LOCAL.count) == (1, 4)


@pytest.mark.parametrize("slots", [LOCAL, replace(REMOTE, local=True)])
def test_more_workers_than_this_machine_has_room_for_are_refused(slots: Slots) -> None:
    with pytest.raises(ClusterError) as refused:
        slots.for_workers(5)
    assert str(refused.value) == (
        "workers must not exceed 4, the processes that this machine has devices for, but got workers=5; choose fewer "
        "with --set workers=N, or pass the --address of a cluster"
    )


def test_workers_have_a_gpu_of_their_own_each() -> None:
    """NCCL connects no two processes on one GPU."""
    shared = replace(REMOTE, by_kind=(SlotResources({"GPU": 0.5, "CPU": 1.0}, 4),))
    assert shared.for_workers(1).workers == 1
    with pytest.raises(ClusterError, match="each of several workers must have a GPU of its own, but got workers=2"):
        shared.for_workers(2)


def test_a_cluster_may_grow_for_one_cohort_of_many_workers() -> None:
    assert (REMOTE.for_workers(8).count, REMOTE.for_workers(8).workers) == (1, 8)
