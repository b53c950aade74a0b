"""The makespan of groups of cohorts on slots, and the options of least makespan.

Notation: group g is cut into c_g cohorts of length l_g, in seconds at pace 1
(see `SlotPool.length`), and L is the largest l_g. Device kind k has m_k slots of pace p_k, and M is the sum of all m_k.
The makespan has three upper bounds:

1. One group after the other, each on all slots: the sum over g of `group_makespan` of group g.
2. All cohorts in one queue (Graham's bound): (W + (M - 1) L) / sum_k(m_k / p_k), with the work W = sum_g(c_g l_g).
   It holds in whatever order the cohorts start, provided that each goes to the slot where it ends soonest.
3. No cohort waits for a slot: L times the largest p_k if sum_g(c_g) <= M, else infinite.

The smallest of the three is itself an upper bound, and `makespan` returns it. To minimise it no combinations of options
have to be tried. Bound 1 is least where each group takes its least option. Bounds 2 and 3 depend on L and on one sum
over the groups, so for each candidate L every group takes its cheapest option that is no longer than L.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from sweeper.packing.workloads import CutOption


@dataclass(frozen=True)
class SlotPool:
    """The slots on which cohorts run at once."""

    slots: tuple[int, ...]
    """Number of slots on each kind of device."""
    paces: tuple[float, ...]
    """Slowdown of a slot of each kind relative to a whole device of speed 1 (dimensionless), if sharing a device gains
    nothing; infinite for kinds without slots."""

    @classmethod
    def of_devices(cls, counts: Sequence[int], speeds: Sequence[float], slots_per_device: Sequence[int]) -> SlotPool:
        """Return the slots of `counts` devices of each kind, with the given speeds."""
        return cls(
            tuple(count * slots for count, slots in zip(counts, slots_per_device, strict=True)),
            tuple(slots / speed if slots else math.inf for speed, slots in zip(speeds, slots_per_device, strict=True)),
        )

    def length(self, option: CutOption) -> float:
        """Return the seconds of a cohort at pace 1: on a slot of pace p it takes at most p times as long."""
        pairs = zip(option.seconds, self.paces, strict=True)
        return max(seconds / pace for seconds, pace in pairs if math.isfinite(pace))

    def work(self, option: CutOption) -> float:
        """Return the sum of the lengths of a group's cohorts, in seconds."""
        return option.count * self.length(option)

    def graham_bound(self, work: float, longest: float) -> float:
        """Return bound 2, in seconds; `work` is the sum of all cohorts' lengths, `longest` the largest of them."""
        return (work + (sum(self.slots) - 1) * longest) / sum(
            slots / pace for slots, pace in zip(self.slots, self.paces, strict=True)
        )

    def parallel_bound(self, cohorts: float, longest: float) -> float:
        """Return bound 3, in seconds, of so many `cohorts`; infinite if one of them has to wait for a slot."""
        slowest = max(pace for pace in self.paces if math.isfinite(pace))
        return longest * slowest if cohorts <= sum(self.slots) else math.inf


def makespan(options: Sequence[CutOption], slot_pool: SlotPool) -> float:
    """Return the seconds until all cohorts have ended, at the latest; `options` has one option for each group."""
    longest = max((slot_pool.length(option) for option in options), default=0.0)
    return min(
        sum(group_makespan(option, slot_pool) for option in options),
        slot_pool.graham_bound(sum(map(slot_pool.work, options)), longest),
        slot_pool.parallel_bound(sum(option.count for option in options), longest),
    )


def group_makespan(option: CutOption, slot_pool: SlotPool) -> float:
    """Return the seconds of a group that has all slots to itself, each cohort going where it ends soonest."""
    kinds = [(seconds, slots) for seconds, slots in zip(option.seconds, slot_pool.slots, strict=True) if slots]
    cohorts_per_second = sum(slots / seconds for seconds, slots in kinds)
    if not cohorts_per_second:
        return math.inf
    # Nearly all rounds of each kind at once, the last few one by one.
    rounds_done = [int(option.count / cohorts_per_second / seconds * (1 - 1e-9)) for seconds, _ in kinds]
    cohorts_left = option.count - sum(count * slots for count, (_, slots) in zip(rounds_done, kinds, strict=True))
    end = 0.0
    while cohorts_left > 0:
        end, kind = min(((count + 1) * kinds[kind][0], kind) for kind, count in enumerate(rounds_done))
        rounds_done[kind] += 1
        cohorts_left -= kinds[kind][1]
    return end


def list_schedule(options: Sequence[CutOption], slot_pool: SlotPool) -> float:
    """Return the seconds until all cohorts have ended, each in turn on the slot where it ends soonest."""
    cohorts = sum(option.count for option in options)
    free_at = [[0.0] * min(slots, cohorts) for slots in slot_pool.slots]
    end = 0.0
    for option in options:
        for _ in range(option.count):
            time, kind = min(
                (free_at[kind][0] + option.seconds[kind], kind) for kind in range(len(free_at)) if free_at[kind]
            )
            heapq.heapreplace(free_at[kind], time)
            end = max(end, time)
    return end


def minimise_makespan(
    groups: Sequence[Sequence[CutOption]], slot_pool: SlotPool, tolerance: float = 1.0
) -> list[CutOption]:
    """Return the options of least makespan, or of smaller cohorts within `tolerance` (>= 1) times the least."""
    if not groups:
        return []

    alone = partial(group_makespan, slot_pool=slot_pool)
    count: Callable[[CutOption], float] = attrgetter("count")
    parallel, parallel_longest = _least_bound(groups, slot_pool, count, slot_pool.parallel_bound)
    queued, queued_longest = _least_bound(groups, slot_pool, slot_pool.work, slot_pool.graham_bound)
    one_by_one = sum(min(map(alone, group)) for group in groups)
    limit = tolerance * min(parallel, queued, one_by_one)
    choices = []
    if parallel <= limit:
        choices.append(_smallest(_up_to(parallel_longest, groups, slot_pool), count, 1.0))
    if queued <= limit:
        choices.append(_smallest(_up_to(queued_longest, groups, slot_pool), slot_pool.work, limit / queued))
    if one_by_one <= limit:
        choices.append(_smallest(groups, alone, limit / one_by_one))
    return max(choices, key=lambda options: sum(option.count for option in options))


def _smallest(
    groups: Sequence[Sequence[CutOption]], cost: Callable[[CutOption], float], tolerance: float
) -> list[CutOption]:
    """Return for each group the option with the smallest cohorts that costs at most `tolerance` times the cheapest."""
    options = []
    for group in groups:
        costs = [cost(option) for option in group]
        affordable = [
            (option.cut.size, price, option.cut.width, index)
            for index, (price, option) in enumerate(zip(costs, group, strict=True))
            if price <= tolerance * min(costs)
        ]
        options.append(group[min(affordable)[-1]])
    return options


def _up_to(longest: float, groups: Sequence[Sequence[CutOption]], slot_pool: SlotPool) -> list[list[CutOption]]:
    return [[option for option in group if slot_pool.length(option) <= longest] for group in groups]


def _least_bound(
    groups: Sequence[Sequence[CutOption]],
    slot_pool: SlotPool,
    cost: Callable[[CutOption], float],
    bound: Callable[[float, float], float],
) -> tuple[float, float]:
    """Return the least `bound(sum of costs, L)` over all lengths L, and that L.

    For each L, every group takes the option of least cost among those whose cohorts are no longer than L.
    """
    ordered = sorted(
        (slot_pool.length(option), cost(option), group_index)
        for group_index, group in enumerate(groups)
        for option in group
    )
    least_costs = [math.inf] * len(groups)
    best = (math.inf, math.inf)
    for length, price, group_index in ordered:
        if math.isfinite(length) and price < least_costs[group_index]:
            least_costs[group_index] = price
            best = min(best, (bound(math.fsum(least_costs), length), length))
    return best
