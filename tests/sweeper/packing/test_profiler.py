"""Profiles of groups: measured once, kept in the store, and read again.

Damaged JSON records count as absent, and a line says so.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.packing.cluster import DeviceInfo, DeviceKind, Measure, read_devices, write_devices
from sweeper.packing.cuts import record_cuts, recorded_cuts, recorded_threads
from sweeper.packing.profiler import (
    MAX_MEMBERS,
    GroupProfile,
    Profiler,
    ProfileStore,
    measured_configs,
    profiled_workloads,
    shape_hash,
    worth_measuring,
)
from sweeper.packing.workloads import Workload
from sweeper.planning.cohorts import Cut, Group, Trial
from sweeper.storage.files import Files
from tests.sweeper.packing.fake_cluster import LARGE, MIB, STACKING_PAYS, FakeMeasure
from tests.sweeper.planning.test_cohorts import make
from trainables.training.measurement import Measurement

MEMORY = {"A": 2000 * MIB}
DEVICE = DeviceInfo("device A", MEMORY["A"], 50 * MIB, LARGE)


def group(width: int, count: int = 4) -> Group:
    return [[Trial(f"{width}.{beta}", {"method": "vje", "width": width, "beta": beta}) for beta in range(count)]]


def profiler(folder: Path, measure: Measure | None, *workloads: Workload) -> Profiler:
    return Profiler(workloads, ProfileStore(Files(folder), "1"), measure)


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


PROFILE = GroupProfile(tuple(STACKING_PAYS), overhead=5, slowdowns={8: {2: 1.5}}, compiled={16: 0.0004})


def group_of(*lengths: int, **config: int) -> Group:
    """Return a group with streams of so many members, which differ in `beta`."""
    return [
        [Trial(f"{stream}.{beta}", {"method": "vje", "beta": beta, **config}) for beta in range(length)]
        for stream, length in enumerate(lengths)
    ]


def shape(*lengths: int, **config: int) -> str:
    return shape_hash(group_of(*lengths, **config))


@pytest.mark.parametrize("profile", [PROFILE, replace(PROFILE, slowdowns=None), replace(PROFILE, slowdowns={})])
def test_a_written_profile_is_read_back(tmp_path: Path, profile: GroupProfile) -> None:
    store = ProfileStore(Files(tmp_path), "1")
    store.write("shape", "device", 2, profile)
    assert store.read("shape", "device", 2) == profile


def test_a_profile_of_an_earlier_version_has_no_compiled_steps(tmp_path: Path) -> None:
    store = ProfileStore(Files(tmp_path), "1")
    store.write("shape", "device", 2, PROFILE)
    (path,) = (tmp_path / "profiles").iterdir()
    content = json.loads(path.read_text())
    del content["compiled"]
    path.write_text(json.dumps(content))
    assert store.read("shape", "device", 2) == replace(PROFILE, compiled={})


@pytest.mark.parametrize(
    ("shape", "device", "threads"), [("other", "device", 2), ("shape", "other", 2), ("shape", "device", 1)]
)
def test_a_profile_holds_for_one_shape_device_and_number_of_threads(
    tmp_path: Path, shape: str, device: str, threads: int
) -> None:
    store = ProfileStore(Files(tmp_path), "1")
    store.write("shape", "device", 2, PROFILE)
    assert store.read(shape, device, threads) is None
    assert ProfileStore(Files(tmp_path), "2").read("shape", "device", 2) is None


def test_a_profile_without_width_one_counts_as_absent(tmp_path: Path) -> None:
    store = ProfileStore(Files(tmp_path), "1")
    store.write("shape", "device", 2, replace(PROFILE, measurements=PROFILE.measurements[1:]))
    assert store.read("shape", "device", 2) is None


def test_a_shape_depends_on_what_is_not_fusible_and_on_the_streams() -> None:
    assert shape(4, width=8, lr=1) == shape(4, width=8, lr=2)
    assert len({shape(4, width=8), shape(4, width=16), shape(2, 2, width=8), shape(3, width=8)}) == 4


def test_members_beyond_the_measured_ones_change_nothing() -> None:
    assert len(measured_configs(group_of(40, 40))) == MAX_MEMBERS
    assert shape(40, 24) == shape(40, 40) == shape(40, 24, 7) != shape(40, 23)


STACKS = (Measurement(1, 0.01, 100, 10), Measurement(4, 0.005, 300, 10))
SMALL_PROFILE = GroupProfile(STACKS, 5, {1: {2: 0.9}}, {4: 0.1})
SEEN = DeviceInfo("cpu", 10**9, 10**6, DeviceKind(False, "", (2, 2)))
ODD = [
    b"", b"{", b"\xff\xfe", b"null", b"[]", b"{}", b"1", b'"x"', b"[" * 100_000, b'{"a":' * 100_000, b"NaN",
    b'{"cuts": 3, "measured": 3, "threads": 1e999}', b"[1, 2]", b"[[]]", b"[null]",
]  # fmt: skip
"""Content that is damaged, deeply nested, or of another type."""


@pytest.mark.parametrize("content", ODD, ids=lambda content: repr(content)[:20])
def test_odd_files_count_as_absent(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    files, probes = Files(tmp_path), ProfileStore(Files(tmp_path), "1")
    record_cuts(files, make(), [Cut(3, 3)] * 2, None)
    probes.write("shape", "cpu", 1, GroupProfile(STACKS, 5))
    write_devices(files, None, [SEEN])
    for path in tmp_path.rglob("*.json"):
        path.write_bytes(content)
    assert recorded_cuts(files, make()) is None and recorded_threads(files, make()) == 1
    assert probes.read("shape", "cpu", 1) is None and read_devices(files, None) is None
    messages = capsys.readouterr().err.splitlines()
    assert 2 <= len(messages) <= 4 and all(" is damaged and counts as absent: " in line for line in messages)


def _changes(plain: Any) -> list[Any]:
    """Return copies of a JSON value in each of which one value, at any depth, is replaced by another or removed."""
    changes: list[Any] = [None, "x", -1, 0.5, float("nan"), float("inf"), 10**30, True, [], {}]
    if isinstance(plain, dict):
        for key in plain:
            changes += [{**plain, key: changed} for changed in _changes(plain[key])]
            changes.append({name: value for name, value in plain.items() if name != key})
    elif isinstance(plain, list):
        for index, value in enumerate(plain):
            changes += [[*plain[:index], changed, *plain[index + 1 :]] for changed in _changes(value)]
    return changes


def _is_cut(cuts: Any) -> bool:
    return all(type(value) is int and value > 0 for cut in cuts for value in (cut.size, cut.width))


def _is_profile(profile: GroupProfile) -> bool:
    numbers = [value for stack in profile.measurements for value in asdict(stack).values()]
    numbers += [profile.overhead, *profile.compiled, *profile.compiled.values()]
    return all(0 <= value < 2**63 for value in numbers)


def _is_seen(devices: list[DeviceInfo]) -> bool:
    return all(info.kind.count > 0 and info.bytes >= 0 and isinstance(info.device, str) for info in devices)


@pytest.mark.parametrize(
    ("write", "read", "sound"),
    [
        (
            lambda files: record_cuts(files, make(), [Cut(3, 3)] * 2, None),
            lambda files: recorded_cuts(files, make()),
            _is_cut,
        ),
        (
            lambda files: ProfileStore(files, "1").write("s", "cpu", 1, SMALL_PROFILE),
            lambda files: ProfileStore(files, "1").read("s", "cpu", 1),
            _is_profile,
        ),
        (lambda files: write_devices(files, "auto", [SEEN]), lambda files: read_devices(files, "auto"), _is_seen),
    ],
)
def test_odd_values_in_any_field_are_refused_or_harmless(
    tmp_path: Path, write: Callable[[Files], None], read: Callable[[Files], Any], sound: Callable[[Any], bool]
) -> None:
    files = Files(tmp_path)
    write(files)
    (path,) = tmp_path.rglob("*.json")
    plain, refused = json.loads(path.read_text()), 0
    assert sound(read(files))
    changes = _changes(plain)
    for changed in changes:
        path.write_text(json.dumps(changed))
        record = read(files)
        assert record is None or sound(record), changed
        refused += record is None
    assert refused > len(changes) / 3
