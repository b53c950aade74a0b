from dataclasses import replace
from typing import Any

import pytest

from sweeper.packing.profiling.devices import Devices, cpu_devices
from tests.sweeper.packing.measured import PLENTY


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
