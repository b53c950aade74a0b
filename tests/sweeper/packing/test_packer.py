"""What is chosen of measured groups, by cases and against every choice."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sweeper.packing.cluster import MEMORY_MARGIN, Devices
from sweeper.packing.packer import TOLERANCE, Packing, pack
from sweeper.packing.workloads import COHORT_START_SECONDS, Workload
from sweeper.planning.cohorts import Cohort, Cut, Group, cut, parts
from tests.cases import for_each
from tests.sweeper.packing.fake_cluster import (
    EACH_100_MIB,
    FLAT,
    FOUR_OF_EIGHT,
    LONG,
    MIB,
    PLENTY,
    STACKING_COSTS,
    STACKING_PAYS,
    measurement,
    members,
)
from trainables.training.measurement import Measurement


def choose(measurements: Sequence[Measurement], group: Group, steps: int, slots: int, memory: int) -> Cut:
    """Return the cut of one group for devices that are not shared."""
    return pack([Workload(group, measurements, steps)], [Devices(slots, memory)]).cuts[0]


def cohorts_of(group: Group, group_cut: Cut) -> tuple[Cohort, ...]:
    return cut([group], [group_cut])


def test_members_are_stacked_where_that_is_faster() -> None:
    assert choose(STACKING_PAYS, FOUR_OF_EIGHT, steps=10_000, slots=1, memory=PLENTY) == Cut(32, 32)


def test_members_are_stepped_in_turn_where_stacking_is_slower() -> None:
    assert choose(STACKING_COSTS, FOUR_OF_EIGHT, steps=10_000, slots=2, memory=PLENTY).width == 1


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_every_slot_gets_its_share(slots: int) -> None:
    assert len(cohorts_of(FOUR_OF_EIGHT, choose(STACKING_PAYS, FOUR_OF_EIGHT, 10_000, slots, PLENTY))) >= slots


@pytest.mark.parametrize(("memory", "width"), [(1000, 8), (799, 4), (0, 1)])
def test_a_stack_that_does_not_fit_is_not_chosen(memory: int, width: int) -> None:
    assert choose(EACH_100_MIB, FOUR_OF_EIGHT, steps=10_000, slots=1, memory=memory * MIB + 1).width == width


def test_smaller_cohorts_win_where_they_cost_little() -> None:
    """With a hundred seconds per member, the start of a cohort costs next to nothing, so cohorts are small."""
    assert choose(FLAT, FOUR_OF_EIGHT, steps=100_000, slots=1, memory=PLENTY).size == 1
    assert choose(FLAT, FOUR_OF_EIGHT, steps=10, slots=1, memory=PLENTY).size == 32


def test_trials_that_could_not_be_measured_train_alone() -> None:
    assert choose([], members(2, 2), steps=10, slots=2, memory=1) == Cut(1, 1)


@pytest.mark.parametrize(("steps", "most"), [(0, 10), (2, 10)])
def test_trials_of_no_or_hardly_any_step_do_not_make_a_cohort_each(steps: int, most: int) -> None:
    """560 trials on two cores: to start a cohort for each would take 112 s, while all work takes 3 s per core."""
    workload = Workload(members(*[56] * 10), STACKING_PAYS if steps else [], steps)
    packing = pack([workload], [Devices(2, PLENTY)])
    (cut,) = packing.cuts
    assert len(parts(workload.group, cut.size)) <= most and packing.seconds < 6
    assert steps or (cut.size <= 64 and cut.width == 8)


def test_a_few_trials_without_a_step_end_at_once() -> None:
    assert choose([], members(1, 1), steps=0, slots=2, memory=PLENTY).size <= 2
    assert choose([], members(1), steps=0, slots=2, memory=PLENTY) == Cut(1, 1)
    (settled,) = pack([Workload(members(56), [], 0, settled_cut=Cut(7, 7))], [Devices(2, PLENTY)]).cuts
    assert settled == Cut(7, 7)


def test_trials_that_fit_nowhere_train_alone_on_a_device_of_their_own() -> None:
    large = [measurement(1, 1e-3, 900 * MIB), measurement(2, 1e-3, 1800 * MIB)]
    packed = pack([Workload(members(4), large, 10), Workload(members(4), [], 10)], [Devices(2, 1000 * MIB, cores=8)])
    assert packed.cuts == (Cut(1, 1), Cut(1, 1)) and packed.slots_per_device == (1,)


def test_one_measurement_is_enough() -> None:
    assert choose([measurement(1, 1e-3)], members(1), steps=1, slots=8, memory=PLENTY) == Cut(1, 1)


@pytest.mark.parametrize(
    ("lengths", "slots", "longest"), [([1000], 7, 143), ([1000], 3, 334), ([56] * 10, 3, 224), ([56] * 99, 5, 1120)]
)
def test_large_groups_are_split_over_slots_evenly_and_in_whole_streams(
    lengths: list[int], slots: int, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes hardly longer for a wider stack, so one round is fastest. Three slots get four, four and two of ten
    streams; cohorts of a third of all trials would leave one stream behind."""
    monkeypatch.setattr("sweeper.packing.packer.TOLERANCE", 1.0)
    flat = [measurement(2**k, 1e-3 / 2**k + 1e-13) for k in range(12)]
    packed = pack([Workload(members(*lengths), flat, 10_000)], [Devices(slots, PLENTY)])
    assert packed.seconds == pytest.approx(COHORT_START_SECONDS + 10)
    cohorts = cohorts_of(members(*lengths), packed.cuts[0])
    assert len(cohorts) == slots and max(len(cohort.trials) for cohort in cohorts) == longest


def test_cohorts_are_as_large_as_a_full_stack_where_that_is_soonest() -> None:
    """Five stacks of up to 16 members. A cohort of 20 would make two steps, and there would be seven cohorts of 15."""
    flat = [measurement(2**k, 1e-3 / 2**k, 2**k * MIB, held=MIB) for k in range(6)]
    packed = pack([Workload(members(20, 16, 16, 8), flat, 10_000)], [Devices(1, 20 * MIB)])
    assert packed.cuts == (Cut(16, 16),) and packed.seconds == pytest.approx(5 * (COHORT_START_SECONDS + 10))


def test_a_fixed_cut_is_kept_and_its_placement_chosen() -> None:
    """A stack of eight needs 800 MiB: two share a device of 2,000 MiB, four a device of 4,000 MiB."""
    free = {8: dict.fromkeys((2, 4), 1.0)}
    workload = Workload(FOUR_OF_EIGHT, EACH_100_MIB, 10_000, settled_cut=Cut(8, 8))
    for mebibytes, sharing in ((2000, 2), (4000, 4), (500, 1)):
        packed = pack([workload], [Devices(1, mebibytes * MIB, cores=8, slowdowns=free)])
        assert packed.cuts == (Cut(8, 8),) and packed.slots_per_device == (sharing,)


# Sharing a device.


def test_without_a_measured_gain_no_device_is_shared() -> None:
    assert pack([LONG], [Devices(2, PLENTY, cores=16)]).slots_per_device == (1,)


@pytest.mark.parametrize(
    ("gibibytes", "cores", "overhead", "sharing"), [(8, 16, 0, 8), (0.5, 16, 0, 4), (0.5, 16, 100, 2), (8, 3, 0, 3)]
)
def test_if_sharing_costs_nothing_memory_and_cores_limit_it(
    gibibytes: float, cores: int, overhead: int, sharing: int
) -> None:
    free = {1: dict.fromkeys(range(2, 9), 1.0)}
    kind = Devices(1, int(gibibytes * 2**30), cores, overhead=overhead * MIB, slowdowns=free)
    assert pack([LONG], [kind]).slots_per_device == (sharing,)


def test_a_device_is_shared_as_long_as_that_gains() -> None:
    """Three processes take 1.5 times as long as one, so they do the work of two; a fourth gains nothing."""
    packed = pack([LONG], [Devices(1, PLENTY, cores=16, slowdowns={1: {2: 1.2, 3: 1.5}})])
    assert packed.slots_per_device == (3,)
    assert packed.seconds == pytest.approx(11 * (COHORT_START_SECONDS + 150), rel=TOLERANCE - 1)


def test_a_requested_share_is_kept() -> None:
    packed = pack([LONG], [Devices(2, 1000 * MIB, cores=16)], slots_per_device=[4])
    assert packed.slots_per_device == (4,) and packed.seconds == pytest.approx(
        4 * (COHORT_START_SECONDS + 400), rel=0.1
    )
    assert pack([LONG], [Devices(2, 400 * MIB)], slots_per_device=[4]).cuts == (Cut(1, 1),)


def test_members_that_wait_their_turn_take_memory_too() -> None:
    """The member that is stepped needs 100 MiB, each other member 50 MiB: 800 MiB hold 15 members."""
    in_turn = [measurement(1, 1e-6, 100 * MIB, 50 * MIB)]
    assert choose(in_turn, members(32), steps=1, slots=1, memory=1000 * MIB).size <= 15
    assert choose([replace(in_turn[0], held=0)], members(32), steps=1, slots=1, memory=1000 * MIB).size == 32


def test_no_stack_needs_more_than_a_wider_one() -> None:
    """The first width that is measured includes what the first step of a process loads."""
    first = [measurement(1, 1e-3, 900 * MIB), measurement(2, 2e-3, 100 * MIB), measurement(4, 1e-4, 400 * MIB)]
    assert choose(first, members(8), steps=10_000, slots=1, memory=200 * MIB).width == 1
    assert choose(first, members(8), steps=10_000, slots=1, memory=600 * MIB).width == 4


# Several kinds of device.


def test_each_kind_of_device_is_shared_by_as_many_as_it_holds() -> None:
    free = {1: dict.fromkeys(range(2, 9), 1.0)}
    kinds = [Devices(1, 1000 * MIB, 16, slowdowns=free), Devices(1, 500 * MIB, 16, slowdowns=free)]
    packed = pack([replace(LONG, group=members(24))], kinds)
    assert packed.slots_per_device == (8, 4)


def test_a_faster_kind_takes_more() -> None:
    kinds = [Devices(1, PLENTY, speed=3.0), Devices(1, PLENTY)]
    packed = pack([LONG], kinds)
    assert packed.slots_per_device == (1, 1)
    assert packed.seconds == pytest.approx(8 * (COHORT_START_SECONDS + 100), rel=0.01)


def test_a_kind_that_is_slow_or_has_no_room_is_not_used() -> None:
    for other in (Devices(1, PLENTY, speed=0.01), Devices(1, 100 * MIB)):
        packed = pack([LONG], [Devices(4, PLENTY), other])
        assert packed.slots_per_device == (1, 0)


# Several groups.


def test_small_groups_are_not_spread_over_all_devices() -> None:
    """Eight groups of three on eight devices: each group is a stack on a device of its own, and none waits."""
    packed = pack([Workload(members(3), STACKING_PAYS, 10_000)] * 8, [Devices(8, PLENTY)])
    assert packed.cuts == (Cut(3, 3),) * 8
    alone = pack([Workload(members(3), STACKING_PAYS, 10_000)], [Devices(1, PLENTY)])
    assert packed.seconds == pytest.approx(alone.seconds)


def test_no_trials_take_no_time() -> None:
    assert pack([], [Devices(1, 1)]) == Packing((), [], (Devices(1, 1),), (1,), 0.0)


def test_hours_and_cost_are_those_of_the_nodes_that_are_used() -> None:
    used, idle = Devices(6, PLENTY, node_price=10.0, node_devices=4), Devices(1, MIB, node_price=99.0)
    packed = pack([LONG], [used, idle])
    assert packed.hours == pytest.approx(6 * (COHORT_START_SECONDS + 100) / 3600) and packed.slots_per_device == (1, 0)
    assert packed.cost == pytest.approx(2 * 10.0 * packed.hours)
    assert replace(packed, devices=(replace(used, node_price=None), idle)).cost is None
    assert replace(packed, devices=(used, replace(idle, node_price=None))).cost is not None


class Case(NamedTuple):
    workload: Workload
    kind: Devices


def case(seed: int) -> Case:
    rng = random.Random(seed)
    widths = [width for width in (1, 2, 4, 8) if width == 1 or rng.random() < 0.7]
    measured = [
        measurement(w, rng.uniform(0.2, 1.0), (20 + w * rng.randint(5, 15)) * MIB, rng.choice([0, 3 * MIB]))
        for w in widths
    ]
    measured = [replace(stack, bytes=max(m.bytes for m in measured[: i + 1])) for i, stack in enumerate(measured)]
    group = members(*[rng.randint(1, 7) for _ in range(rng.randint(1, 3))])
    slowdowns = {8: {2: rng.uniform(1, 2), 4: rng.uniform(2, 4)}} if rng.random() < 0.7 else {}
    kind = Devices(
        rng.randint(1, 4), rng.randint(60, 900) * MIB, cores=rng.randint(1, 6), overhead=5 * MIB, slowdowns=slowdowns
    )
    return Case(Workload(group, measured, rng.choice([1, 10, 100])), kind)


def stack_seconds(measured: Sequence[Measurement], width: int) -> float:
    """Return the seconds of a step, interpolated linearly between the measurements."""
    if not width:
        return 0.0
    points = [(0, 0.0), *((stack.width, stack.width * stack.seconds) for stack in measured)]
    for (left, low), (right, high) in itertools.pairwise(points):
        if left <= width <= right:
            return low + (high - low) * (width - left) / (right - left)
    return dict(points)[width]


def needed(measured: Sequence[Measurement], longest: int, width: int) -> int:
    stacked = next(stack for stack in measured if stack.width >= width)
    return stacked.bytes + (longest - width) * stacked.held


def every_choice(workload: Workload, kind: Devices) -> dict[tuple[int, int, int], float]:
    """Return (processes on a device, size, width) -> seconds, of all choices that fit."""
    choices = {}
    total = sum(map(len, workload.group))
    for sharing in [n for n in ([1, 2, 4] if kind.slowdowns else [1]) if n <= kind.cores]:
        for size in range(1, total + 1):
            lengths = [len(cohort.trials) for cohort in cut([workload.group], [Cut(size, 1)])]
            tried = {m.width for m in workload.measurements} | {max(lengths)}
            for width in (w for w in tried if w <= min(max(lengths), workload.measurements[-1].width)):
                if (
                    needed(workload.measurements, max(lengths), width) + kind.overhead
                ) * sharing > MEMORY_MARGIN * kind.bytes:
                    continue
                step, left = 0.0, max(lengths)
                while left:
                    step += stack_seconds(workload.measurements, min(width, left))
                    left -= min(width, left)
                ratio = 1.0 if sharing == 1 else kind.slowdowns[8][sharing]
                slots = [0.0] * (kind.count * sharing)
                for _ in lengths:
                    slots[slots.index(min(slots))] += COHORT_START_SECONDS + workload.steps * step * ratio
                choices[sharing, size, width] = max(slots)
    return choices


@settings(max_examples=80)
@given(seed=some.integers(0, 79))
def test_no_choice_ends_much_sooner(seed: int) -> None:
    workload, kind = case(seed)
    all_choices = every_choice(workload, kind)
    packed = pack([workload], [kind])
    if not all_choices:
        assert packed.cuts == (Cut(1, 1),) and packed.slots_per_device == (1,)
        return
    best = min(all_choices.values())
    (chosen,), (sharing,) = packed.cuts, packed.slots_per_device
    assert packed.seconds == pytest.approx(all_choices[sharing, chosen.size, chosen.width])
    assert best <= packed.seconds * (1 + 1e-9) and packed.seconds <= TOLERANCE * best * (1 + 1e-9)
    assert sharing == min(n for (n, _, _), time in all_choices.items() if time <= TOLERANCE * best * (1 + 1e-9))


def exact(workload: Workload, kind: Devices, monkeypatch: pytest.MonkeyPatch) -> Packing:
    """Return the packing with the least makespan, with no allowance for smaller cohorts."""
    monkeypatch.setattr("sweeper.packing.packer.TOLERANCE", 1.0)
    return pack([workload], [kind])


@for_each("seed", range(40))
def test_more_of_anything_is_never_slower(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    workload, kind = case(seed)
    if not every_choice(workload, kind):
        return
    before = exact(workload, kind, monkeypatch).seconds * (1 + 1e-9)
    for more in (
        replace(kind, bytes=kind.bytes * 3 // 2),
        replace(kind, count=kind.count + 1),
        replace(kind, cores=kind.cores + 1),
        replace(kind, speed=1.5),
        replace(kind, overhead=0),
        replace(kind, slowdowns={8: {2: 1.0, 4: 1.0}}),
    ):
        assert exact(workload, more, monkeypatch).seconds <= before


@settings(max_examples=40)
@given(seed=some.integers(0, 39))
def test_the_order_of_measurements_does_not_matter(seed: int) -> None:
    workload, kind = case(seed)
    reordered = pack([replace(workload, measurements=workload.measurements[::-1])], [kind])
    assert replace(reordered, workloads=[workload]) == pack([workload], [kind])


@settings(max_examples=40)
@given(seed=some.integers(0, 39))
def test_the_margin_is_kept(seed: int) -> None:
    """The largest cohort of each group fits on a kind of device that is used."""
    cases = [case(seed + 1000 * group) for group in range(3)]
    kinds = [replace(cases[0].kind, bytes=900 * MIB), replace(cases[1].kind, bytes=300 * MIB)]
    workloads = [each.workload for each in cases]
    packed = pack(workloads, kinds)
    for workload, group_cut in zip(workloads, packed.cuts, strict=True):
        longest = max(len(cohort.trials) for cohort in cut([workload.group], [group_cut]))
        need = needed(workload.measurements, longest, group_cut.width)
        assert any(
            (need + kind.overhead) * slots <= MEMORY_MARGIN * kind.bytes
            for kind, slots in zip(kinds, packed.slots_per_device, strict=True)
            if slots
        )


def test_another_kind_is_never_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeper.packing.packer.TOLERANCE", 1.0)
    for seed in range(20):
        workload, kind = case(seed)
        if every_choice(workload, kind):
            other = replace(case(seed + 500).kind, speed=0.3)
            assert pack([workload], [kind, other]).seconds <= pack([workload], [kind]).seconds * (1 + 1e-9)
