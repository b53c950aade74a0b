from collections.abc import Sequence

from sweeper.execution.loop import SlotAssigner
from sweeper.execution.retries import RetryQueue
from sweeper.packing.placement import SlotResources, Slots
from sweeper.plan.cohorts import Cohort, Trial
from sweeper.plan.sources import CohortQueue

LARGE, SMALL = SlotResources({"GPU": 0.5}, 2), SlotResources({"GPU": 1.0}, 1)


def queue(*names: str) -> CohortQueue:
    return CohortQueue([Cohort(name, (Trial(name, {}),), 1) for name in names])


def assigner_of(source: CohortQueue, slots: Slots) -> SlotAssigner:
    return SlotAssigner(RetryQueue(source, 0), slots)


def assigned(assigner: SlotAssigner, times: int) -> Sequence[tuple[str, SlotResources] | None]:
    assignments = [assigner.next() for _ in range(times)]
    return [assignment and (assignment[0].cohort.id, assignment[1]) for assignment in assignments]


def test_a_single_kind_is_always_assigned() -> None:
    """The backend holds back cohorts that have no devices yet, and an autoscaler sees how many wait."""
    assigner = assigner_of(queue("a", "b", "c", "d"), Slots((LARGE,), local=True))
    assert assigned(assigner, 5) == [*((name, LARGE) for name in "abcd"), None]


def test_a_kind_with_a_free_share_goes_first_and_then_cohorts_wait() -> None:
    assigner = assigner_of(queue("a", "b", "c", "d"), Slots((LARGE, SMALL), local=True))
    assert assigned(assigner, 4) == [("a", LARGE), ("b", SMALL), ("c", LARGE), None]
    assigner.release("b")
    assert assigned(assigner, 2) == [("d", SMALL), None]


def test_a_cohort_waits_for_a_kind_with_room_while_others_go_ahead() -> None:
    assigner = assigner_of(
        queue("a", "b", "c"), Slots((SMALL, SMALL), local=True, fitting_kinds={"a": (1,), "b": (1,)})
    )
    assert assigned(assigner, 3) == [("a", SMALL), None, ("c", SMALL)]
    assigner.release("a")
    assert assigned(assigner, 1) == [("b", SMALL)]


def test_if_nodes_can_be_added_the_least_busy_kind_is_assigned() -> None:
    assigner = assigner_of(queue(*"abcdef"), Slots((LARGE, SMALL), local=False))
    assignments = assigned(assigner, 6)
    assert [assignment[1] for assignment in assignments if assignment].count(LARGE) == 4 and None not in assignments


def test_no_more_cohorts_wait_than_is_needed() -> None:
    names = [f"c{number}" for number in range(100)]
    source = queue(*names)
    assigner = assigner_of(source, Slots((SMALL, SMALL), local=True, fitting_kinds=dict.fromkeys(names, (1,))))
    assert assigned(assigner, 200)[1:] == [None] * 199
    assert not source.exhausted
