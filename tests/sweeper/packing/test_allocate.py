"""Grids on made-up devices, with injected measurements; where cohorts run: slots of whole and shared devices."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.commands.arguments import parse
from sweeper.definition import Grid, Metric, Sweep
from sweeper.definition.figures import Heatmap
from sweeper.errors import ClusterError, SpecError
from sweeper.packing.allocate import Allocator, least_threads, longest_group, on_cores, on_gpus
from sweeper.packing.cluster import (
    DeviceInfo,
    DeviceKind,
    DevicePart,
    MeasurementRequest,
    SlotResources,
    Slots,
    profile_devices,
    requested_part,
    whole_device_slots,
)
from sweeper.packing.cuts import record_cuts, recorded_cuts
from sweeper.packing.packer import TOLERANCE, Packing
from sweeper.packing.profiler import GroupProfile
from sweeper.packing.workloads import COHORT_START_SECONDS, Workload
from sweeper.planning import cohorts
from sweeper.planning.cohorts import Cut, Trial
from sweeper.planning.plan import Plan
from sweeper.request import Request
from sweeper.storage.files import Files
from tests.sweeper.packing.fake_cluster import CORES, LARGE, MANY, MIB, FakeMeasure, measurement, members
from trainables.training.measurement import DeviceMeasurement

SWEEP = Sweep("about it", {"paper": Grid({}, {})}, (Heatmap(Metric("auroc", "maximize"), "beta", "nu"),))


def grid(count: int = 32, shapes: int = 1, steps: int = 10_000, first: int = 0, **config: int) -> Plan:
    trials = tuple(
        Trial(f"{shape}.{beta}", {"method": "vje", "width": shape, "beta": beta, **config})
        for shape in range(shapes)
        for beta in range(first, first + count)
    )
    groups = cohorts.group(trials, lambda trial: trial.config["width"], lambda trial: 0)
    return Plan("grid", "paper", SWEEP, trials, groups, [steps] * len(groups), {})


def allocated(
    store: Path, measure: FakeMeasure, plan: Plan, *arguments: str, on: tuple[DeviceKind, ...] = (CORES,)
) -> Packing:
    cluster = measure.cluster(*on)
    request, devices = parse(["grid", *arguments]), profile_devices(cluster)
    return Allocator(request, plan, Files(store), devices, cluster.local, cluster.measure).begin_grids()


CPU = {"": 16_000 * MIB}
GPUS = {"A": 2000 * MIB, "B": 900 * MIB}


def test_each_core_has_a_process_with_its_part_of_the_memory(tmp_path: Path) -> None:
    measure = FakeMeasure(CPU)
    packing = allocated(tmp_path, measure, grid())
    (share,) = packing.slots[1].by_kind
    assert share.resources == {"CPU": 1.0} and (share.count, share.memory) == (4, 4000 * MIB)
    assert packing.cuts == (Cut(8, 8),) and packing.time_known and packing.slots[1].local
    assert {request.threads for request in measure.timed} == {1}


@pytest.mark.parametrize(("steps", "measured"), [(7, 0), (8, 1)])
def test_a_sweep_on_cores_that_is_smaller_than_its_measurement_is_not_measured(
    tmp_path: Path, steps: int, measured: int
) -> None:
    """A measurement of 32 trials makes 4 steps with stacks of 1, 2, 4, ..., 32, which are 252 steps of a member.

    32 trials of 8 steps make 256.
    """
    measure = FakeMeasure(CPU)
    packing = allocated(tmp_path, measure, grid(steps=steps))
    assert len(measure.timed) == measured
    assert packing.cuts[0].size >= 8, "its trials share cohorts all the same"


def test_a_small_sweep_on_gpus_is_measured(tmp_path: Path) -> None:
    """A cohort's need of GPU memory is never guessed."""
    measure = FakeMeasure(GPUS)
    allocated(tmp_path, measure, grid(steps=1), on=(LARGE,))
    assert measure.timed


def test_a_known_shape_is_not_measured_again_but_another_is(tmp_path: Path) -> None:
    first, second = FakeMeasure(CPU), FakeMeasure(CPU)
    before = allocated(tmp_path, first, grid())
    after = allocated(tmp_path, second, grid(first=100))  # other values of what may differ in a stack
    assert len(first.timed) == 1 and second.timed == [] and after.cuts == before.cuts
    allocated(tmp_path, second, grid(shapes=2))
    assert len(second.timed) == 1 and second.timed[0].configs[0]["width"] == 1
    assert allocated(tmp_path, third := FakeMeasure(CPU), grid(12)).time_known and len(third.timed) == 1
    for path in (tmp_path / "profiles").glob("*.json"):
        path.write_text("{")
    assert allocated(tmp_path, fourth := FakeMeasure(CPU), grid(first=200)).time_known and len(fourth.timed) == 1


def test_other_memory_and_other_code_are_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = FakeMeasure(CPU)
    allocated(tmp_path, measure, grid())
    monkeypatch.setattr("sweeper.packing.allocate.code_version", lambda: "another")
    allocated(tmp_path, measure, grid(first=100))
    assert len(measure.timed) == 2


def test_many_groups_get_less_time_each(tmp_path: Path) -> None:
    measure = FakeMeasure(CPU)
    allocated(tmp_path, measure, grid(2, shapes=2))
    assert [request.seconds for request in measure.timed] == [3.0] * 2
    allocated(tmp_path / "many", measure, grid(2, shapes=24))
    assert sum(request.seconds for request in measure.timed[2:]) == pytest.approx(12.0)


def test_a_started_sweep_keeps_its_cohorts(tmp_path: Path) -> None:
    plan, measure = grid(), FakeMeasure(CPU)
    first = allocated(tmp_path, measure, plan)
    (file,) = (tmp_path / "cuts/sweep=grid").iterdir()
    assert [stack["width"] for stack in json.loads(file.read_text())["measured"][0]] == [1, 2, 4, 8, 16, 32]
    slower = FakeMeasure(CPU, seconds=1e-6)
    assert allocated(tmp_path, slower, plan).cuts == first.cuts and slower.timed == []
    assert allocated(tmp_path, slower, plan, "--cohort", "5").cuts == (Cut(5, 5),)
    assert recorded_cuts(Files(tmp_path), plan) == [Cut(5, 5)]


def test_fewer_trials_than_cores_have_several_threads_each(tmp_path: Path) -> None:
    measure = FakeMeasure(CPU)
    (share,) = allocated(tmp_path, measure, grid(2)).slots[1].by_kind
    assert share.resources == {"CPU": 2.0} and (share.count, share.memory) == (2, 8000 * MIB)
    assert [request.threads for request in measure.timed] == [1, 2]
    for path in (tmp_path / "profiles").glob("*.json"):
        path.unlink()
    again = allocated(tmp_path, measure, grid(2)).slots[1]
    assert again.by_kind == (share,) and len(measure.timed) == 2  # as begun, for the last bits may depend on it
    assert allocated(tmp_path, measure, grid(2), "--cohort", "1").slots[1].resources == {"CPU": 1.0}


def test_where_memory_is_short_fewer_processes_run(tmp_path: Path) -> None:
    """A member needs 150 MiB with its process: two fit into 320 MiB, which are four fifths of 400 MiB."""
    (share,) = allocated(tmp_path, FakeMeasure({"": 400 * MIB}), grid()).slots[1].by_kind
    assert share.resources == {"CPU": 2.0} and share.count == 2


@pytest.mark.parametrize(("arguments", "count"), [(["--gpu-fraction", "0.5"], 8), (["--gpu-fraction", "0.25"], 16)])
def test_a_requested_fraction_is_used(arguments: list[str], count: int, tmp_path: Path) -> None:
    (share,) = allocated(tmp_path, FakeMeasure(CPU), grid(), *arguments).slots[1].by_kind
    assert share.resources == {"CPU": float(arguments[1])}
    assert (share.count, share.memory) == (count, 16_000 * MIB // count)


def test_a_gpu_is_shared_where_that_is_measured_to_gain(tmp_path: Path) -> None:
    measure = FakeMeasure(GPUS)
    packing = allocated(tmp_path, measure, grid(), on=(LARGE,))
    (share,) = packing.slots[1].by_kind
    sharing = round(1 / share.resources["GPU"])
    assert sharing in (4, 8) and share.count == 2 * sharing and share.memory == 2000 * MIB // sharing - 50 * MIB
    assert share.resources["CPU"] * sharing <= 8 and set(share.resources) == {"GPU", "CPU"}
    (shared,) = measure.shared
    assert shared.processes == 8 and shared.widths == [1, 4, 16]
    again = FakeMeasure(GPUS)
    assert allocated(tmp_path, again, grid(first=100), on=(LARGE,)).slots == packing.slots
    assert again.timed == again.shared == []


def test_a_cohort_may_take_the_memory_that_is_requested(tmp_path: Path) -> None:
    """Of 2,000 MiB 600 MiB: three share a GPU, and 200 MiB are nobody's. Four fifths of 600 MiB hold stacks up to four,
    with 50 MiB of its process."""
    measure = FakeMeasure(GPUS)
    packing = allocated(tmp_path, measure, grid(), "--gpu-memory", "600MiB", on=(LARGE,))
    assert packing.slots[1].by_kind == (SlotResources({"GPU": 0.3, "CPU": 2.0}, 6, 550 * MIB, "device A"),)
    assert 2 < packing.cuts[0].width <= 4 and measure.shared == [], "how many share it is not left to a measurement"
    (twice,) = allocated(tmp_path / "twice", measure, grid(128), "--gpu-memory", "1250MiB", on=(LARGE,)).cuts
    assert twice.width == 8


def test_a_kind_of_gpu_without_as_much_memory_is_not_used(tmp_path: Path) -> None:
    packing = allocated(tmp_path, FakeMeasure(GPUS), grid(), "--gpu-memory", "1GB", on=(LARGE, MANY))
    assert packing.slots_per_device == (2, 0) and [slot.device for slot in packing.slots[1].by_kind] == ["device A"]
    slots = whole_device_slots([GPU_A, GPU_B], Request("grid", gpu_memory=10**9), local=True)
    assert [(slot.device, slot.count) for slot in slots.by_kind] == [("A", 4), ("B", 8)]


@given(st.integers(10**6, 10**11), st.integers(10**6, 10**11))
def test_requested_memory_never_oversubscribes_a_gpu(memory: int, whole: int) -> None:
    part = requested_part(Request("grid", gpu_memory=memory), replace(GPU_A, bytes=whole))
    assert part is not None and part.count * memory <= whole
    assert round(part.count * part.fraction * 10_000) <= 10_000 and part.fraction * whole >= memory * (1 - 1e-9)
    assert part.count >= int(0.9 * whole / memory) or memory < whole / 1000  # Ray's unit is a ten-thousandth


@pytest.mark.parametrize(
    ("memory", "on", "law"),
    [
        ("3GB", (LARGE, MANY), "must not exceed the memory of a GPU, 2.097GB of device A, but got --gpu-memory 3GB"),
        ("1GB", (CORES,), "--gpu-memory needs GPUs, but there are none; leave out --gpu-memory 1GB"),
    ],
)
def test_memory_that_no_device_has_is_refused(
    tmp_path: Path, memory: str, on: tuple[DeviceKind, ...], law: str
) -> None:
    with pytest.raises(SpecError, match=law):
        allocated(tmp_path, FakeMeasure(CPU | GPUS), grid(), "--gpu-memory", memory, on=on)


def test_if_nodes_can_be_added_there_are_cohorts_for_them(tmp_path: Path) -> None:
    """Cohorts are cut for the one GPU that is there, or for the eight that may come."""
    one_gpu = replace(LARGE, nodes=(1,))
    few, many = (
        allocated(tmp_path / name, FakeMeasure({"A": 20_000 * MIB}), grid(), "--gpu-fraction", "1", on=(kind,))
        for name, kind in (("few", one_gpu), ("many", replace(one_gpu, on_demand=True)))
    )
    assert few.cuts == (Cut(32, 32),) and many.cuts[0].size == 4
    assert few.slots[1].count == many.slots[1].count == 1


def test_with_a_requested_cut_the_share_is_still_chosen(tmp_path: Path) -> None:
    """A stack of eight needs 850 of 1,600 MiB, so a second one has no room."""
    measure = FakeMeasure(GPUS)
    packing = allocated(tmp_path, measure, grid(), "--cohort", "8", on=(LARGE,))
    assert packing.cuts == (Cut(8, 8),) and packing.slots[1].resources["GPU"] == 1.0
    packing = allocated(tmp_path, measure, grid(), "--cohort", "4", "--stack", "1", on=(LARGE,))
    assert packing.slots[1].resources["GPU"] < 1.0
    measure = FakeMeasure(GPUS)
    allocated(tmp_path / "fixed", measure, grid(), "--cohort", "8", "--gpu-fraction", "0.5", on=(LARGE,))
    assert measure.timed == measure.shared == []


def test_several_kinds_are_each_measured_and_requested_by_name(tmp_path: Path) -> None:
    measure = FakeMeasure(GPUS)
    packing = allocated(tmp_path, measure, grid(64), on=(LARGE, MANY))
    large, small = packing.slots[1].by_kind
    assert {request.kind for request in measure.timed} == {request.kind for request in measure.shared} == {LARGE, MANY}
    assert large.resources["accelerator_type:A"] == small.resources["accelerator_type:B"] == 0.001
    assert packing.devices[1].speed == pytest.approx(0.5 * 0.5**0.5)  # half the cores, too
    assert [large.device, small.device] == ["device A", "device B"]


def test_a_cohort_goes_only_where_it_has_room(tmp_path: Path) -> None:
    """A stack of eight needs 850 MiB, but a GPU of the second kind has room for 720 MiB; stacks of two fit."""
    plan = grid(48, shapes=2)
    record_cuts(Files(tmp_path), plan, [Cut(8, 8), Cut(2, 2)], None)
    packing = allocated(tmp_path, FakeMeasure(GPUS), plan, on=(LARGE, MANY))
    assert len(packing.slots[1].by_kind) == 2
    assert packing.slots[1].fitting_kinds == {trial.id: (0,) for trial in plan.trials if trial.config["width"] == 0}


def test_trials_of_several_workers_have_whole_devices_and_are_not_measured(tmp_path: Path) -> None:
    measure = FakeMeasure(GPUS)
    packing = allocated(tmp_path, measure, grid(6, workers=2), on=(LARGE,))
    assert packing.cuts == (Cut(6, 1),) and not packing.workloads and not packing.time_known
    assert packing.slots[2].resources == {"GPU": 1.0, "CPU": 8.0} and packing.slots[2].count == 1
    assert measure.timed == []
    with pytest.raises(ClusterError, match="a GPU of its own"):
        allocated(tmp_path, measure, grid(6, workers=2), "--gpu-fraction", "0.5", on=(LARGE,))


def test_trials_that_cannot_be_measured_train_alone_without_an_estimate(tmp_path: Path) -> None:
    measure = FakeMeasure(CPU)
    cluster = measure.cluster(CORES)

    def failing(requests: Sequence[MeasurementRequest]) -> list[DeviceMeasurement | None]:
        probes = zip(requests, measure(requests), strict=True)
        return [None if request.configs else probe for request, probe in probes]

    devices = profile_devices(cluster)
    packing = Allocator(parse(["grid"]), grid(), Files(tmp_path), devices, True, failing).begin_grids()
    assert packing.cuts == (Cut(1, 1),) and not packing.time_known
    assert not list((tmp_path / "profiles").glob("*.json"))


@pytest.mark.parametrize(("gpus", "size"), [(2, 6), (4, 3), (8, 2), (12, 1), (200, 1)])
def test_a_group_of_workers_is_started_as_rarely_as_possible(tmp_path: Path, gpus: int, size: int) -> None:
    """Six trials of two workers each: one cohort for each slot, whose members are stepped in turn."""
    kind = replace(LARGE, nodes=(gpus,))
    assert allocated(tmp_path, FakeMeasure(GPUS), grid(6, workers=2), on=(kind,)).cuts == (Cut(size, 1),)


def test_groups_of_one_worker_and_of_several_are_each_cut_in_their_own_way(tmp_path: Path) -> None:
    several, single = grid(6, workers=2), grid(32, first=100)
    plan = replace(
        several,
        grid_trials=several.trials + single.trials,
        groups=[*several.groups, *single.groups],
        steps=[*several.steps, *single.steps],
    )
    packing = allocated(tmp_path, FakeMeasure(GPUS), plan, on=(LARGE,))
    assert packing.cuts == (Cut(6, 1), *allocated(tmp_path, FakeMeasure(GPUS), single, on=(LARGE,)).cuts)
    assert set(packing.slots) == {1, 2} and not packing.time_known


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
    request = Request("grid", gpu_fraction=fraction)
    assert list(whole_device_slots(devices, request, local=True).by_kind) == expected


def test_a_gpu_with_fewer_cores_than_slots_gives_each_a_part_of_a_core() -> None:
    device = replace(GPU_A, kind=replace(LARGE, cores=2.0))
    assert whole_device_slots([device], Request("grid", gpu_fraction=0.3), local=True).resources == {
        "GPU": 0.3,
        "CPU": 0.6666,
    }


def test_the_speed_of_a_kind_is_relative_to_the_first() -> None:
    profiles = [[profile(1e-3), profile(3e-3)], [profile(2e-3), profile(6e-3)]]
    packing = on_gpus([WORKLOAD, WORKLOAD], [GPU_A, GPU_B], profiles, [None, None], local=True)
    assert [kind.speed for kind in packing.devices] == [1.0, pytest.approx(0.5)]


def test_a_kind_that_was_not_measured_is_taken_to_be_as_fast_as_the_first() -> None:
    profiles = [[profile(1e-3)], [GroupProfile((), 0)]]
    assert on_gpus([WORKLOAD], [GPU_A, GPU_B], profiles, [None, None], local=True).devices[1].speed == 1.0


def test_slots_are_the_parts_of_a_gpu_that_the_packing_chose() -> None:
    packing = on_gpus([WORKLOAD], [GPU_A], [[profile(1e-3, n2=1.0)]], [None], local=False)
    assert packing.slots_per_device == (2,) and not packing.slots[1].local
    assert packing.slots[1].by_kind == (SlotResources({"GPU": 0.5, "CPU": 4.0}, 4, 1000 * MIB, "A"),)


def test_a_cohort_that_fits_no_kind_goes_to_the_one_with_most_room() -> None:
    large = replace(WORKLOAD, measurements=[replace(STEP, bytes=9000 * MIB)])
    whole = [DevicePart(1.0, 1, device.bytes) for device in (GPU_A, GPU_B)]
    packing = on_gpus([large], [GPU_A, GPU_B], [[profile(1e-3)], [profile(1e-3)]], whole, local=True)
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
