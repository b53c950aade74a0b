"""Packs measured groups onto devices: how many cohorts share a device, how large they are and how wide their stacks.

The packing of least makespan is taken. Notation: group g is cut into c_g cohorts of length l_g, in seconds at pace 1
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
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

from sweeper.packing.cluster import Devices, Slots
from sweeper.plan.cohorts import Cohort, Cut, Group, parts
from trainables.training.measurement import Measurement

COHORT_START_SECONDS = 0.1
"""Seconds to start one more cohort in a running worker, at most.

Measured on `anomaly_grid --preset digits --axis normal_class=0`, without Ray: each further cohort of the same 56 trials
takes 0.030 to 0.036 CPU seconds, its row included. Ray adds a few milliseconds."""
TOLERANCE = 1.1
"""Largest slowdown, relative to the fastest packing, that is accepted for fewer processes per device or for smaller
cohorts: these lose less when they are killed."""
UNTRAINED_SECONDS = 0.01
"""CPU seconds of a member that trains no step, for its initialisation, evaluation and row.

Measured on `anomaly_grid --preset digits --set epochs=0`, one core: 0.43 to 0.66 s for 56 stacked members, 0.78 to
0.88 s for 56 in turn. For larger models it is larger, but then the fixed cost of a cohort matters less."""
UNTRAINED_SIZE, UNTRAINED_WIDTH = 64, 8
"""Largest cohort of members that train no step, and its widest stack. Both are small, as their memory is unknown."""


@dataclass(frozen=True)
class Workload:
    """A group of trials to train, with its measurements."""

    group: Group
    measurements: Sequence[Measurement]
    """Stacks of several widths, 1 among them; empty if the group could not be measured."""
    steps: int
    """Training steps of each member."""
    settled_cut: Cut | None = None
    """The cut of the group; None if it is still to be chosen."""
    compiled: Mapping[int, float] = field(default_factory=dict)
    """Width of a stack -> seconds per compiled step and member, where these were measured."""

    @property
    def member_count(self) -> int:
        return sum(map(len, self.group))


@dataclass(frozen=True)
class CutOption:
    """One way to cut a group, with its time and memory."""

    cut: Cut
    count: int
    """Number of cohorts."""
    seconds: tuple[float, ...]
    """Seconds that the largest cohort takes on each kind of device, infinite where it has no room. From
    `candidate_cuts`: alone on the device that was measured, 0 if it could not be measured; for trials without a step
    the seconds to evaluate it."""
    bytes: int = 0
    """Memory that the largest cohort needs."""

    def on(self, devices: Sequence[Devices], slots_per_device: Sequence[int]) -> CutOption:
        """Return the option with its seconds on these devices, from those on the device that was measured."""
        (measured,) = self.seconds
        seconds = (
            math.inf
            if not slots or self.bytes > kind.capacity(slots)
            else COHORT_START_SECONDS + measured * kind.slowdown(self.cut.width, slots) / kind.speed
            for kind, slots in zip(devices, slots_per_device, strict=True)
        )
        return replace(self, seconds=tuple(seconds))


@dataclass(frozen=True)
class Packing:
    """How groups are cut, and on which slots their cohorts run."""

    cuts: tuple[Cut, ...]
    """The cut of each group."""
    workloads: Sequence[Workload]
    """The groups whose trials are trained by one process each, measured on the first kind of device. The time and the
    cost are theirs."""
    devices: tuple[Devices, ...]
    """One for each kind of device."""
    slots_per_device: tuple[int, ...]
    """Cohorts that share a device, for each kind of device; 0 leaves the kind unused."""
    seconds: float
    """Expected seconds until all cohorts have ended, without evaluations and training that could not be measured."""
    slots: Mapping[int, Slots] = field(default_factory=dict)
    """Number of workers per trial -> the slots of the cohorts of such trials."""
    threads: int = 1
    """Threads of each process on CPU cores."""

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    @property
    def cost(self) -> float | None:
        """Price of all nodes of the used kinds, for `hours`; None if it is unknown."""
        return None if self.price is None else self.price * self.hours

    @property
    def price(self) -> float | None:
        """Price of all nodes of the used kinds for an hour; None if one of them has no price, or none is used."""
        prices = [kind.price for kind, slots in zip(self.devices, self.slots_per_device, strict=True) if slots]
        return None if None in prices or not prices else sum(filter(None, prices))

    @property
    def time_known(self) -> bool:
        """True if the expected time covers all groups: none takes several workers, and each with steps was measured."""
        return set(self.slots) <= {1} and all(
            workload.measurements or not workload.steps for workload in self.workloads
        )

    @property
    def compiled_time_known(self) -> bool:
        """True if all compiled steps were measured, so that the expected time is not that of eager ones."""
        compiled = [workload for workload in self.workloads if workload.settled_cut and workload.settled_cut.compiled]
        return all(workload.compiled for workload in compiled if workload.steps)

    def cohort_seconds(self) -> Callable[[Cohort], float | None]:
        """Return a function that gives the expected seconds of a cohort on the slowest slot that it may get; None if it
        was not measured."""
        used = [(kind, slots) for kind, slots in zip(self.devices, self.slots_per_device, strict=True) if slots]
        of_trial = {trial.id: workload for workload in self.workloads for stream in workload.group for trial in stream}

        def seconds(cohort: Cohort) -> float | None:
            workload = of_trial.get(cohort.trials[0].id)
            if workload is None or not (workload.steps and workload.measurements):
                return None
            cut = Cut(len(cohort.trials), cohort.width, cohort.compiled)
            (alone,) = candidate_cuts(replace(workload, group=[cohort.trials], settled_cut=cut))
            slowest = max(kind.slowdown(cohort.width, slots) / kind.speed for kind, slots in used)
            return COHORT_START_SECONDS + alone.seconds[0] * slowest

        return seconds

    def with_workloads(self, workloads: Sequence[Workload]) -> Packing:
        """Return the packing of other workloads, whose cuts are settled, on the same slots."""
        packing = pack(workloads, self.devices, self.slots_per_device)
        return replace(packing, slots=self.slots, threads=self.threads)


def candidate_cuts(workload: Workload) -> list[CutOption]:
    """Return the cuts that are worth trying, or the one that is settled.

    Each size of a cohort is tried with every measured width up to it. Members that could not be measured train alone,
    so that one that cannot train takes no other with it.
    """
    if workload.settled_cut:
        longest, count = _lengths(workload, workload.settled_cut.size)
        return [_candidate(workload, workload.settled_cut, longest, count)]
    if not workload.steps:
        return _untrained(workload)
    if not workload.measurements:
        return [one_per_cohort(workload)]
    widths = sorted(stack.width for stack in workload.measurements)
    candidates = dict[tuple[int, int, int], CutOption]()
    for size in sorted(_sizes(workload) | set(widths)):
        longest, count = _lengths(workload, size)
        for width in {narrow for narrow in widths if narrow < longest} | {min(longest, widths[-1])}:
            if (longest, count, width) not in candidates:
                candidates[longest, count, width] = _candidate(workload, Cut(size, width), longest, count)
    return list(candidates.values())


def _untrained(workload: Workload) -> list[CutOption]:
    """Return the cuts of a group that trains no step: every size up to `UNTRAINED_SIZE`, in narrow stacks."""
    candidates = dict[tuple[int, int], CutOption]()
    for size in sorted({min(size, UNTRAINED_SIZE) for size in _sizes(workload)}):
        longest, count = _lengths(workload, size)
        cut = Cut(size, min(longest, UNTRAINED_WIDTH))
        candidates.setdefault((longest, count), _candidate(workload, cut, longest, count))
    return list(candidates.values())


def _lengths(workload: Workload, size: int) -> tuple[int, int]:
    """Return the members of the largest cohort, and the number of cohorts, if none has more members than `size`."""
    lengths = [len(members) for members in parts(workload.group, size)]
    return max(lengths), len(lengths)


def _candidate(workload: Workload, cut: Cut, longest: int, count: int) -> CutOption:
    """Return a cut with its time and memory; `longest` is the number of members of its largest of `count` cohorts.

    The costs of a stack that is wider than any measured one are extrapolated in proportion to its width.
    """
    if not workload.steps:
        return CutOption(cut, count, (longest * UNTRAINED_SECONDS,))
    if not workload.measurements:
        return CutOption(cut, count, (0.0,))
    measured = sorted(_measurements(workload, cut), key=lambda stack: stack.width)
    width = min(cut.width, longest)
    measured_width = min(width, measured[-1].width)
    beyond = max(1.0, width / measured[-1].width)
    stacks, rest = divmod(longest, measured_width)
    seconds = workload.steps * (stacks * _stack_seconds(measured, measured_width) + _stack_seconds(measured, rest))
    wider = [stack for stack in measured if stack.width >= width] or measured[-1:]  # a wider stack needs no less memory
    need = math.ceil(beyond * min(stack.bytes for stack in wider)) + (longest - width) * wider[0].held
    return CutOption(cut, count, (seconds,), need)


def _measurements(workload: Workload, cut: Cut) -> Sequence[Measurement]:
    """Return the measurements of a group, with the seconds of compiled steps if the cut has such and they are known."""
    if not cut.compiled or not workload.compiled:
        return workload.measurements
    nearest = {
        stack.width: min(workload.compiled, key=lambda width: abs(width - stack.width))
        for stack in workload.measurements
    }
    return [replace(stack, seconds=workload.compiled[nearest[stack.width]]) for stack in workload.measurements]


def one_per_cohort(workload: Workload) -> CutOption:
    """Return the cut with every member in a cohort of its own."""
    narrowest = min(workload.measurements, key=lambda stack: stack.width, default=None)
    if narrowest is None:
        return CutOption(Cut(1, 1), workload.member_count, (0.0,))
    return CutOption(Cut(1, 1), workload.member_count, (workload.steps * narrowest.seconds,), narrowest.bytes)


def _stack_seconds(measured: Sequence[Measurement], width: int) -> float:
    """Return the seconds of a step of a whole stack, by linear interpolation; `measured` ascends by width."""
    if not width:
        return 0.0
    above = next(stack for stack in measured if stack.width >= width)
    below = max((stack for stack in measured if stack.width <= width), key=lambda stack: stack.width, default=above)
    weight = (width - below.width) / max(1, above.width - below.width)
    return (1 - weight) * below.width * below.seconds + weight * above.width * above.seconds


def _sizes(workload: Workload) -> set[int]:
    """Return the sizes of a cohort to try: for each number of cohorts equal parts, and parts of whole streams."""
    streams, longest = len(workload.group), max(map(len, workload.group))
    counts = _counts(workload.member_count)
    equal = {math.ceil(workload.member_count / count) for count in counts}
    return equal | {min(workload.member_count, math.ceil(streams / count) * longest) for count in counts}


def _counts(most: int) -> list[int]:
    """Return the numbers of cohorts to try: 1, 2, 3, ..., 16, then in steps of an eighth, until one reaches `most`."""
    counts = [1]
    while counts[-1] < most:
        counts.append(counts[-1] + max(1, counts[-1] // 8))
    return counts


def pack(
    workloads: Sequence[Workload], devices: Sequence[Devices], slots_per_device: Sequence[int] | None = None
) -> Packing:
    """Return the packing with the shortest makespan, or one up to `TOLERANCE` times as long that loses less if killed.

    `slots_per_device` fixes how many cohorts share a device of each kind; None chooses them. Members that fit on no
    device train alone, on the largest part of one.
    """
    if slots_per_device:
        choices = [[slots] for slots in slots_per_device]
    else:  # one of several kinds of device may stay unused
        choices = [[0] * (len(devices) > 1) + kind.process_counts for kind in devices]
    fewest = [min(filter(None, kind_choices), default=0) for kind_choices in choices]
    groups = [_candidates(workload, devices, fewest) for workload in workloads]
    layouts = [slots for slots in itertools.product(*choices) if any(slots)]
    pools = {slots: _slot_pool(devices, slots) for slots in layouts}
    options = {slots: [_options(candidates, devices, slots) for candidates in groups] for slots in layouts}
    least = {
        slots: makespan(minimise_makespan(options[slots], pools[slots]), pools[slots])
        if all(options[slots])
        else math.inf
        for slots in layouts
    }
    limit = TOLERANCE * min(least.values())
    best = min(
        (slots for slots in layouts if least[slots] <= limit), key=lambda slots: (sum(pools[slots].slots), least[slots])
    )
    tolerance = limit / least[best] if workloads else 1.0
    chosen = minimise_makespan(options[best], pools[best], tolerance)
    cuts, seconds = tuple(option.cut for option in chosen), list_schedule(chosen, pools[best])
    return Packing(cuts, workloads, tuple(devices), best, seconds)


def _slot_pool(devices: Sequence[Devices], slots_per_device: Sequence[int]) -> SlotPool:
    return SlotPool.of_devices([kind.count for kind in devices], [kind.speed for kind in devices], slots_per_device)


def _candidates(workload: Workload, devices: Sequence[Devices], fewest: Sequence[int]) -> list[CutOption]:
    """Return the ways to cut a group.

    A group that fits on no device, even with the `fewest` cohorts per device, is claimed to need exactly the largest
    capacity, with its settled cut or else a cohort for each member.
    """
    candidates = candidate_cuts(workload)
    if _options(candidates, devices, fewest):
        return candidates
    largest = max(kind.capacity(slots) for kind, slots in zip(devices, fewest, strict=True) if slots)
    return [replace(candidates[0] if workload.settled_cut else one_per_cohort(workload), bytes=largest)]


def _options(
    candidates: Sequence[CutOption], devices: Sequence[Devices], slots_per_device: Sequence[int]
) -> list[CutOption]:
    """Return the candidates that fit on some kind of device, with so many slots per device of each kind."""
    options = [candidate.on(devices, slots_per_device) for candidate in candidates]
    return [option for option in options if math.isfinite(min(option.seconds))]


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
    free_at = [[0.0] * slots for slots in slot_pool.slots]
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
