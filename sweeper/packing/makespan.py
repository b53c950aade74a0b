"""Cohorts on the slots of a cluster: when they have all ended, and which ways to cut them end soonest.

Three ends are sure, of which the soonest counts. One group follows the other, each in full rounds. Or all cohorts stand
in one queue: no slot is idle while one waits, so in whatever order they end, by Graham's bound, by the work over the
slots and all but one slot's part of the longest cohort. Or none has to wait for a slot. The first is least where every
group has its least, the others where every group has its least of what the longest cohort leaves it: so the least over
all combinations is found without trying them. Where devices differ, a cohort goes where it ends soonest.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweeper.plan.cohorts import Cut


@dataclass(frozen=True)
class CutOption:
    """One way to cut a group."""

    cut: Cut
    count: int
    """Cohorts."""
    seconds: tuple[float, ...]
    """Of a cohort on each kind of device, infinite where it has no room."""


@dataclass(frozen=True)
class SlotPool:
    """Where cohorts run at a time."""

    slots: tuple[int, ...]
    """Of each kind of device."""
    paces: tuple[float, ...]
    """Of each kind: by what a slot is slower than a whole device of speed 1, if devices that are shared gain nothing;
    infinite where there are no slots."""

    @classmethod
    def of(cls, counts: Sequence[int], speeds: Sequence[float], shares: Sequence[int]) -> SlotPool:
        """Of each kind so many devices of such speed, each with so many slots."""
        return cls(
            tuple(count * share for count, share in zip(counts, shares, strict=True)),
            tuple(share / speed if share else math.inf for speed, share in zip(speeds, shares, strict=True)),
        )

    def length(self, option: CutOption) -> float:
        """Of a cohort, in seconds at pace 1, so that it takes this times the pace at most, wherever it runs."""
        pairs = zip(option.seconds, self.paces, strict=True)
        return max(seconds / pace for seconds, pace in pairs if math.isfinite(pace))

    def queued(self, work: float, longest: float) -> float:
        """When a queue has ended whose cohorts have so much work together, in `length`."""
        return (work + (sum(self.slots) - 1) * longest) / sum(
            slots / pace for slots, pace in zip(self.slots, self.paces, strict=True)
        )

    def at_once(self, cohorts: float, longest: float) -> float:
        """When they have ended if none has to wait; infinite where one has."""
        slowest = max(pace for pace in self.paces if math.isfinite(pace))
        return longest * slowest if cohorts <= sum(self.slots) else math.inf


def makespan(picked: Sequence[CutOption], slot_pool: SlotPool) -> float:
    """Seconds until all cohorts have ended, at the latest, each group cut as picked."""
    longest = max((slot_pool.length(one) for one in picked), default=0.0)
    work = sum(one.count * slot_pool.length(one) for one in picked)
    return min(
        sum(rounds(one, slot_pool) for one in picked),
        slot_pool.queued(work, longest),
        slot_pool.at_once(sum(one.count for one in picked), longest),
    )


def rounds(option: CutOption, slot_pool: SlotPool) -> float:
    """When a group has ended that has all slots, each cohort going where it ends soonest."""
    there = [(seconds, slots) for seconds, slots in zip(option.seconds, slot_pool.slots, strict=True) if slots]
    rate = sum(slots / seconds for seconds, slots in there)
    if not rate:
        return math.inf
    done = [int(option.count / rate / seconds * (1 - 1e-9)) for seconds, _ in there]
    left = option.count - sum(count * slots for count, (_, slots) in zip(done, there, strict=True))
    end = 0.0
    while left > 0:
        end, kind = min(((count + 1) * there[kind][0], kind) for kind, count in enumerate(done))
        done[kind] += 1
        left -= there[kind][1]
    return end


def list_schedule(picked: Sequence[CutOption], slot_pool: SlotPool) -> tuple[list[list[int]], float]:
    """How many cohorts of each group go to each kind of device, and when all have ended: in their order, each cohort is
    taken where it ends soonest."""
    free = [[0.0] * slots for slots in slot_pool.slots]
    parts = [[0] * len(free) for _ in picked]
    end = 0.0
    for part, option in zip(parts, picked, strict=True):
        for _ in range(option.count):
            time, kind = min((free[kind][0] + option.seconds[kind], kind) for kind in range(len(free)) if free[kind])
            heapq.heapreplace(free[kind], time)
            part[kind] += 1
            end = max(end, time)
    return parts, end


def minimise_makespan(
    groups: Sequence[Sequence[CutOption]], slot_pool: SlotPool, worth: float = 1.0
) -> list[CutOption]:
    """Of each group the option with which all end soonest, or smaller cohorts if they take at most `worth` times as
    long."""
    if not groups:
        return []

    def whole_rounds(option: CutOption) -> float:
        return rounds(option, slot_pool)

    def work(option: CutOption) -> float:
        return option.count * slot_pool.length(option)

    def cohorts(option: CutOption) -> float:
        return option.count

    at_once, longest = _shortest(groups, slot_pool, cohorts, slot_pool.at_once)
    queued, longest_queued = _shortest(groups, slot_pool, work, slot_pool.queued)
    one_by_one = sum(min(map(whole_rounds, group)) for group in groups)
    least = min(at_once, queued, one_by_one)
    found = []
    if at_once <= worth * least:
        found.append(_cheapest(_up_to(longest, groups, slot_pool), cohorts, 1.0))
    if queued <= worth * least:
        found.append(_cheapest(_up_to(longest_queued, groups, slot_pool), work, worth * least / queued))
    if one_by_one <= worth * least:
        found.append(_cheapest(groups, whole_rounds, worth * least / one_by_one))
    return max(found, key=lambda picked: sum(one.count for one in picked))


def _cheapest(
    groups: Sequence[Sequence[CutOption]], cost: Callable[[CutOption], float], worth: float
) -> list[CutOption]:
    """Of each group what costs least, or the smallest cohorts that cost at most `worth` times as much."""
    found = []
    for group in groups:
        costs = [cost(one) for one in group]
        kept = [
            (one.cut.size, price, one.cut.width, place)
            for place, (price, one) in enumerate(zip(costs, group, strict=True))
            if price <= worth * min(costs)
        ]
        found.append(group[min(kept)[-1]])
    return found


def _up_to(longest: float, groups: Sequence[Sequence[CutOption]], slot_pool: SlotPool) -> list[list[CutOption]]:
    return [[one for one in group if slot_pool.length(one) <= longest] for group in groups]


def _shortest(
    groups: Sequence[Sequence[CutOption]],
    slot_pool: SlotPool,
    cost: Callable[[CutOption], float],
    end: Callable[[float, float], float],
) -> tuple[float, float]:
    """The soonest end, and the longest cohort to allow for it, if of what is allowed each group takes the cheapest."""
    ordered = sorted((slot_pool.length(one), cost(one), place) for place, group in enumerate(groups) for one in group)
    least = [math.inf] * len(groups)
    best = (math.inf, math.inf)
    for length, price, place in ordered:
        if math.isfinite(length) and price < least[place]:
            least[place] = price
            best = min(best, (end(math.fsum(least), length), length))
    return best
