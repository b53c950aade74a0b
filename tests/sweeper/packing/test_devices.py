from dataclasses import replace

import pytest

from sweeper.packing.devices import Devices, cpus
from sweeper.packing.packer import WORTH, pack, pack_cores
from sweeper.packing.workloads import Workload
from sweeper.plan.cohorts import Group
from tests.sweeper.packing.measured import LONG, MIB, PLENTY, Measured, members


def test_a_ratio_holds_for_narrower_stacks_and_not_for_wider_ones() -> None:
    kind = Devices(1, PLENTY, overlap={4: {2: 1.2, 4: 1.5}, 16: {2: 1.9}})
    assert [kind.stretch(1, 2), kind.stretch(4, 2), kind.stretch(5, 2), kind.stretch(17, 2)] == [1.2, 1.2, 1.9, 2.0]
    assert [kind.stretch(2, n) for n in (1, 3, 4, 8)] == pytest.approx([1.0, 1.8, 1.5, 3.0])


@pytest.mark.parametrize("wrong", [{"count": 0}, {"bytes": 0}, {"cores": 0}, {"speed": 0.0}, {"node_devices": 0}])
def test_devices_that_are_none_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))} > 0` must hold of devices"):
        replace(Devices(1, 1), **wrong)  # type: ignore[arg-type]


def test_a_ratio_of_sharing_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="`overlap >= 1` must hold"):
        Devices(1, 1, overlap={1: {2: 0.5}})


@pytest.mark.parametrize(("cores", "threads", "count"), [(8, 1, 8), (8, 3, 2), (8, 8, 1), (1, 1, 1)])
def test_no_more_threads_than_cores(cores: int, threads: int, count: int) -> None:
    kind = cpus([cores], 1000, threads)
    assert kind.count == count and kind.count * threads <= cores and kind.bytes * kind.count <= 1000
    assert pack([LONG], [kind]).shares == (1,)
    with pytest.raises(ValueError, match=f"threads={cores + 1} of {cores} cores"):
        cpus([cores], 1000, cores + 1)


def test_threads_are_as_many_as_end_soonest() -> None:
    """On four cores, two members take two cores each, which makes them faster; thirty-two members take one each."""
    by_threads = {1: 1.0, 2: 0.6, 4: 0.5}

    def workloads(group: Group) -> dict[int, list[Workload]]:
        return {threads: [Workload(group, [Measured(1, seconds)], 100)] for threads, seconds in by_threads.items()}

    threads, packed = pack_cores(workloads(members(2)), [4], PLENTY)
    assert threads == 2 and packed.seconds == pytest.approx(0.4 + 60)
    threads, packed = pack_cores(workloads(members(32)), [4], PLENTY)
    assert threads == 1 and packed.seconds == pytest.approx(8 * (0.4 + 100), rel=WORTH - 1)


def test_hours_and_cost_are_those_of_the_nodes_that_are_used() -> None:
    used, idle = Devices(6, PLENTY, node_price=10.0, node_devices=4), Devices(1, MIB, node_price=99.0)
    packed = pack([LONG], [used, idle])
    assert packed.hours == pytest.approx(6 * 100.4 / 3600) and packed.shares == (1, 0)
    assert packed.cost([used, idle]) == pytest.approx(2 * 10.0 * packed.hours)
    assert packed.cost([replace(used, node_price=None), idle]) is None
    assert packed.cost([used, replace(idle, node_price=None)]) is not None
