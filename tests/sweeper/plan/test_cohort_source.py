from sweeper.plan.cohort_queue import CohortQueue
from sweeper.plan.cohorts import Cohort, Cut, cut, halves
from tests.sweeper.packing.measured import members

EIGHT, THREE = cut([members(8), members(3)], [Cut(8, 8), Cut(3, 3)])


def drained(queue: CohortQueue) -> list[Cohort]:
    cohorts = []
    while cohort := queue.next():
        cohorts.append(cohort)
    return cohorts


def test_cohorts_come_in_order_until_none_is_left() -> None:
    queue = CohortQueue([EIGHT, THREE])
    assert not queue.exhausted and drained(queue) == [EIGHT, THREE] and queue.exhausted
    assert set(queue.cohorts) == {EIGHT.id, THREE.id}


def test_trials_that_have_a_row_are_left_out() -> None:
    queue = CohortQueue([EIGHT, THREE], dict.fromkeys([trial.id for trial in EIGHT.trials[:5]], "finished"))
    first, *_ = drained(queue)
    assert first.id == EIGHT.id and first.trials == EIGHT.trials[5:]


def test_a_cohort_is_halved_as_a_whole_and_the_rest_of_its_halves_is_trained() -> None:
    recorded: list[str] = []
    finished = dict.fromkeys([trial.id for trial in EIGHT.trials[:5]], "finished")
    queue = CohortQueue([EIGHT], finished, record_halved=recorded.append)
    (cohort,) = drained(queue)
    (second,) = queue.halve(cohort)
    assert second.id == halves(EIGHT)[1].id and second.trials == EIGHT.trials[5:] and recorded == [EIGHT.id]
    assert queue.ancestors(second.id) == (cohort,) and second.id in queue.cohorts
    quarter, _ = queue.halve(second)
    assert queue.ancestors(quarter.id) == (second, cohort)
