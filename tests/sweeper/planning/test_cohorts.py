"""Trials, and the cohorts they are cut into."""

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from sweeper.definition import Grid, Metric, SpecError, Sweep, Value
from sweeper.definition.figures import Heatmap
from sweeper.planning import cohorts
from sweeper.planning.cohorts import (
    Cohort,
    Cut,
    Group,
    Trial,
    by_workers,
    content_hash,
    cut,
    enumerate_trials,
    group,
    halved,
    halves,
    remaining,
    worker_count,
)
from sweeper.planning.plan import Plan
from tests.cases import for_each
from tests.sweeper.packing.fake_cluster import members
from trainables.config import resolve
from trainables.sections import TrialConfig


def trial(**config: int | None) -> Trial:
    return Trial(content_hash(config), config)


def trials(streams: int, each: int, shape: int = 0) -> list[Trial]:
    return [trial(shape=shape, stream=stream, nu=nu) for stream in range(streams) for nu in range(each)]


def groups_of(ungrouped: Sequence[Trial]) -> list[Group]:
    return group(ungrouped, lambda t: t.config["shape"], lambda t: t.config["stream"])


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


@for_each("size", [1, 2, 3, 5, 7, 8, 16, 40, 1000])
def test_every_trial_is_in_exactly_one_cohort_that_is_not_too_large(size: int) -> None:
    all_trials = trials(5, 8) + trials(2, 3, shape=1)
    cohorts = cut(groups_of(all_trials), [Cut(size, size)] * 2)
    assert sorted(t.id for c in cohorts for t in c.trials) == sorted(t.id for t in all_trials)
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


def test_compiled_steps_stay_those_of_the_whole_cohort() -> None:
    """Another width would be another step to compile."""
    (whole,) = cut(groups_of(trials(1, 4)), [Cut(4, 4, compiled=True)])
    (left,) = remaining([whole], {whole.trials[0].id: "finished"})
    assert whole.compiled and left.compiled and left.width == 4
    assert all(half.compiled and half.width == 1 for half in halves(whole))


def test_the_steps_of_compiled_cohorts_have_few_widths() -> None:
    """Cohorts of four and of three: the members of the latter are stepped in turn."""
    groups = groups_of(trials(1, 7))
    assert [cohort.width for cohort in cut(groups, [Cut(4, 4, compiled=True)])] == [4, 4]
    assert [cohort.width for cohort in cut(groups, [Cut(4, 4)])] == [4, 3]


def test_remaining_cohorts_are_a_set_difference_under_the_same_ids() -> None:
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


def test_the_worker_count_is_that_of_the_members() -> None:
    configs: list[dict[str, int | None]] = [{}, {"workers": None}, {"workers": 1}, {"workers": 8}]
    assert [worker_count([[trial(**config)]]) for config in configs] == [1, 1, 1, 8]


def test_cohorts_by_their_workers_fewest_first() -> None:
    shapes = [4, 1, 2, 4]
    mixed = [trial(shape=shape, workers=count, stream=0) for shape, count in enumerate(shapes)]
    whole = cut(groups_of(mixed), [Cut(1, 1)] * 4)
    grouped = by_workers(whole)
    assert list(grouped) == [1, 2, 4]
    assert grouped == {1: [whole[1]], 2: [whole[2]], 4: [whole[0], whole[3]]}
    assert by_workers([]) == {}


# A cohort that does not fit, or one of whose trials cannot train, is halved.


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


class _Everything(list[str]):
    def __contains__(self, item: object) -> bool:
        return True


PYTHON = (
    "from sweeper.planning.cohorts import content_hash; print(content_hash({'nu': float('inf'), 'lr': 1e-05, 'k': 3}))"
)


def complete(combination: Mapping[str, Value]) -> TrialConfig:
    return resolve({"method": "vje", **combination})


def test_an_id_depends_on_the_content_alone() -> None:
    expected = content_hash({"k": 3, "lr": 1e-05, "nu": math.inf})
    for seed in ("1", "2"):
        completed = subprocess.run(
            [sys.executable, "-c", PYTHON], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert completed.stdout.strip() == expected
    assert len(expected) == 16 and expected == "da1b620440bc824c"


@pytest.mark.parametrize("other", [{"nu": 3.0000000000000004}, {"nu": None}, {"nu": "3.0"}, {"mu": 3.0}, {}])
def test_other_content_has_another_id(other: dict[str, Value]) -> None:
    assert content_hash(other) != content_hash({"nu": 3.0})


def test_1_and_1_0_are_one_trial_and_true_is_none() -> None:
    (whole,) = enumerate_trials([{"nu": 1}], complete)
    (point,) = enumerate_trials([{"nu": 1.0}], complete)
    assert whole == point and isinstance(whole.config["nu"], float)
    with pytest.raises(SpecError, match="nu must be a number"):
        enumerate_trials([{"nu": True}], complete)


def test_a_default_written_out_is_the_same_trial() -> None:
    (short,) = enumerate_trials([{}], complete)
    (long,) = enumerate_trials([{"beta": 1.0, "epochs": 100}], complete)
    assert short.id == long.id and short.config["beta"] == 1.0


def test_infinity_is_a_value_like_any_other() -> None:
    trials = enumerate_trials([{"nu": math.inf}, {"nu": 1e308}], complete)
    assert trials[0].id != trials[1].id and trials[0].config["nu"] == math.inf


def test_trials_come_in_the_order_of_the_grid() -> None:
    assert [trial.config["seed"] for trial in enumerate_trials([{"seed": s} for s in (3, 1, 2)], complete)] == [3, 1, 2]


def test_a_trial_that_is_there_twice_is_refused() -> None:
    with pytest.raises(SpecError, match=r"trials must differ, but .*'nu': 3} occurs twice"):
        enumerate_trials([{"nu": 3.0}, {"nu": 3}, {"nu": 3.0}], complete)


def test_an_illegal_value_is_a_wrong_request() -> None:
    with pytest.raises(SpecError, match=r"`nu > 0` must hold, but got nu=-1"):
        enumerate_trials([{"nu": 1.0}, {"nu": -1.0}], complete)


SWEEP = Sweep("about it", {"paper": Grid({}, {})}, (Heatmap(Metric("auroc", "maximize"), "beta", "nu"),))


def make(count: int = 6, statuses: Mapping[str, str] | None = None) -> Plan:
    trials = tuple(Trial(f"t{i}", {"beta": i % 2, "nu": i}) for i in range(count))
    groups = cohorts.group(trials, lambda trial: trial.config["beta"], lambda trial: 0)
    return Plan("grid", "paper", SWEEP, trials, groups, [10] * len(groups), statuses or {})


def test_counts_are_of_the_plans_own_trials() -> None:
    statuses = {"t0": "finished", "t1": "diverged", "t2": "failed", "another": "finished"}
    plan = make(statuses=statuses)
    assert plan.counts == {"finished": 1, "diverged": 1, "pruned": 0, "failed": 1, "to run": 3}
    assert plan.trials_left == 4


def test_an_id_depends_on_the_trials_and_not_on_their_status() -> None:
    assert make().grid_id == make(statuses={"t0": "finished"}).grid_id != make(5).grid_id
