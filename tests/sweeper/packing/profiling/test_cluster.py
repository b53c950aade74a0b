from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.errors import ClusterError
from sweeper.packing.profiling.cluster import (
    Cluster,
    DeviceInfo,
    ProbeRequest,
    is_local,
    profile_devices,
    read_devices,
    write_devices,
)
from sweeper.storage.files import Files
from tests.sweeper.packing.fake_cluster import CORES, LARGE, MANY, FakeMeasure
from tests.sweeper.packing.measured import MIB

DEVICES = [DeviceInfo("device A", 2000 * MIB, 50 * MIB, LARGE), DeviceInfo("device B", 900 * MIB, 50 * MIB, MANY)]


@pytest.mark.parametrize(
    ("address", "local"), [(None, True), ("local", True), ("auto", False), ("ray://head:10001", False)]
)
def test_a_cluster_without_an_address_is_local(address: str | None, local: bool) -> None:
    assert is_local(address) is Cluster(address, (CORES,), FakeMeasure({})).local is local


def test_one_device_of_each_kind_is_inspected_and_none_is_measured() -> None:
    measure = FakeMeasure({"A": 2000 * MIB, "B": 900 * MIB})
    assert profile_devices(measure.cluster(LARGE, MANY)) == DEVICES
    assert measure.requests == [ProbeRequest(LARGE), ProbeRequest(MANY)]


def test_a_kind_on_which_no_worker_starts_is_left_out() -> None:
    measure = FakeMeasure({"A": 2000 * MIB, "B": 900 * MIB})
    cluster = replace(measure.cluster(LARGE, MANY), measure=lambda requests: [None, *measure(requests)[1:]])
    assert profile_devices(cluster) == DEVICES[1:]
    with pytest.raises(ClusterError, match="report its device, but none did"):
        profile_devices(replace(cluster, measure=lambda requests: [None for _ in requests]))


def test_devices_are_kept_by_address(tmp_path: Path) -> None:
    files = Files(tmp_path)
    write_devices(files, "auto", DEVICES)
    write_devices(files, None, DEVICES[:1])
    assert read_devices(files, "auto") == DEVICES and read_devices(files, "local") == DEVICES[:1]
    assert read_devices(files, "ray://head:10001") is None


def test_devices_that_an_earlier_version_wrote_are_read(tmp_path: Path) -> None:
    files = Files(tmp_path)
    write_devices(files, None, [replace(DEVICES[0], kind=replace(LARGE, on_demand=True))])
    (path,) = (tmp_path / "probes/devices").iterdir()
    path.write_text(path.read_text().replace("on_demand", "comes"))
    assert read_devices(files, None) == [replace(DEVICES[0], kind=replace(LARGE, on_demand=True))]
