import math
from dataclasses import replace

import pytest

from sweeper.packing.workloads import UNTRAINED_SECONDS, CutOption, Workload, candidate_cuts, one_per_cohort
from sweeper.planning.cohorts import Cut
from tests.cases import for_each
from tests.sweeper.packing.fake_cluster import EACH_100_MIB, MIB, measurement, members

TWO_WIDTHS = [measurement(1, 1.0, 10, held=1), measurement(4, 0.5, 40, held=1)]
"""A step of one member takes 1 s, of a stack of four 2 s."""


def by_cut(workload: Workload) -> dict[Cut, CutOption]:
    return {candidate.cut: candidate for candidate in candidate_cuts(workload)}


def test_every_size_is_tried_with_every_measured_width_that_it_fills() -> None:
    assert set(by_cut(Workload(members(4), TWO_WIDTHS, 1))) == {
        Cut(1, 1), Cut(2, 1), Cut(2, 2), Cut(4, 1), Cut(4, 4),
    }  # fmt: skip


@for_each(
    ("cut", "count", "seconds", "need"),
    [
        (Cut(1, 1), 8, 10 * 1.0, 10),
        (Cut(8, 1), 1, 10 * 8 * 1.0, 10 + 7 * 1),  # in turn: the others hold their state
        (Cut(8, 4), 1, 10 * 2 * 2.0, 40 + 4 * 1),
        (Cut(4, 4), 2, 10 * 2.0, 40),
        (Cut(2, 2), 4, 10 * (1 + (2 - 1) / 3), 40),  # between the widths 1 and 4; it needs no more than four
        (Cut(7, 4), 2, 10 * 2.0, 40),  # two equal cohorts of 4
        (Cut(8, 8), 1, 10 * 2 * 2.0, 80),  # wider than any that was measured
    ],
)
def test_the_largest_cohort_determines_time_and_memory(cut: Cut, count: int, seconds: float, need: int) -> None:
    (candidate,) = candidate_cuts(Workload(members(8), TWO_WIDTHS, 10, settled_cut=cut))
    assert (candidate.cut, candidate.count, candidate.bytes) == (cut, count, need)
    assert candidate.alone == pytest.approx(seconds)


def test_members_that_were_not_measured_train_alone() -> None:
    workload = Workload(members(2, 3), [], 10)
    assert candidate_cuts(workload) == [one_per_cohort(workload)] == [CutOption(Cut(1, 1), 5)]
    assert candidate_cuts(replace(workload, settled_cut=Cut(5, 5))) == [CutOption(Cut(5, 5), 1)]


def test_one_member_a_cohort_takes_what_the_narrowest_stack_takes() -> None:
    workload = Workload(members(3), TWO_WIDTHS[::-1], 10)
    assert one_per_cohort(workload) == CutOption(Cut(1, 1), 3, 10.0, 10)


@pytest.mark.parametrize("total", [1, 5, 100])
def test_members_without_a_step_are_stacked_narrowly_and_need_no_memory(total: int) -> None:
    for cut, candidate in by_cut(Workload(members(total), [], 0)).items():
        assert cut.size <= 64 and cut.width <= 8 and candidate.bytes == 0
        assert candidate.count == math.ceil(total / cut.size)
        assert candidate.alone == pytest.approx(math.ceil(total / candidate.count) * UNTRAINED_SECONDS)


def test_a_stack_wider_than_any_that_was_measured_takes_in_proportion() -> None:
    narrow = replace(Workload(members(8), EACH_100_MIB[:3], 10_000), settled_cut=Cut(8, 8))
    (candidate,) = candidate_cuts(narrow)
    assert candidate.bytes == 800 * MIB and candidate.alone == pytest.approx(2 * 4 * 10_000 * EACH_100_MIB[2].seconds)
