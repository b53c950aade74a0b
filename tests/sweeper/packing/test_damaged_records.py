"""Damaged JSON records count as absent, and a line says so."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sweeper.packing.cluster import DeviceInfo, DeviceKind, read_devices, write_devices
from sweeper.packing.cuts import record_cuts, recorded_cuts, recorded_threads
from sweeper.packing.profiler import GroupProfile, ProfileStore
from sweeper.plan.cohorts import Cut
from sweeper.storage.files import Files
from tests.sweeper.plan.test_cohorts import make
from trainables.training.measurement import Measurement

STACKS = (Measurement(1, 0.01, 100, 10), Measurement(4, 0.005, 300, 10))
PROFILE = GroupProfile(STACKS, 5, {1: {2: 0.9}}, {4: 0.1})
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
            lambda files: ProfileStore(files, "1").write("s", "cpu", 1, PROFILE),
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
