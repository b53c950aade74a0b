"""A cohort that fails is tried again, made smaller, or given up; whatever happens, every trial ends once."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sweeper.execution.retries import LOSSES, Attempt, Cause, RetryQueue
from sweeper.planning.cohorts import Cohort, Cut, cut, halved
from sweeper.planning.sources import CohortQueue
from tests.cases import for_each
from tests.sweeper.packing.fake_cluster import members


def whole(size: int, width: int | None = None) -> Cohort:
    return cut([members(size)], [Cut(size, width or size)])[0]


def names(cohort: Cohort) -> list[str]:
    return [trial.id for trial in cohort.trials]


def next_attempt(attempts: RetryQueue) -> Attempt:
    attempt = attempts.next()
    assert attempt is not None
    return attempt


class Whole(CohortQueue):
    """A source whose cohorts must stay whole."""

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        return ()


def run_all(attempts: RetryQueue, cause: Callable[[Cohort], Cause | None]) -> tuple[list[str], list[str], int]:
    """Train until nothing is left. Returns the finished trials, the failed trials, and the number of attempts."""
    finished: list[str] = []
    failed: list[str] = []
    begun = 0
    while not attempts.ended:
        cohort, begun = next_attempt(attempts).cohort, begun + 1
        failure = cause(cohort)
        if failure is None:
            attempts.reported(cohort.id, 1, True)
            finished += names(cohort)
        elif attempts.lost(cohort.id, failure).kind == "failed":
            failed += names(cohort)
    return finished, failed, begun


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_trial_is_tried_again_as_often_as_it_may(retries: int) -> None:
    attempts = RetryQueue(CohortQueue([whole(1)]), retries)
    assert run_all(attempts, lambda cohort: "error") == ([], ["0.0"], 1 + retries)


@for_each("cause", ["error", "hung", "memory"])
@for_each("poisoned", [["0.0"], ["0.5"], ["0.2", "0.3"], ["0.1", "0.6"]])
def test_a_trial_that_cannot_train_takes_no_other_with_it(cause: Cause, poisoned: list[str]) -> None:
    source = CohortQueue([whole(8), whole(3)])
    attempts = RetryQueue(source, 1)
    finished, failed, begun = run_all(attempts, lambda cohort: cause if set(names(cohort)) & set(poisoned) else None)
    all_trials = Counter(names(whole(8)) + names(whole(3)))
    assert Counter(finished) + Counter(failed) == all_trials and set(failed) == set(poisoned)
    assert begun <= 2 * (2 + 2 * len(poisoned) * (3 + 2))


def test_a_lost_machine_costs_no_retry() -> None:
    attempts = RetryQueue(CohortQueue([whole(2)]), 0)
    for _ in range(LOSSES):
        assert attempts.lost(next_attempt(attempts).cohort.id, "machine").kind == "again"
    assert attempts.lost(next_attempt(attempts).cohort.id, "machine").kind == "smaller"  # which may bring it down


def test_an_unusable_gpu_costs_no_retry_and_an_excused_failure_none_either() -> None:
    attempts = RetryQueue(CohortQueue([whole(1)]), 1)
    for cause, excused in (("device", False), ("error", True), ("error", False)):
        cohort = next_attempt(attempts).cohort.id
        assert attempts.lost(cohort, cause).kind == "again"  # type: ignore[arg-type]
        if excused:
            attempts.excuse(cohort)
    assert attempts.lost(next_attempt(attempts).cohort.id, "error").kind == "failed"


def test_a_cohort_that_progresses_has_all_retries_again() -> None:
    attempts = RetryQueue(CohortQueue([whole(1)]), 1)
    for epoch in range(20):
        cohort = next_attempt(attempts).cohort.id
        attempts.reported(cohort, epoch, False)
        assert attempts.lost(cohort, "error").kind == "again"
    cohort = next_attempt(attempts).cohort.id
    attempts.reported(cohort, 19, False)  # the repeated report of the checkpoint from which it continued
    assert attempts.lost(cohort, "error").kind == "failed"


@pytest.mark.parametrize("cause", ["hung", "memory"])
def test_a_permanent_failure_is_halved_at_once_and_retried_once_alone(cause: Cause) -> None:
    attempts = RetryQueue(CohortQueue([whole(2)]), 3)
    first = next_attempt(attempts)
    decision = attempts.lost(first.cohort.id, cause)
    assert decision.kind == "smaller" and [names(part) for part in decision.parts] == [["0.0"], ["0.1"]]
    half = next_attempt(attempts)
    assert half.cohort == decision.parts[0]
    assert attempts.lost(half.cohort.id, cause).kind == "again"
    assert next_attempt(attempts).cohort == decision.parts[1]
    assert next_attempt(attempts) == half and attempts.lost(half.cohort.id, cause).kind == "failed"


class AtRungs(CohortQueue):
    """Cohorts that have ended at a rung wait there while they are among `waiting`."""

    waiting = frozenset[str]()

    def waits(self, cohort: str) -> bool:
        return cohort in self.waiting


def test_a_cohort_at_a_rung_holds_no_other_back_and_goes_on_before_those_that_have_not_begun() -> None:
    source = AtRungs([whole(3), whole(2), whole(1)])
    attempts = RetryQueue(source, 0)
    first, second = next_attempt(attempts).cohort, next_attempt(attempts).cohort
    source.waiting = frozenset({second.id})
    attempts.wait(second.id)
    assert attempts.runs(second.id), "its failure is not taken"
    attempts.reported(first.id, 1, True)
    source.waiting = frozenset()
    assert next_attempt(attempts).cohort == second
    source.waiting = frozenset({second.id})
    attempts.wait(second.id)
    third = next_attempt(attempts).cohort
    attempts.reported(third.id, 1, True)
    assert attempts.next() is None and not attempts.ended
    attempts.reported(second.id, 1, True)
    assert attempts.ended and not attempts.runs(second.id)


def test_a_cohort_that_must_stay_whole_is_stacked_narrower_without_memory() -> None:
    attempts, widths = RetryQueue(Whole([whole(5)]), 0), []
    while not attempts.ended:
        attempt = next_attempt(attempts)
        widths.append(attempt.cohort.width)
        assert len(attempt.cohort.trials) == 5
        last = attempts.lost(attempt.cohort.id, "memory")
    assert widths == [5, 3, 2, 1] and last.kind == "failed"


def test_a_cohort_that_must_stay_whole_and_raises_fails_as_a_whole() -> None:
    assert run_all(RetryQueue(Whole([whole(5)]), 1), lambda cohort: "error")[1:] == (names(whole(5)), 2)


def test_a_retry_goes_before_cohorts_that_have_not_begun() -> None:
    attempts = RetryQueue(CohortQueue([whole(2), whole(1)]), 1)
    first = next_attempt(attempts).cohort
    attempts.lost(first.id, "error")
    assert next_attempt(attempts).cohort == first


def test_a_cohort_that_others_may_wait_for_goes_on_before_them() -> None:
    """Independently of the order in which they were lost."""
    attempts = RetryQueue(CohortQueue([whole(2), whole(1), whole(3)]), 1)
    first, second, third = (next_attempt(attempts).cohort for _ in range(3))
    parts = attempts.lost(first.id, "memory").parts
    for cohort in (third, second):
        attempts.lost(cohort.id, "error")
    assert [next_attempt(attempts).cohort for _ in range(4)] == [*parts, second, third]


def test_the_next_run_begins_with_the_halves_of_this_one() -> None:
    recorded: list[str] = []
    first = whole(8)
    run_all(
        RetryQueue(CohortQueue([first], record_halved=recorded.append), 0),
        lambda cohort: "error" if "0.3" in names(cohort) else None,
    )
    parts = halved([first], recorded)
    assert [len(part.trials) for part in parts] == [2, 1, 1, 4]
    left = CohortQueue(parts, dict.fromkeys(set(names(first)) - {"0.3"}, "finished"))
    assert [names(cohort) for cohort in left.cohorts.values()] == [["0.3"]]


def test_halves_leave_out_trials_that_have_a_result() -> None:
    source = CohortQueue([whole(4)], {"0.0": "finished", "0.1": "finished"})
    attempts = RetryQueue(source, 0)
    assert names(next_attempt(attempts).cohort) == ["0.2", "0.3"]
    decision = attempts.lost(whole(4).id, "error")
    assert [names(part) for part in decision.parts] == [["0.2", "0.3"]]
    assert [part.id for part in halved([whole(4)], [whole(4).id])][1] == decision.parts[0].id


class Retries(RuleBasedStateMachine):
    """Several cohorts run at once, report, end and fail in any order; every trial ends once."""

    @initialize(
        sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), cut_to=st.integers(1, 9), retries=st.integers(0, 3)
    )
    def begin(self, sizes: list[int], cut_to: int, retries: int) -> None:
        groups = [[members(*sizes)[stream]] for stream in range(len(sizes))]
        cohorts = cut(groups, [Cut(cut_to, cut_to)] * len(sizes))
        self.trials = sorted(name for cohort in cohorts for name in names(cohort))
        self.attempts, self.retries = RetryQueue(CohortQueue(cohorts), retries), retries
        self.running: dict[str, Attempt] = {}
        self.failures, self.losses, self.reached = Counter[str](), Counter[str](), dict[str, int]()
        """Of each cohort since it reached a further epoch, and the last epoch that it has reported."""
        self.parts: set[str] = set()
        self.ended: list[str] = []

    @rule()
    def start(self) -> None:
        if attempt := self.attempts.next():
            assert attempt.cohort.id not in self.running
            self.running[attempt.cohort.id] = attempt

    @precondition(lambda self: self.running)
    @rule(data=st.data(), epoch=st.integers(0, 5), done=st.booleans())
    def report(self, data: st.DataObject, epoch: int, done: bool) -> None:
        cohort = data.draw(st.sampled_from(sorted(self.running)))
        self.attempts.reported(cohort, epoch, done)
        if epoch > self.reached.get(cohort, -1):
            self.reached[cohort] = epoch
            del self.failures[cohort], self.losses[cohort]
        if done:
            self.ended += names(self.running.pop(cohort).cohort)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cause=st.sampled_from(["error", "machine", "memory", "hung"]))
    def lose(self, data: st.DataObject, cause: Cause) -> None:
        cohort = data.draw(st.sampled_from(sorted(self.running)))
        attempt = self.running.pop(cohort)
        decision = self.attempts.lost(cohort, cause)
        several, permanent = len(attempt.cohort.trials) > 1, cause in ("memory", "hung")
        if cause == "machine":
            self.losses[cohort] += 1
        else:
            self.failures[cohort] += 1
        allowed = min(1, self.retries) if permanent else self.retries
        allowed = 0 if several and (permanent or cohort in self.parts) else allowed
        again = self.losses[cohort] <= LOSSES if cause == "machine" else self.failures[cohort] <= allowed
        assert decision.kind == ("again" if again else "smaller" if several else "failed")
        if decision.kind == "smaller":
            assert sorted(name for part in decision.parts for name in names(part)) == sorted(names(attempt.cohort))
            self.parts |= {part.id for part in decision.parts}
        if decision.kind == "failed":
            self.ended += names(attempt.cohort)

    @invariant()
    def what_runs_is_known(self) -> None:
        assert all(map(self.attempts.runs, self.running))
        assert not self.attempts.ended or not self.running

    def teardown(self) -> None:
        while not self.attempts.ended:
            self.start()
            cohort = next(iter(self.running))
            self.attempts.reported(cohort, 9, True)
            self.ended += names(self.running.pop(cohort).cohort)
        assert sorted(self.ended) == self.trials


TestRetries = pytest.mark.slow(Retries.TestCase)
TestRetries.settings = settings(max_examples=60, stateful_step_count=40)
