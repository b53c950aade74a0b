"""When a node is left out for the failures of cohorts on it. `test_loop.py` shows what becomes of these."""

from hypothesis import given
from hypothesis import strategies as st

from sweeper.execution.suspects import Suspects


def test_a_node_on_which_two_cohorts_fail_in_a_row_is_left_out_if_others_train_elsewhere() -> None:
    suspects = Suspects()
    assert not suspects.failed("bad", "c0") and not suspects.failed("bad", "c1"), "maybe all cohorts fail"
    suspects.reported("good")
    assert suspects.failed("bad", "c2") == ("c0", "c1", "c2")


def test_one_cohort_that_fails_again_and_again_is_itself_at_fault() -> None:
    suspects = Suspects()
    for _ in range(5):
        assert not suspects.failed("a", "c0")
        suspects.reported("b")


def test_a_failure_elsewhere_and_a_success_there_end_a_row() -> None:
    suspects = Suspects()
    suspects.failed("a", "c0")
    suspects.failed("b", "c1")
    suspects.reported("c")
    assert not suspects.failed("a", "c2")
    suspects.reported("c")
    suspects.succeeded("c")
    suspects.succeeded("a")
    assert not suspects.failed("a", "c3")
    suspects.reported("c")
    assert suspects.failed("a", "c4") == ("c3", "c4")


def test_a_node_is_cleared_once_a_cohort_fails_elsewhere_too() -> None:
    suspects = Suspects()
    suspects.failed("a", "c0")
    suspects.reported("b")
    assert suspects.failed("a", "c1") and not suspects.cleared("c1")
    assert not suspects.failed("b", "c0") and suspects.cleared("c0") == ["a"] and not suspects.cleared("c0")
    suspects.reported("a")
    assert not suspects.failed("b", "c1"), "both are known to fail on two nodes"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=60))
def test_cohorts_that_fail_everywhere_leave_no_node_out_for_good(attempts: list[tuple[str, int]]) -> None:
    """Each of them is tried on each node at last."""
    suspects, left_out = Suspects(), set[str]()
    for node, number in [*attempts, *((node, number) for node in "abc" for number in range(6))]:
        for other in "abc":
            suspects.reported(other)
        if suspects.failed(node, f"c{number}"):
            left_out.add(node)
        left_out -= set(suspects.cleared(f"c{number}"))
    assert not left_out
