"""A cohort that does not fit, or one of whose trials cannot train, is split in two."""

from __future__ import annotations

import pytest

from sweeper.plan.cohorts import Cohort, Cut, cut, halved, halves, lineage
from sweeper.plan.trials import content_hash
from tests.sweeper.packing.measured import members


def whole(size: int, width: int) -> Cohort:
    return cut([members(size)], [Cut(size, width)])[0]


@pytest.mark.parametrize(
    ("size", "width", "expected"),
    [(8, 8, [(4, 4), (4, 4)]), (5, 5, [(3, 3), (2, 2)]), (32, 8, [(16, 4), (16, 4)]), (2, 1, [(1, 1), (1, 1)])],
)
def test_a_cohort_is_halved_in_members_and_width(size: int, width: int, expected: list[tuple[int, int]]) -> None:
    cohort = whole(size, width)
    parts = halves(cohort)
    assert [(len(part.trials), part.width) for part in parts] == expected
    assert parts[0].trials + parts[1].trials == cohort.trials


def test_halves_have_ids_of_their_members_alone() -> None:
    first, second = halves(whole(5, 5))
    assert (first, second) == halves(whole(5, 5)) and first.id != second.id
    assert [half.id for half in halves(whole(5, 1))] == [first.id, second.id]
    assert second.id == content_hash([trial.id for trial in second.trials])


def test_one_member_cannot_be_halved() -> None:
    with pytest.raises(ValueError, match=r"must have two trials to be halved, but \w+ has 1"):
        halves(whole(1, 1))


def test_cohorts_are_halved_as_in_earlier_runs() -> None:
    cohorts = cut([members(8), members(4)], [Cut(8, 8), Cut(4, 4)])
    first, second = halves(cohorts[0])
    third, fourth = halves(second)
    assert halved(cohorts, []) == cohorts
    assert halved(cohorts, [cohorts[0].id]) == (first, second, cohorts[1])
    assert halved(cohorts, [second.id, cohorts[0].id]) == (first, third, fourth, cohorts[1])
    assert halved(cohorts, [second.id]) == cohorts
    everything = halved(cohorts, _Everything())
    assert [len(cohort.trials) for cohort in everything] == [1] * 12


def test_parts_know_what_they_were_part_of() -> None:
    cohorts = cut([members(8), members(4)], [Cut(8, 8), Cut(4, 4)])
    first, second = halves(cohorts[0])
    third, fourth = halves(second)
    assert lineage(cohorts, []) == {}
    assert lineage(cohorts, [second.id, cohorts[0].id]) == {
        first.id: (cohorts[0],),
        **dict.fromkeys((third.id, fourth.id), (second, cohorts[0])),
    }


class _Everything(list[str]):
    def __contains__(self, item: object) -> bool:
        return True
