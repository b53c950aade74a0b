"""The ways to cut a group of trials into cohorts, with the time and the memory of the largest cohort."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sweeper.packing.cluster import Devices
from sweeper.planning.cohorts import Cut, Group, parts
from trainables.catalog import is_function
from trainables.training.measurement import Measurement

COHORT_START_SECONDS = 0.1
"""Seconds to start one more cohort in a running worker, at most.

Measured on `anomaly_grid --preset digits --axis normal_class=0`, without Ray: each further cohort of the same 56 trials
takes 0.030 to 0.036 CPU seconds, its row included. Ray adds a few milliseconds."""
UNTRAINED_SECONDS = 0.01
"""CPU seconds of a member that trains no step, for its initialisation, evaluation and row.

Measured on `anomaly_grid --preset digits --set epochs=0`, one core: 0.43 to 0.66 s for 56 stacked members, 0.78 to
0.88 s for 56 in turn. For larger models it is larger, but then the fixed cost of a cohort matters less."""
UNTRAINED_SIZE, UNTRAINED_WIDTH = 64, 8
"""Largest cohort of members that train no step, and its widest stack. Both are small, as their memory is unknown."""
IN_TURN, MOST_IN_TURN = 32, 128
"""Cohorts of functions for each slot, so that the last ones end at about the same time; and the size of the largest."""


def of_functions(group: Group) -> bool:
    """Return whether the trials of a group are calls of a function, which train one after the other."""
    return is_function(str(group[0][0].config.get("method")))


def cut_in_turn(group: Group, slots: int, settled: Cut | None = None) -> Cut:
    """Return the cut of a group of functions: few trials alone, and many together, as the start of a cohort and its
    rows might take longer than a trial. A settled cut keeps its size."""
    balanced = min(MOST_IN_TURN, math.ceil(sum(map(len, group)) / (IN_TURN * max(1, slots))))
    return Cut(settled.size if settled else balanced, 1)


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
    alone: float = 0.0
    """Seconds that the largest cohort takes alone on the device that was measured: of trials without a step to evaluate
    it. 0 if it could not be measured."""
    bytes: int = 0
    """Memory that the largest cohort needs."""
    seconds: tuple[float, ...] = ()
    """Seconds that it takes on each kind of device, infinite where it has no room; empty before `on` says which."""

    def on(self, devices: Sequence[Devices], slots_per_device: Sequence[int]) -> CutOption:
        """Return the option with its seconds on these devices."""
        seconds = (
            math.inf
            if not slots or self.bytes > kind.capacity(slots)
            else COHORT_START_SECONDS + self.alone * kind.slowdown(self.cut.width, slots) / kind.speed
            for kind, slots in zip(devices, slots_per_device, strict=True)
        )
        return replace(self, seconds=tuple(seconds))


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
        return CutOption(cut, count, longest * UNTRAINED_SECONDS)
    if not workload.measurements:
        return CutOption(cut, count)
    measured = sorted(_measurements(workload, cut), key=lambda stack: stack.width)
    width = min(cut.width, longest)
    measured_width = min(width, measured[-1].width)
    beyond = max(1.0, width / measured[-1].width)
    stacks, rest = divmod(longest, measured_width)
    seconds = workload.steps * (stacks * _stack_seconds(measured, measured_width) + _stack_seconds(measured, rest))
    wider = [stack for stack in measured if stack.width >= width] or measured[-1:]  # a wider stack needs no less memory
    need = math.ceil(beyond * min(stack.bytes for stack in wider)) + (longest - width) * wider[0].held
    return CutOption(cut, count, seconds, need)


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
        return CutOption(Cut(1, 1), workload.member_count)
    return CutOption(Cut(1, 1), workload.member_count, workload.steps * narrowest.seconds, narrowest.bytes)


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
