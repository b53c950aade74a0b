from collections.abc import Sequence
from dataclasses import replace

import pytest

from sweeper.errors import ClusterError
from sweeper.execution.retries import RetryQueue
from sweeper.execution.slot_assignment import SlotAssigner
from sweeper.packing.slots import SlotResources, Slots
from sweeper.plan.cohort_source import CohortQueue
from sweeper.plan.cohorts import Cohort
from sweeper.plan.trials import Trial

HERE = Slots((SlotResources({"CPU": 1.0}, 4),), here=True)
AWAY = Slots((SlotResources({"GPU": 1.0, "CPU": 2.0}, 4),), here=False, grows=True)


@pytest.mark.parametrize(("workers", "count"), [(1, 4), (2, 2), (3, 1), (4, 1)])
def test_workers_share_the_places_there_are(workers: int, count: int) -> None:
    for slots in (HERE, AWAY):
        shared = slots.for_workers(workers)
        assert (shared.count, shared.workers) == (count, workers)
        assert (shared.resources, shared.here) == (slots.resources, slots.here)
    assert (HERE.workers, HERE.count) == (1, 4)


@pytest.mark.parametrize("slots", [HERE, replace(AWAY, grows=False)])
def test_more_workers_than_this_machine_has_room_for_are_refused(slots: Slots) -> None:
    with pytest.raises(ClusterError) as refused:
        slots.for_workers(5)
    assert str(refused.value) == (
        "workers must not exceed 4, the processes that this machine has devices for, but got workers=5; choose fewer "
        "with --set workers=N, or pass the --address of a cluster"
    )


def test_workers_have_a_gpu_of_their_own_each() -> None:
    """NCCL connects no two processes on one GPU."""
    shared = replace(AWAY, shares=(SlotResources({"GPU": 0.5, "CPU": 1.0}, 4),))
    assert shared.for_workers(1).workers == 1
    with pytest.raises(ClusterError, match="each of several workers must have a GPU of its own, but got workers=2"):
        shared.for_workers(2)


def test_a_cluster_may_grow_for_one_cohort_of_many_workers() -> None:
    assert (AWAY.for_workers(8).count, AWAY.for_workers(8).workers) == (1, 8)


# Which kind a cohort is given.

LARGE, SMALL = SlotResources({"GPU": 0.5}, 2), SlotResources({"GPU": 1.0}, 1)


def queue(*names: str) -> CohortQueue:
    return CohortQueue([Cohort(name, (Trial(name, {}),), 1) for name in names])


def assigner_of(source: CohortQueue, slots: Slots) -> SlotAssigner:
    return SlotAssigner(RetryQueue(source, 0), slots)


def assigned(assigner: SlotAssigner, *holders: str) -> Sequence[tuple[str, SlotResources] | None]:
    assignments = [assigner.next(holder) for holder in holders]
    return [assignment and (assignment[0].cohort.id, assignment[1]) for assignment in assignments]


def test_where_there_is_one_kind_it_is_given_always() -> None:
    """Tune holds back cohorts that have no resources yet, and an autoscaler sees how many wait."""
    assigner = assigner_of(queue("a", "b", "c", "d"), Slots((LARGE,), here=False))
    assert assigned(assigner, "1", "2", "3", "4", "5") == [*((name, LARGE) for name in "abcd"), None]


def test_a_kind_with_a_free_share_goes_first_and_then_cohorts_wait() -> None:
    assigner = assigner_of(queue("a", "b", "c", "d"), Slots((LARGE, SMALL), here=False))
    assert assigned(assigner, "1", "2", "3", "4") == [("a", LARGE), ("b", SMALL), ("c", LARGE), None]
    assigner.left("2")
    assert assigned(assigner, "5", "6") == [("d", SMALL), None]


def test_a_cohort_waits_for_a_kind_with_room_while_others_go_ahead() -> None:
    assigner = assigner_of(queue("a", "b", "c"), Slots((SMALL, SMALL), here=False, only={"a": (1,), "b": (1,)}))
    assert assigned(assigner, "1", "2", "3") == [("a", SMALL), None, ("c", SMALL)]
    assigner.left("1")
    assert assigned(assigner, "4") == [("b", SMALL)]


def test_where_nodes_may_come_the_least_busy_kind_is_given() -> None:
    assigner = assigner_of(queue(*"abcdef"), Slots((LARGE, SMALL), here=False, grows=True))
    given = assigned(assigner, *"123456")
    assert [assignment[1] for assignment in given if assignment].count(LARGE) == 4 and None not in given


def test_no_more_cohorts_wait_than_is_needed() -> None:
    names = [f"c{number}" for number in range(100)]
    source = queue(*names)
    assigner = assigner_of(source, Slots((SMALL, SMALL), here=False, only=dict.fromkeys(names, (1,))))
    assert assigned(assigner, *map(str, range(200)))[1:] == [None] * 199
    assert not source.ended
