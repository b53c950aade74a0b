import math
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from sweeper.cohorts import Cohort, Cut, Group, by_workers, choose, cut, group, remaining, workers
from sweeper.trials import Trial, content_hash

MIB = 2**20
PLENTY = 2**40


class Measured(NamedTuple):
    width: int
    seconds: float
    bytes: int = MIB


def trial(**config: int | None) -> Trial:
    return Trial(content_hash(config), config)


def trials(streams: int, each: int, shape: int = 0) -> list[Trial]:
    return [trial(shape=shape, stream=stream, nu=nu) for stream in range(streams) for nu in range(each)]


def groups_of(found: Sequence[Trial]) -> list[Group]:
    return group(found, lambda t: t.config["shape"], lambda t: t.config["stream"])


def sizes(cohorts: Sequence[Cohort]) -> list[int]:
    return [len(cohort.trials) for cohort in cohorts]


def ids(cohorts: Sequence[Cohort]) -> list[str]:
    return [cohort.id for cohort in cohorts]


def streams_of(cohort: Cohort) -> set[object]:
    return {trial.config["stream"] for trial in cohort.trials}


def test_a_group_has_one_shape_and_its_streams_side_by_side() -> None:
    mixed = [trial(shape=i % 2, stream=i // 2 % 3, nu=i) for i in range(24)]
    groups = groups_of(mixed)
    assert [len(streams) for streams in groups] == [3, 3]
    for streams in groups:
        assert len({t.config["shape"] for stream in streams for t in stream}) == 1
        assert all(len({t.config["stream"] for t in stream}) == 1 for stream in streams)
    assert sorted(t.id for g in groups for s in g for t in s) == sorted(t.id for t in mixed)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8, 16, 40, 1000])
def test_every_trial_is_in_exactly_one_cohort_that_is_not_too_large(size: int) -> None:
    all_of_them = trials(5, 8) + trials(2, 3, shape=1)
    cohorts = cut(groups_of(all_of_them), [Cut(size, size)] * 2)
    assert sorted(t.id for c in cohorts for t in c.trials) == sorted(t.id for t in all_of_them)
    assert max(sizes(cohorts)) <= size and len(set(ids(cohorts))) == len(cohorts)
    assert all(len({t.config["shape"] for t in cohort.trials}) == 1 for cohort in cohorts)


def test_a_stream_is_split_only_where_it_is_larger_than_a_cohort() -> None:
    groups = groups_of(trials(5, 8))
    assert sizes(cut(groups, [Cut(20, 20)])) == [16, 16, 8]
    assert sizes(cut(groups, [Cut(8, 8)])) == [8] * 5
    for cohort in cut(groups, [Cut(7, 7)]):
        assert len(streams_of(cohort)) == 1 and len(cohort.trials) == 4
    assert sizes(cut(groups_of(trials(1, 10)), [Cut(4, 4)])) == [3, 4, 3]


def test_a_stack_is_no_wider_than_its_cohort() -> None:
    cohorts = cut(groups_of(trials(3, 2)), [Cut(4, 3)])
    assert [(len(c.trials), c.width) for c in cohorts] == [(4, 3), (2, 2)]


def test_groups_are_cut_each_in_its_own_way() -> None:
    both = groups_of(trials(2, 4) + trials(2, 4, shape=1))
    assert sizes(cut(both, [Cut(8, 8), Cut(2, 1)])) == [8, 2, 2, 2, 2]
    with pytest.raises(ValueError, match="zip"):
        cut(both, [Cut(8, 8)])


def test_an_id_depends_on_the_members_alone() -> None:
    groups = groups_of(trials(5, 8))
    assert ids(cut(groups, [Cut(8, 8)])) == ids(cut(groups, [Cut(8, 1)])) != ids(cut(groups, [Cut(4, 4)]))[:5]


def test_what_is_left_is_a_set_difference_under_the_same_ids() -> None:
    whole = cut(groups_of(trials(3, 4)), [Cut(4, 4)])
    first, second, third = whole
    statuses = {t.id: "finished" for t in first.trials}
    statuses |= dict(zip([t.id for t in second.trials], ["finished", "diverged", "failed"], strict=False))
    left = remaining(whole, statuses)
    assert ids(left) == [second.id, third.id]
    assert left[0].trials == second.trials[2:] and left[0].width == 2
    assert left[1] == third
    assert remaining(whole, dict.fromkeys([t.id for c in whole for t in c.trials], "diverged")) == []
    assert remaining(whole, {"of another plan": "finished"}) == list(whole)


STACKING_PAYS = [Measured(w, 1e-3 / math.sqrt(w)) for w in (1, 2, 4, 8, 16, 32)]
STACKING_COSTS = [Measured(w, 1e-3 * w) for w in (1, 2, 4, 8, 16, 32)]


def test_members_are_stacked_where_that_is_faster() -> None:
    (streams,) = groups_of(trials(4, 8))
    chosen = choose(STACKING_PAYS, streams, steps=10_000, slots=1, memory=PLENTY)
    assert chosen.width == chosen.size == 32


def test_members_are_stepped_in_turn_where_stacking_is_slower() -> None:
    (streams,) = groups_of(trials(4, 8))
    assert choose(STACKING_COSTS, streams, steps=10_000, slots=2, memory=PLENTY).width == 1


def test_every_slot_gets_its_share() -> None:
    (streams,) = groups_of(trials(4, 8))
    for slots in (1, 2, 4):
        cohorts = cut([streams], [choose(STACKING_PAYS, streams, steps=10_000, slots=slots, memory=PLENTY)])
        assert len(cohorts) >= slots


def test_a_stack_that_does_not_fit_is_not_chosen() -> None:
    (streams,) = groups_of(trials(4, 8))
    large = [Measured(m.width, m.seconds, m.width * 100 * MIB) for m in STACKING_PAYS]
    assert choose(large, streams, steps=10_000, slots=1, memory=1000 * MIB).width == 8
    assert choose(large, streams, steps=10_000, slots=1, memory=799 * MIB).width == 4
    assert choose(large, streams, steps=10_000, slots=1, memory=1).width == 1


def test_smaller_cohorts_win_where_they_cost_little() -> None:
    """One second a member: starting a cohort is free beside it, so nothing speaks for a large one."""
    (streams,) = groups_of(trials(4, 8))
    flat = [Measured(w, 1e-3) for w in (1, 2, 4, 8, 16, 32)]
    assert choose(flat, streams, steps=100_000, slots=1, memory=PLENTY).size == 1
    assert choose(flat, streams, steps=10, slots=1, memory=PLENTY).size == 32


def test_what_could_not_be_measured_trains_alone() -> None:
    (streams,) = groups_of(trials(2, 2))
    assert choose([], streams, steps=10, slots=2, memory=0) == Cut(1, 1)


def test_one_measurement_is_enough() -> None:
    (streams,) = groups_of(trials(1, 1))
    assert choose([Measured(1, 1e-3)], streams, steps=1, slots=8, memory=PLENTY) == Cut(1, 1)


def test_members_say_how_many_train_them() -> None:
    assert [workers([[trial(**config)]]) for config in ({}, {"workers": None}, {"workers": 1}, {"workers": 8})] == [
        1, 1, 1, 8,
    ]  # fmt: skip


def test_cohorts_by_their_workers_fewest_first() -> None:
    shapes = [4, 1, 2, 4]
    mixed = [trial(shape=shape, workers=count, stream=0) for shape, count in enumerate(shapes)]
    whole = cut(groups_of(mixed), [Cut(1, 1)] * 4)
    found = by_workers(whole)
    assert list(found) == [1, 2, 4]
    assert found == {1: [whole[1]], 2: [whole[2]], 4: [whole[0], whole[3]]}
    assert by_workers([]) == {}


@pytest.mark.parametrize(("slots", "size"), [(1, 6), (2, 3), (4, 2), (6, 1), (100, 1)])
def test_a_group_of_workers_is_started_as_seldom_as_can_be(slots: int, size: int) -> None:
    """Whatever was measured: once for each place, where its members are stepped in turn."""
    members = [[trial(workers=2, seed=seed)] for seed in range(6)]
    for measured in ([], STACKING_PAYS):
        chosen = choose(measured, members, steps=10, slots=slots, memory=PLENTY)
        assert chosen == Cut(size, 1)
        cohorts = cut([members], [chosen])
        assert len(cohorts) <= slots and {cohort.width for cohort in cohorts} == {1}
