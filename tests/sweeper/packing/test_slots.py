from dataclasses import replace

import pytest

from sweeper.errors import ClusterError
from sweeper.packing.slots import SlotResources, Slots

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
