from pathlib import Path

import pytest

from sweeper.packing.profiling.cluster import DeviceInfo, Measure
from sweeper.packing.profiling.profile_store import GroupProfile, ProfileStore
from sweeper.packing.profiling.profiler import Profiler, profiled_workloads, worth_measuring
from sweeper.packing.profiling.workloads import Workload
from sweeper.plan.cohorts import Cut, Group
from sweeper.plan.trials import Trial
from sweeper.storage.files import Files
from tests.sweeper.packing.fake_cluster import LARGE, FakeMeasure
from tests.sweeper.packing.measured import MIB

MEMORY = {"A": 2000 * MIB}
DEVICE = DeviceInfo("device A", MEMORY["A"], 50 * MIB, LARGE)


def group(width: int, count: int = 4) -> Group:
    return [[Trial(f"{width}.{beta}", {"method": "vje", "width": width, "beta": beta}) for beta in range(count)]]


def profiler(folder: Path, measure: Measure | None, *workloads: Workload) -> Profiler:
    return Profiler(workloads, lambda method: frozenset({"beta"}), ProfileStore(Files(folder), "1"), measure)


def test_a_missing_profile_is_measured_once(tmp_path: Path) -> None:
    measure = FakeMeasure(MEMORY)
    known, new = Workload(group(1), (), 10), Workload(group(2), (), 10)
    before = profiler(tmp_path, measure, known).profiles(DEVICE, 4)
    profiles = profiler(tmp_path, measure, known, new).profiles(DEVICE, 4)
    assert profiles and profiles[:1] == before and len(measure.requests) == 2
    assert [profile.overhead for profile in profiles] == [50 * MIB] * 2
    (request,) = measure.requests[1:]
    assert (request.kind, request.threads, len(request.configs)) == (LARGE, 4, 4)
    assert request.configs[0]["width"] == 2


def test_trials_without_a_step_are_not_measured(tmp_path: Path) -> None:
    measure = FakeMeasure(MEMORY)
    assert profiler(tmp_path, measure, Workload(group(1), (), 0)).profiles(DEVICE, 1) == [GroupProfile((), 50 * MIB)]
    assert measure.requests == []


def test_a_group_that_cannot_be_measured_has_an_empty_profile_and_is_tried_again(tmp_path: Path) -> None:
    workload = Workload(group(1), (), 10)
    failing = profiler(tmp_path, lambda requests: [None for _ in requests], workload)
    profiles = failing.profiles(DEVICE, 1)
    assert profiles == [GroupProfile((), DEVICE.overhead)]
    assert failing.with_slowdowns(DEVICE, profiles, 0) == profiles
    profiles = profiler(tmp_path, FakeMeasure(MEMORY), workload).profiles(DEVICE, 1)
    assert profiles and profiles[0].measurements


@pytest.mark.parametrize(("settled", "expected"), [(None, None), (Cut(2, 2), [GroupProfile((), DEVICE.overhead)])])
def test_without_a_measurement_only_a_fixed_cut_works(
    tmp_path: Path, settled: Cut | None, expected: list[GroupProfile] | None
) -> None:
    assert profiler(tmp_path, None, Workload(group(1), (), 10, settled)).profiles(DEVICE, 1) == expected


def test_slowdowns_are_measured_once_and_for_as_many_processes_as_fit(tmp_path: Path) -> None:
    """A process needs 150 MiB: eight of them fit into 1,600 MiB, but only two into 400 MiB."""
    for bytes_, processes in ((2000 * MIB, 8), (500 * MIB, 2)):
        measure, device = FakeMeasure({"A": bytes_}), DeviceInfo(f"{bytes_}", bytes_, 50 * MIB, LARGE)
        measured = profiler(tmp_path, measure, Workload(group(1), (), 10))
        for _ in range(2):
            profiles = measured.profiles(device, 8)
            assert profiles is not None
            (profile,) = measured.with_slowdowns(device, profiles, 0)
            assert profile.slowdowns and profile.slowdowns[64][2] == 1.0
        (request,) = measure.shared
        assert (request.processes, request.threads) == (processes, 8)


def test_a_device_without_room_for_two_processes_is_not_measured(tmp_path: Path) -> None:
    measure, device = FakeMeasure({"A": 200 * MIB}), DeviceInfo("small", 200 * MIB, 50 * MIB, LARGE)
    measured = profiler(tmp_path, measure, Workload(group(1), (), 10))
    (profile,) = measured.with_slowdowns(device, measured.profiles(device, 8) or [], 0)
    assert profile.slowdowns == {} and measure.shared == []


@pytest.mark.parametrize(("members", "steps", "worth"), [(1, 4, False), (1, 5, True), (4, 7, False), (4, 8, True)])
def test_a_measurement_is_worth_it_if_training_makes_more_steps(members: int, steps: int, worth: bool) -> None:
    """Of four members it makes 4 steps with stacks of 1, 2 and 4, which are 28 steps of a member."""
    assert worth_measuring(group(1, members), steps) is worth


def test_workloads_get_the_measurements_of_their_profiles(tmp_path: Path) -> None:
    workloads = [Workload(group(1), (), 10), Workload(group(2), (), 0)]
    profiles = profiler(tmp_path, FakeMeasure(MEMORY), *workloads).profiles(DEVICE, 1)
    assert profiles is not None
    first, second = profiled_workloads(workloads, profiles)
    assert first.measurements == profiles[0].measurements and second.measurements == ()
