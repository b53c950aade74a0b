"""Successive halving: which members of a cohort are pruned at a rung, independently of the cohorts' timing.

A rung is an epoch at which members are compared and some are pruned. Every cohort of a study has a position; positions
ascend in the order in which cohorts start. At a rung the members of a cohort are compared with each other and with the
members of all cohorts at lower positions, whenever those reached the rung. So a cohort waits for lower positions, and
never for higher ones.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sweeper.pruning.rung_events import Position
from sweeper.spec.metric import Direction

T = TypeVar("T")
Values = Mapping[int, float | None]
"""Index of a member in its cohort -> its value at an epoch; None or not finite if it has no value there."""
GOLDEN = 0x9E3779B97F4A7C15
"""2 ** 64 times the fractional part of the golden ratio. Its multiples modulo 2 ** 64 are spread evenly."""


@dataclass
class _CohortState:
    """What is known of the cohort at one position."""

    brackets: tuple[int, ...]
    """The bracket of each member."""
    posts: dict[int, dict[int, float | None]] = field(default_factory=dict)
    """Epoch -> index -> value, of the members that were running then."""
    verdicts: dict[int, dict[int, str]] = field(default_factory=dict)
    """Epoch -> index -> reason, of the members that were pruned there."""
    ended: bool = False

    def part(self, members: Sequence[int]) -> _CohortState:
        """Return the part of the cohort with these consecutive members, which are numbered from 0 again."""

        def of_part(by_epoch: Mapping[int, Mapping[int, T]]) -> dict[int, dict[int, T]]:
            return {
                epoch: {index - members[0]: value for index, value in values.items() if index in members}
                for epoch, values in by_epoch.items()
            }

        brackets = tuple(self.brackets[index] for index in members)
        return _CohortState(brackets, of_part(self.posts), of_part(self.verdicts), self.ended)

    def running(self) -> Iterator[int]:
        """Yield the brackets of the members that have not been pruned."""
        pruned = {index for verdict in self.verdicts.values() for index in verdict}
        return (bracket for index, bracket in enumerate(self.brackets) if index not in pruned)


class Rungs:
    """The rungs of one study, and the cohorts that have reached them.

    `announce`, `post` and `end` may be repeated, as a retried cohort does: the first call counts.
    """

    def __init__(self, direction: Direction, factor: int, ladders: Sequence[Sequence[int]]) -> None:
        """`ladders` has the epochs of the rungs of each bracket. At a rung the best `1 / factor` of the bracket's
        members go on."""
        self._sign = -1 if direction == "maximize" else 1
        self._factor = factor
        self._ladders = tuple(frozenset(ladder) for ladder in ladders)
        self._positions: dict[Position, _CohortState] = {}

    def announce(self, position: Position, brackets: Sequence[int]) -> None:
        """Announce the cohort at `position`, with the bracket of each member. Positions must ascend.

        Raises ValueError if a higher position was announced before, or this position with other brackets.
        """
        if position in self._positions:
            if self._positions[position].brackets != tuple(brackets):
                raise ValueError(
                    f"a position must keep its brackets, but position {position} is announced again with others"
                )
            return
        if self._positions and position < max(self._positions):
            raise ValueError(
                f"positions must be announced in order, but got position {position} after {max(self._positions)}"
            )
        for bracket in brackets:
            if not 0 <= bracket < len(self._ladders):
                raise ValueError(f"`0 <= bracket < {len(self._ladders)}` must hold, but got bracket={bracket}")
        self._positions[position] = _CohortState(tuple(brackets))

    def post(self, position: Position, epoch: int, values: Values) -> None:
        """Record the values of the cohort's running members at an epoch.

        A second post for an epoch, or one after the cohort's end, changes nothing.
        """
        cohort = self._cohort(position)
        for index in values:
            if not 0 <= index < len(cohort.brackets):
                raise ValueError(
                    f"`0 <= member < {len(cohort.brackets)}` must hold of the cohort at position {position}, but got "
                    f"member={index}"
                )
        if epoch not in cohort.posts and not cohort.ended:
            cohort.posts[epoch] = {index: _finite(value) for index, value in sorted(values.items())}

    def split(self, position: Position, *sizes: int) -> tuple[Position, Position]:
        """Split a cohort in two of these sizes. Return their positions, which lie between this one and the next.

        Values and verdicts of the members are kept. The old position is free.
        """
        cohort = self._cohort(position)
        if len(sizes) != 2 or min(sizes) < 1 or sum(sizes) != len(cohort.brackets):
            raise ValueError(
                f"the two parts of the cohort at position {position} must have its {len(cohort.brackets)} members, but "
                f"got sizes {sizes}"
            )
        members, parts = range(len(cohort.brackets)), ((*position, 0), (*position, 1))
        del self._positions[position]
        self._positions[parts[0]] = cohort.part(members[: sizes[0]])
        self._positions[parts[1]] = cohort.part(members[sizes[0] :])
        return parts

    def end(self, position: Position) -> None:
        """Record that the cohort finished or failed for good. No cohort waits for it any more."""
        self._cohort(position).ended = True

    def restore(self, position: Position, brackets: Sequence[int], reached: Sequence[Mapping[int, float]]) -> None:
        """Add a cohort that ended in an earlier run; `reached` maps epochs to values, for each member."""
        self.announce(position, brackets)
        for epoch in sorted(frozenset().union(*self._ladders)):
            self.post(
                position, epoch, {index: values[epoch] for index, values in enumerate(reached) if epoch in values}
            )
        self.end(position)

    def ready(self, position: Position, epoch: int) -> bool:
        """Whether the cohort has posted its values of an epoch, and waits for no lower position."""
        return epoch in self._cohort(position).posts and not self.awaited(position, epoch)

    def awaited(self, position: Position, epoch: int) -> list[Position]:
        """Return the lower positions for which the cohort waits: they may have members to compare with, but have not
        posted their values of the epoch."""
        brackets = self._judged(self._cohort(position), epoch)
        return [
            lower
            for lower, other in self._positions.items()
            if lower < position
            and epoch not in other.posts
            and not other.ended
            and not brackets.isdisjoint(other.running())
        ]

    def verdict(self, position: Position, epoch: int) -> dict[int, str]:
        """Return the members of the cohort that are pruned at an epoch: index -> reason, in one line.

        Of n values in a bracket, those of this cohort and of lower positions, the best `max(1, n // factor)` go on; of
        equal values the one posted at the lower position, or of the lower index. A member without a value is pruned. If
        no member of the bracket has a value, the cohort's first member of the bracket goes on.

        Raises ValueError before `ready`.
        """
        cohort = self._cohort(position)
        if epoch not in cohort.verdicts:
            if not self.ready(position, epoch):
                raise ValueError(f"a verdict must be awaited, but position {position} at epoch {epoch} is not ready")
            cohort.verdicts[epoch] = {
                index: reason
                for bracket in sorted(self._judged(cohort, epoch))
                for index, reason in self._pruned(position, epoch, bracket)
            }
        return dict(cohort.verdicts[epoch])

    def _pruned(self, position: Position, epoch: int, bracket: int) -> Iterator[tuple[int, str]]:
        """Yield the index and the reason of each of the cohort's members in a bracket that is pruned."""
        ranked = sorted(
            (self._sign * value, lower, index)
            for lower, other in self._positions.items()
            if lower <= position
            for index, value in other.posts.get(epoch, {}).items()
            if value is not None and other.brackets[index] == bracket
        )
        best = ranked[: max(1, len(ranked) // self._factor)]
        cohort = self._positions[position]
        members = {index: value for index, value in cohort.posts[epoch].items() if cohort.brackets[index] == bracket}
        if not best:
            for index in itertools.islice(members, 1, None):
                yield index, f"no value at epoch {epoch}, where nobody had one and the first went on"
            return
        staying = {(lower, index) for _, lower, index in best}
        threshold = self._sign * best[-1][0]
        for index, value in members.items():
            if (position, index) not in staying:
                own_value = "no value" if value is None else f"{value:.6g}"
                bar = f"{threshold:.6g}" + (", first of equals" if value == threshold else " or better")
                yield index, f"{own_value} at epoch {epoch} was not among the best {len(best)} of {len(ranked)} ({bar})"

    def _judged(self, cohort: _CohortState, epoch: int) -> set[int]:
        """Return the brackets of the cohort that have a rung at this epoch."""
        return {bracket for bracket in cohort.brackets if epoch in self._ladders[bracket]}

    def _cohort(self, position: Position) -> _CohortState:
        """Return the cohort at a position. Raises ValueError if none was announced there."""
        if position not in self._positions:
            known = ", ".join(map(str, self._positions)) or "none"
            raise ValueError(f"no cohort is announced at position {position}; positions are: {known}")
        return self._positions[position]


def assign_brackets(numbers: Sequence[int], brackets: int, factor: int, rungs: int | None = None) -> tuple[int, ...]:
    """Return the bracket of each trial, from its number in the study alone.

    All brackets train for about equally many epochs in total.

    Bracket b has s = `rungs` - b rungs, the first at `factor ** -s` of all epochs; `rungs` defaults to the number of
    brackets. A trial of the bracket trains on average for `factor ** -s * (1 + s * (1 - 1 / factor))` of all epochs,
    and brackets get trials in inverse proportion to that. Hyperband (Li et al. 2018, algorithm 1) has `s + 1` in place
    of the parenthesis, because it trains each rung from the first epoch; here members continue. Any range of numbers is
    assigned in these proportions: the fractional part of number times golden ratio falls into the bracket's part of
    [0, 1).
    """
    deepest = brackets if rungs is None else rungs
    if not 1 <= brackets <= deepest:
        raise ValueError(f"`1 <= brackets <= rungs` must hold, but got brackets={brackets}, rungs={deepest}")
    shares = [factor**s / (1 + s * (1 - 1 / factor)) for s in range(deepest, deepest - brackets, -1)]
    bounds = [bound / sum(shares) for bound in itertools.accumulate(shares)][:-1]
    return tuple(bisect.bisect_right(bounds, number * GOLDEN % 2**64 / 2**64) for number in numbers)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
