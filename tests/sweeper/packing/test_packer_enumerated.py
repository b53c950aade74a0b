"""Packings beside every choice there is, enumerated by a formulation of its own."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from sweeper.packing import workloads as workloads
from sweeper.packing.devices import MEMORY_MARGIN, Devices
from sweeper.packing.packer import SECONDS_A_COHORT, WORTH, Packing, pack
from sweeper.packing.workloads import Workload
from sweeper.plan.cohorts import Cut, cut
from tests.sweeper.packing.measured import MIB, Measured, members


class Case(NamedTuple):
    workload: Workload
    kind: Devices


def case(seed: int) -> Case:
    some = random.Random(seed)
    widths = [width for width in (1, 2, 4, 8) if width == 1 or some.random() < 0.7]
    measured = [
        Measured(w, some.uniform(0.2, 1.0), (20 + w * some.randint(5, 15)) * MIB, some.choice([0, 3 * MIB]))
        for w in widths
    ]
    measured = [one._replace(bytes=max(m.bytes for m in measured[: i + 1])) for i, one in enumerate(measured)]
    group = members(*[some.randint(1, 7) for _ in range(some.randint(1, 3))])
    overlap = {8: {2: some.uniform(1, 2), 4: some.uniform(2, 4)}} if some.random() < 0.7 else {}
    kind = Devices(
        some.randint(1, 4), some.randint(60, 900) * MIB, cores=some.randint(1, 6), overhead=5 * MIB, overlap=overlap
    )
    return Case(Workload(group, measured, some.choice([1, 10, 100])), kind)


def stack_seconds(measured: Sequence[workloads.Measured], width: int) -> float:
    """Of a step, by the polygon through what was measured."""
    if not width:
        return 0.0
    points = [(0, 0.0), *((one.width, one.width * one.seconds) for one in measured)]
    for (left, low), (right, high) in itertools.pairwise(points):
        if left <= width <= right:
            return low + (high - low) * (width - left) / (right - left)
    return dict(points)[width]


def needed(measured: Sequence[workloads.Measured], longest: int, width: int) -> int:
    stacked = next(one for one in measured if one.width >= width)
    return stacked.bytes + (longest - width) * stacked.held


def every_choice(workload: Workload, kind: Devices) -> dict[tuple[int, int, int], float]:
    """(processes on a device, size, width) -> seconds, of all that fit."""
    found = {}
    total = sum(map(len, workload.members))
    for sharing in [n for n in ([1, 2, 4] if kind.overlap else [1]) if n <= kind.cores]:
        for size in range(1, total + 1):
            lengths = [len(cohort.trials) for cohort in cut([workload.members], [Cut(size, 1)])]
            tried = {m.width for m in workload.measured} | {max(lengths)}
            for width in (w for w in tried if w <= min(max(lengths), workload.measured[-1].width)):
                if (
                    needed(workload.measured, max(lengths), width) + kind.overhead
                ) * sharing > MEMORY_MARGIN * kind.bytes:
                    continue
                step, left = 0.0, max(lengths)
                while left:
                    step += stack_seconds(workload.measured, min(width, left))
                    left -= min(width, left)
                ratio = 1.0 if sharing == 1 else kind.overlap[8][sharing]
                slots = [0.0] * (kind.count * sharing)
                for _ in lengths:
                    slots[slots.index(min(slots))] += SECONDS_A_COHORT + workload.steps * step * ratio
                found[sharing, size, width] = max(slots)
    return found


@pytest.mark.parametrize("seed", range(80))
def test_no_choice_ends_much_sooner(seed: int) -> None:
    workload, kind = case(seed)
    all_of_them = every_choice(workload, kind)
    packed = pack([workload], [kind])
    if not all_of_them:
        assert packed.cuts == (Cut(1, 1),) and packed.shares == (1,)
        return
    best = min(all_of_them.values())
    (by,), (sharing,) = packed.cuts, packed.shares
    assert packed.seconds == pytest.approx(all_of_them[sharing, by.size, by.width])
    assert best <= packed.seconds * (1 + 1e-9) and packed.seconds <= WORTH * best * (1 + 1e-9)
    assert sharing == min(n for (n, _, _), time in all_of_them.items() if time <= WORTH * best * (1 + 1e-9))


def exact(workload: Workload, kind: Devices, monkeypatch: pytest.MonkeyPatch) -> Packing:
    """The very soonest, without anything given for smaller cohorts."""
    monkeypatch.setattr("sweeper.packing.packer.WORTH", 1.0)
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
        replace(kind, overlap={8: {2: 1.0, 4: 1.0}}),
    ):
        assert exact(workload, more, monkeypatch).seconds <= before


@pytest.mark.parametrize("seed", range(40))
def test_the_order_of_measurements_does_not_matter(seed: int) -> None:
    workload, kind = case(seed)
    assert pack([replace(workload, measured=workload.measured[::-1])], [kind]) == pack([workload], [kind])


@pytest.mark.parametrize("seed", range(40))
def test_the_margin_is_kept(seed: int) -> None:
    """By what the largest cohort needs, on every kind that is given one, whatever the groups."""
    cases = [case(seed + 1000 * group) for group in range(3)]
    kinds = [replace(cases[0].kind, bytes=900 * MIB), replace(cases[1].kind, bytes=300 * MIB)]
    packed = pack([one.workload for one in cases], kinds)
    for workload, by, parts in zip([one.workload for one in cases], packed.cuts, packed.parts, strict=True):
        longest = max(len(cohort.trials) for cohort in cut([workload.members], [by]))
        assert sum(parts) == len(cut([workload.members], [by]))
        for kind, share, part in zip(kinds, packed.shares, parts, strict=True):
            if part:
                need = needed(workload.measured, longest, by.width) + kind.overhead
                assert need <= MEMORY_MARGIN * kind.bytes / share


def test_another_kind_is_never_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeper.packing.packer.WORTH", 1.0)
    for seed in range(20):
        workload, kind = case(seed)
        if every_choice(workload, kind):
            other = replace(case(seed + 500).kind, speed=0.3)
            assert pack([workload], [kind, other]).seconds <= pack([workload], [kind]).seconds * (1 + 1e-9)
