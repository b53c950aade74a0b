import json
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.packing.profiling.profile_store import (
    MAX_MEMBERS,
    GroupProfile,
    ProfileStore,
    measured_configs,
    shape_hash,
)
from sweeper.plan.cohorts import Group
from sweeper.plan.trials import Trial
from sweeper.storage.files import Files
from tests.sweeper.packing.measured import STACKING_PAYS

PROFILE = GroupProfile(tuple(STACKING_PAYS), overhead=5, slowdowns={8: {2: 1.5}}, compiled={16: 0.0004})


def group(*lengths: int, **config: int) -> Group:
    """Return a group with streams of so many members, which differ in `beta`."""
    return [
        [Trial(f"{stream}.{beta}", {"method": "vje", "beta": beta, **config}) for beta in range(length)]
        for stream, length in enumerate(lengths)
    ]


def shape(*lengths: int, **config: int) -> str:
    return shape_hash(group(*lengths, **config), lambda method: frozenset({"beta", "lr"}))


@pytest.mark.parametrize("profile", [PROFILE, replace(PROFILE, slowdowns=None), replace(PROFILE, slowdowns={})])
def test_a_written_profile_is_read_back(tmp_path: Path, profile: GroupProfile) -> None:
    store = ProfileStore(Files(tmp_path), "1")
    store.write("shape", "device", 2, profile)
    assert store.read("shape", "device", 2) == profile


def test_a_profile_of_an_earlier_version_has_no_compiled_steps(tmp_path: Path) -> None:
    store = ProfileStore(Files(tmp_path), "1")
    store.write("shape", "device", 2, PROFILE)
    (path,) = (tmp_path / "probes").iterdir()
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
    assert len(measured_configs(group(40, 40))) == MAX_MEMBERS
    assert shape(40, 24) == shape(40, 40) == shape(40, 24, 7) != shape(40, 23)
