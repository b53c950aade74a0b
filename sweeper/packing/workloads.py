"""A group of trials that was measured -> the ways to cut it into cohorts, and what the largest of them takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sweeper.plan.cohorts import Cut, Group, parts

UNTRAINED_SECONDS = 0.01
"""CPU time that a member costs that trains no step: its initialisation, evaluation and row. Measured with
`trainables.training.train` on `anomaly_grid --preset digits --set epochs=0`: 0.43 to 0.66 s for 56 stacked members,
0.78 to 0.88 s for 56 in turn, one core. It grows with the model; a cohort's own cost, beside which it is seen, then
matters less."""
UNTRAINED_SIZE, UNTRAINED_WIDTH = 64, 8
"""Members of such a cohort, and of its stacks, at most: no step shows what memory they need."""


class Measured(Protocol):
    """Speed and memory of a stack (`trainables.profiling.throughput.Measurement`)."""

    @property
    def width(self) -> int: ...
    @property
    def seconds(self) -> float:
        """Of a step, for each member: the stack's over its width."""

    @property
    def bytes(self) -> int:
        """At the most, beyond what the process had before."""

    @property
    def held(self) -> int:
        """Bytes that each member keeps while others of its cohort are stepped."""


@dataclass(frozen=True)
class Workload:
    """A group of trials that is to be trained."""

    members: Group
    measured: Sequence[Measured]
    """At several widths, 1 among them; nothing where it could not be measured."""
    steps: int
    """Of each member."""
    by: Cut | None = None
    """How it is cut, where that is settled."""

    @property
    def total(self) -> int:
        return sum(map(len, self.members))


@dataclass(frozen=True)
class Candidate:
    """A way to cut a group."""

    cut: Cut
    count: int
    """Cohorts."""
    seconds: float
    """Of training the largest cohort on the device that was measured, alone; 0 where it could not be measured. Where
    no step is made, of evaluating it."""
    bytes: int
    """Of the largest cohort."""


def choices(workload: Workload) -> list[Candidate]:
    """Every cut that is worth trying, full stacks among them, at each width that was measured or is a cohort's size; or
    the one that is settled.

    What could not be measured trains alone, so that one that cannot train takes no other with it. What trains no step
    needs no measurement.
    """
    if workload.by:
        longest, count = _lengths(workload, workload.by.size)
        return [_choice(workload, workload.by, longest, count)]
    if not workload.steps:
        return _untrained(workload)
    if not workload.measured:
        return [alone(workload)]
    widths, found = sorted(one.width for one in workload.measured), dict[tuple[int, int, int], Candidate]()
    for size in sorted(_sizes(workload) | set(widths)):
        longest, count = _lengths(workload, size)
        for width in {one for one in widths if one < longest} | {min(longest, widths[-1])}:
            if (longest, count, width) not in found:
                found[longest, count, width] = _choice(workload, Cut(size, width), longest, count)
    return list(found.values())


def _untrained(workload: Workload) -> list[Candidate]:
    """Every size up to the largest, in narrow stacks."""
    found = dict[tuple[int, int], Candidate]()
    for size in sorted({min(size, UNTRAINED_SIZE) for size in _sizes(workload)}):
        longest, count = _lengths(workload, size)
        by = Cut(size, min(longest, UNTRAINED_WIDTH))
        found.setdefault((longest, count), _choice(workload, by, longest, count))
    return list(found.values())


def _lengths(workload: Workload, size: int) -> tuple[int, int]:
    """Of the cohorts of at most this size the longest, and their number."""
    lengths = [len(members) for members in parts(workload.members, size)]
    return max(lengths), len(lengths)


def _choice(workload: Workload, by: Cut, longest: int, count: int) -> Candidate:
    """What a cut takes; of a stack that is wider than any that was measured, in proportion."""
    if not workload.steps:
        return Candidate(by, count, longest * UNTRAINED_SECONDS, 0)
    if not workload.measured:
        return Candidate(by, count, 0.0, 0)
    measured = sorted(workload.measured, key=lambda one: one.width)
    width = min(by.width, longest)
    beyond = max(1.0, width / measured[-1].width)
    stacks, rest = divmod(longest, min(width, measured[-1].width))
    seconds = workload.steps * (stacks * _step(measured, min(width, measured[-1].width)) + _step(measured, rest))
    wider = [one for one in measured if one.width >= width] or measured[-1:]  # of which none needs less
    need = math.ceil(beyond * min(one.bytes for one in wider)) + (longest - width) * wider[0].held
    return Candidate(by, count, seconds, need)


def alone(workload: Workload) -> Candidate:
    """Every member in a cohort of its own."""
    first = min(workload.measured, key=lambda one: one.width, default=None)
    if first is None:
        return Candidate(Cut(1, 1), workload.total, 0.0, 0)
    return Candidate(Cut(1, 1), workload.total, workload.steps * first.seconds, first.bytes)


def _step(measured: Sequence[Measured], width: int) -> float:
    """Seconds of a step of a whole stack, on a straight line between those measured, which are ascending."""
    if not width:
        return 0.0
    above = next(one for one in measured if one.width >= width)
    below = max((one for one in measured if one.width <= width), key=lambda one: one.width, default=above)
    share = (width - below.width) / max(1, above.width - below.width)
    return (1 - share) * below.width * below.seconds + share * above.width * above.seconds


def _sizes(workload: Workload) -> set[int]:
    """Of a cohort: those that make any number of cohorts, of equal parts or of whole streams."""
    streams, longest = len(workload.members), max(map(len, workload.members))
    numbers = _numbers(workload.total)
    parts = {math.ceil(workload.total / count) for count in numbers}
    return parts | {min(workload.total, math.ceil(streams / count) * longest) for count in numbers}


def _numbers(most: int) -> list[int]:
    """All up to 16, further ones in steps of an eighth."""
    found = [1]
    while found[-1] < most:
        found.append(found[-1] + max(1, found[-1] // 8))
    return found
