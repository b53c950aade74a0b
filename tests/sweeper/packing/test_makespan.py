"""The makespan against schedules that are simulated and enumerated."""

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sweeper.packing.makespan import SlotPool, group_makespan, list_schedule, makespan, minimise_makespan
from sweeper.packing.workloads import CutOption
from sweeper.planning.cohorts import Cut


def options(rng: random.Random, kinds: int, count: int) -> list[CutOption]:
    cut_options = []
    for size in range(1, count + 1):
        seconds = [rng.choice([0.5, 1.0, 1.7, 3.0, 8.0]) * size for _ in range(kinds)]
        if kinds > 1 and rng.random() < 0.2:
            seconds[rng.randrange(kinds)] = math.inf
        cut_options.append(CutOption(Cut(size, 1), rng.randint(1, 5), seconds=tuple(seconds)))
    return cut_options


def cluster(rng: random.Random, kinds: int) -> SlotPool:
    return SlotPool.of_devices(
        [rng.randint(1, 3) for _ in range(kinds)],
        [rng.choice([0.25, 1.0, 1.5]) for _ in range(kinds)],
        [rng.randint(1, 3) for _ in range(kinds)],
    )


def slots_of(slot_pool: SlotPool) -> list[int]:
    """Return the kind of device of each slot."""
    return [kind for kind, slots in enumerate(slot_pool.slots) for _ in range(slots)]


def best_of_all(option: CutOption, slot_pool: SlotPool) -> float:
    """Return the least makespan over all ways to assign the cohorts to the slots."""
    slots = slots_of(slot_pool)
    least = math.inf
    for counts in itertools.product(range(option.count + 1), repeat=len(slots)):
        if sum(counts) == option.count:
            ends = [count * option.seconds[kind] for count, kind in zip(counts, slots, strict=True) if count]
            least = min(least, max(ends))
    return least


@settings(max_examples=40)
@given(seed=some.integers(0, 39))
def test_equal_cohorts_end_no_sooner_in_any_assignment(seed: int) -> None:
    rng = random.Random(seed)
    slot_pool = SlotPool.of_devices([rng.randint(1, 2), rng.randint(0, 2)], [1.0, 0.5], [1, 1])
    option = CutOption(
        Cut(1, 1), rng.randint(1, 4), seconds=(rng.uniform(1, 3), rng.choice([math.inf, rng.uniform(1, 9)]))
    )
    assert group_makespan(option, slot_pool) == pytest.approx(best_of_all(option, slot_pool))


@pytest.mark.parametrize(("count", "slots", "full"), [(1, 3, 1), (3, 3, 1), (4, 3, 2), (10**6, 3, 333334), (7, 1, 7)])
def test_on_equal_slots_rounds_are_full_rounds(count: int, slots: int, full: int) -> None:
    assert group_makespan(
        CutOption(Cut(1, 1), count, seconds=(0.1,)), SlotPool.of_devices([slots], [1.0], [1])
    ) == pytest.approx(full * 0.1)


def test_if_nothing_has_room_the_makespan_is_infinite() -> None:
    assert (
        group_makespan(
            CutOption(Cut(1, 1), 1, seconds=(math.inf, 1.0)), SlotPool.of_devices([1, 1], [1.0, 1.0], [1, 0])
        )
        == math.inf
    )


@settings(max_examples=60)
@given(seed=some.integers(0, 59))
def test_the_shortest_makespan_of_all_combinations_is_found(seed: int) -> None:
    rng = random.Random(seed)
    kinds = rng.randint(1, 2)
    slot_pool = cluster(rng, kinds)
    groups = [options(rng, kinds, rng.randint(1, 4)) for _ in range(rng.randint(1, 3))]
    groups = [[option for option in group if math.isfinite(min(option.seconds))] for group in groups]
    least = min(makespan(picked, slot_pool) for picked in itertools.product(*groups))
    assert makespan(minimise_makespan(groups, slot_pool), slot_pool) == pytest.approx(least)


@pytest.mark.slow
@settings(max_examples=20)
@given(seed=some.integers(0, 19))
def test_smaller_cohorts_cost_no_more_than_they_are_worth(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        slot_pool = cluster(rng, 1)
        groups = [options(rng, 1, 4) for _ in range(rng.randint(1, 4))]
        exact, tolerant = minimise_makespan(groups, slot_pool), minimise_makespan(groups, slot_pool, tolerance=1.5)
        assert makespan(tolerant, slot_pool) <= 1.5 * makespan(exact, slot_pool) * (1 + 1e-9)


def test_the_smallest_cohorts_that_cost_little_are_taken() -> None:
    """On one slot, singly for 3.2 s in all, or in pairs for 3.1 s, or at once for 3 s."""
    group = [
        CutOption(Cut(4, 4), 1, seconds=(3.0,)),
        CutOption(Cut(2, 2), 2, seconds=(1.55,)),
        CutOption(Cut(1, 1), 4, seconds=(0.8,)),
    ]
    one_slot = SlotPool.of_devices([1], [1.0], [1])
    assert [minimise_makespan([group], one_slot, worth)[0].cut.size for worth in (1.0, 1.04, 1.1)] == [4, 2, 1]
    assert [option.cut.size for option in minimise_makespan([group, group], one_slot, tolerance=1.1)] == [1, 1]


def test_a_queue_is_worked_off_by_each_device_at_its_speed() -> None:
    """Four seconds of work and the rest of the longest, on a device of speed 1 and one of 3, which two share."""
    slot_pool = SlotPool.of_devices([1, 1], [1.0, 3.0], [1, 2])
    cohort = CutOption(Cut(1, 1), 4, seconds=(1.0, 2 / 3))
    assert slot_pool.length(cohort) == pytest.approx(1.0)
    assert slot_pool.graham_bound(4.0, 1.0) == pytest.approx((4 + 2) / 4)


def in_turn(jobs: Sequence[Sequence[float]], slot_pool: SlotPool) -> float:
    """Return the makespan if each job in turn goes to the slot that ends it soonest."""
    kinds = slots_of(slot_pool)
    busy = [0.0] * len(kinds)
    for job in jobs:
        slot = min(range(len(kinds)), key=lambda slot: busy[slot] + job[kinds[slot]])
        busy[slot] += job[kinds[slot]]
    return max(busy)


@settings(max_examples=60)
@given(seed=some.integers(0, 59))
def test_the_bound_holds_on_equal_devices_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    slot_pool = cluster(rng, 1)
    picked = [rng.choice(options(rng, 1, 4)) for _ in range(rng.randint(1, 4))]
    jobs = [option.seconds for option in picked for _ in range(option.count)]
    assert in_turn(jobs, slot_pool) <= makespan(picked, slot_pool) * (1 + 1e-9)
    longest, work = max(job[0] for job in jobs), sum(job[0] for job in jobs)
    for _ in range(10):
        rng.shuffle(jobs)
        slots = sum(slot_pool.slots)
        assert in_turn(jobs, slot_pool) <= (work + (slots - 1) * longest) / slots * (1 + 1e-9)


@settings(max_examples=60)
@given(seed=some.integers(0, 59))
def test_cohorts_are_assigned_in_their_order_to_where_they_end_soonest(seed: int) -> None:
    rng = random.Random(seed)
    kinds = rng.randint(1, 3)
    slot_pool = cluster(rng, kinds)
    picked = [rng.choice(options(rng, kinds, 4)) for _ in range(rng.randint(1, 4))]
    picked = [option for option in picked if math.isfinite(min(option.seconds))]
    assert list_schedule(picked, slot_pool) == pytest.approx(
        in_turn([option.seconds for option in picked for _ in range(option.count)], slot_pool) if picked else 0
    )


def test_small_groups_share_the_slots_instead_of_being_spread_over_them() -> None:
    """Eight groups, each of three in one stack for 6 s, or singly for 4 s each: at once on eight slots, or not."""
    group = [CutOption(Cut(3, 3), 1, seconds=(6.0,)), CutOption(Cut(1, 1), 3, seconds=(4.0,))]
    eight = SlotPool.of_devices([8], [1.0], [1])
    assert [option.cut.size for option in minimise_makespan([group] * 8, eight)] == [3] * 8
    assert makespan(minimise_makespan([group] * 8, eight), eight) == 6.0
    assert minimise_makespan([group], eight)[0].cut.size == 1
