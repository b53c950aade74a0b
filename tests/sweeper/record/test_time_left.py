"""The time left of sweeps whose trials differ in work: simulated on one device, at random and by hand."""

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sweeper.record.time_left import TimeLeft
from tests.sweeper.record.plans import Clock, plan_of, plan_of_groups

METHODS = ("vje", "simclr", "byol")
Groups = Sequence[tuple[str, int, int]]


def row(trial: str, seconds: float | None = None, status: str = "finished", **more: object) -> Mapping[str, object]:
    return {"trial_id": trial, "status": status, "seconds": seconds, **more}


def random_groups(random_: random.Random) -> Groups:
    """Up to six groups, whose trials have between one and a million steps."""
    count = random_.randint(1, 6)
    return [(random_.choice(METHODS), random_.randint(1, 5), int(10 ** random_.uniform(0, 6))) for _ in range(count)]


def trained(
    random_: random.Random, groups: Groups, costs: Sequence[float], clock: Clock, left: TimeLeft
) -> Iterator[tuple[float, set[int]]]:
    """Train all trials on one device, in cohorts in a random order, by the clock. After each report this yields the
    seconds that are left in truth, and the groups of which a trial has ended."""
    cohorts = []
    for index, (_, count, _) in enumerate(groups):
        trials, first = [f"g{index}t{number}" for number in range(count)], 0
        while first < count:
            size = random_.randint(1, count - first)
            cohorts.append((index, trials[first : first + size]))
            first += size
    random_.shuffle(cohorts)
    lengths = [len(trials) * groups[index][2] * costs[index] for index, trials in cohorts]
    ended = set[int]()
    for number, (index, trials) in enumerate(cohorts):
        rest, share = sum(lengths[number + 1 :]), 0.0
        for _ in range(random_.randint(0, 4)):
            further = random_.uniform(0, 1 - share)
            clock.now += further * lengths[number]
            share += further
            left.advanced(str(number), trials, share)
            yield rest + (1 - share) * lengths[number], ended
        clock.now += (1 - share) * lengths[number]
        left.stopped(str(number))
        left.ended([row(trial, lengths[number] / len(trials)) for trial in trials])
        ended.add(index)
        yield rest, ended


@settings(max_examples=30)
@given(seed=some.integers(0, 29))
def test_it_is_exact_where_seconds_are_proportional_to_steps(seed: int) -> None:
    random_, clock = random.Random(seed), Clock()
    groups = random_groups(random_)
    left = TimeLeft(plan_of_groups(groups), clock)
    left.started()
    costs = [10 ** random_.uniform(-3, 1)] * len(groups)
    for truth, _ in trained(random_, groups, costs, clock, left):
        estimate = left.estimate
        assert estimate is not None and abs(estimate.total_seconds() - truth) <= 1 + 1e-6 * truth


@settings(max_examples=30)
@given(seed=some.integers(0, 29))
def test_it_is_exact_once_a_trial_of_each_group_has_ended(seed: int) -> None:
    """Whatever a step of each costs, which the plan does not know."""
    random_, clock = random.Random(seed), Clock()
    groups = random_groups(random_)
    left = TimeLeft(plan_of_groups(groups), clock)
    left.started()
    costs = [10 ** random_.uniform(-3, 1) for _ in groups]
    for truth, ended in trained(random_, groups, costs, clock, left):
        if len(ended) == len(groups):
            estimate = left.estimate
            assert estimate is not None and abs(estimate.total_seconds() - truth) <= 1 + 1e-6 * truth


@settings(max_examples=30)
@given(seed=some.integers(0, 29))
def test_it_is_never_negative_and_falls_as_work_is_done(seed: int) -> None:
    """Cohorts on several devices report, are cut off, go back to checkpoints, fail and end, in any order. A report of
    further training, at the same time, leaves less."""
    random_, clock = random.Random(seed), Clock()
    groups = random_groups(random_)
    left = TimeLeft(plan_of_groups(groups), clock)
    left.started()
    shares: dict[str, float] = {}
    begins: dict[str, float] = {}
    cohorts = {
        f"c{index}": [f"g{index}t{number}" for number in range(count)] for index, (_, count, _) in enumerate(groups)
    }
    for _ in range(200):
        clock.now += random_.choice((0.0, random_.expovariate(0.01)))
        before = left.estimate
        if not cohorts:
            break
        cohort = random_.choice(sorted(cohorts))
        match random_.choice(("further", "further", "further", "cut off", "ended")):
            case "further" if cohort in shares:
                shares[cohort] = random_.uniform(shares[cohort], 1)
                left.advanced(cohort, cohorts[cohort], shares[cohort], begins[cohort])
                assert before is None or (left.estimate is not None and left.estimate <= before)
            case "further":
                begun = random_.choice((0.0, random_.random()))
                shares[cohort] = random_.uniform(begun, 1)
                left.advanced(cohort, cohorts[cohort], shares[cohort], begun)
                begins[cohort] = begun
            case "cut off":
                left.stopped(cohort)
                shares.pop(cohort, None)
            case _:
                left.stopped(cohort)
                status = random_.choice(("finished", "diverged", "failed"))
                left.ended(
                    [row(trial, random_.random(), status, epochs=10, epochs_run=3) for trial in cohorts.pop(cohort)]
                )
        assert left.estimate is None or left.estimate >= timedelta(0)
    clock.now += 1
    if not cohorts:
        assert left.estimate in (None, timedelta(0))


def test_one_long_trial_is_not_one_of_many_short_ones() -> None:
    """Nine of ten trials take a second in all; the last one takes a thousand."""
    clock = Clock()
    left = TimeLeft(plan_of_groups([("simclr", 9, 10), ("vje", 1, 90_000)]), clock)
    left.started()
    clock.now += 1
    left.ended([row(f"g0t{number}", 1 / 9) for number in range(9)])
    assert left.estimate == timedelta(seconds=1000)


def test_what_steps_have_cost_replaces_the_plan() -> None:
    """A step of a group of which no trial has ended costs what those of its method do."""
    clock = Clock()
    groups = [("vje", 1, 100), ("simclr", 1, 100), ("vje", 2, 100), ("byol", 1, 100)]
    left = TimeLeft(plan_of_groups(groups), clock)
    left.started()
    clock.now += 10
    left.ended([row("g0t0", 10)])
    assert left.estimate == timedelta(seconds=40)
    clock.now += 30
    left.ended([row("g1t0", 30)])
    assert left.estimate == timedelta(seconds=2 * 10 + 20), "byol as the mean of the others"


def test_steps_of_gradients_say_nothing_of_a_fit_to_all_data() -> None:
    """Until one of the other kind has ended, its trials cost what any trial does."""
    for first, other in (("gaussian_process", "jepa_pairs"), ("jepa_pairs", "gaussian_process")):
        steps = {"gaussian_process": 1, "jepa_pairs": 1200}
        clock = Clock()
        left = TimeLeft(plan_of_groups([(first, 1, steps[first]), (other, 3, steps[other])]), clock)
        left.started()
        clock.now += 50
        left.ended([row("g0t0", 50)])
        assert left.estimate == timedelta(seconds=150)
        clock.now += 2
        left.ended([row("g1t0", 2)])
        assert left.estimate == timedelta(seconds=4)


def test_a_diverged_trial_has_cost_the_steps_that_it_ran() -> None:
    clock = Clock()
    left = TimeLeft(plan_of_groups([("vje", 3, 1000)]), clock)
    left.started()
    clock.now += 2
    left.ended([row("g0t0", 2, "diverged", epochs=10, epochs_run=2)])
    assert left.estimate == timedelta(seconds=20)


def test_trials_with_a_result_from_before_are_no_work() -> None:
    clock = Clock()
    left = TimeLeft(plan_of_groups([("vje", 4, 100)], {"g0t0": "finished", "g0t1": "failed"}), clock)
    left.started()
    clock.now += 5
    left.ended([row("g0t2", 5)])
    assert left.estimate == timedelta(seconds=10)


def test_trials_of_a_search_are_all_the_same_work() -> None:
    """They are not known before they are proposed, and those that are pruned end early."""
    clock = Clock()
    left = TimeLeft(plan_of(10, before=("finished",) * 2), clock)
    left.started()
    clock.now += 8
    left.ended([row("new", 6, "pruned", epochs=10, epochs_run=1), row("newer", 2)])
    assert left.estimate == timedelta(seconds=24)


def test_epochs_of_a_checkpoint_and_the_start_of_processes_do_not_count_as_speed() -> None:
    clock = Clock()
    left = TimeLeft(plan_of_groups([("vje", 10, 100)]), clock)
    clock.now += 60
    left.started()
    left.advanced("c0", ["g0t0"], 0.5, begun=0.5)
    assert left.estimate is None
    left.advanced("c0", ["g0t0"], 0.4, begun=0.5)  # a report of before, again
    clock.now += 10
    left.advanced("c0", ["g0t0"], 1.0, begun=0.5)
    assert left.estimate == timedelta(seconds=180), "9 trials are left, at half of one in 10 s"


def test_all_that_a_cohort_has_trained_before_its_first_report_counts() -> None:
    clock = Clock()
    left = TimeLeft(plan_of_groups([("vje", 2, 100)]), clock)
    left.started()
    clock.now += 5
    left.advanced("c0", ["g0t0"], 0.5)
    assert left.estimate == timedelta(seconds=15)


@pytest.mark.parametrize(("begun", "seconds"), [(0.25, 45), (0.0, 60)])
def test_what_is_trained_again_after_a_death_is_left(begun: float, seconds: int) -> None:
    clock = Clock()
    left = TimeLeft(plan_of_groups([("vje", 1, 100)]), clock)
    left.started()
    clock.now += 30
    left.advanced("c0", ["g0t0"], 0.5)
    assert left.estimate == timedelta(seconds=30)
    left.stopped("c0")
    left.advanced("c0", ["g0t0"], begun, begun)
    assert left.estimate == timedelta(seconds=seconds)


def test_no_time_is_estimated_from_what_rounding_leaves() -> None:
    clock = Clock()
    left = TimeLeft(plan_of_groups([("vje", 10, 1)]), clock)
    left.started()
    left.advanced("c0", ["g0t0"], 0.3, begun=0.3)
    clock.now += 30
    left.advanced("c0", ["g0t0"], 0.1 + 0.2, begun=0.3)
    assert left.estimate is None
