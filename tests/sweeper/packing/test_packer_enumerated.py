"""Packings compared with every possible choice, enumerated by an independent formulation."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from sweeper.packing.packer import COHORT_START_SECONDS, TOLERANCE, Packing, pack
from sweeper.packing.profiling.devices import MEMORY_MARGIN, Devices
from sweeper.packing.profiling.workloads import Workload
from sweeper.plan.cohorts import Cut, cut
from tests.sweeper.packing.measured import MIB, measurement, members
from trainables.training.measurement import Measurement


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


@pytest.mark.parametrize("seed", range(80))
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


@pytest.mark.parametrize("seed", range(40))
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


@pytest.mark.parametrize("seed", range(40))
def test_the_order_of_measurements_does_not_matter(seed: int) -> None:
    workload, kind = case(seed)
    assert pack([replace(workload, measurements=workload.measurements[::-1])], [kind]) == pack([workload], [kind])


@pytest.mark.parametrize("seed", range(40))
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
