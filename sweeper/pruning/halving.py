"""Successive halving: which members of a cohort are pruned at a rung, independently of the cohorts' timing.

A rung is an epoch at which members are compared and some are pruned. Every cohort of a study has a place: its number in
the order in which the cohorts are started. At a rung the members of a cohort are compared with each other and with the
members of all cohorts at lower places, whenever those reached the rung. So a cohort waits for lower places, and never
for higher ones.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sweeper.spec.metric import Direction

T = TypeVar("T")
Values = Mapping[int, float | None]
"""Index of a member in its cohort -> its value at an epoch; None or not finite if it has no value there."""
GOLDEN = 0x9E3779B97F4A7C15
"""2 ** 64 times the fractional part of the golden ratio. Its multiples modulo 2 ** 64 are spread evenly."""


@dataclass
class _Place:
    """What is known of the cohort at one place."""

    brackets: tuple[int, ...]
    """The bracket of each member."""
    posts: dict[int, dict[int, float | None]] = field(default_factory=dict)
    """Epoch -> index -> value, of the members that were running then."""
    verdicts: dict[int, dict[int, str]] = field(default_factory=dict)
    """Epoch -> index -> reason, of the members that were pruned there."""
    ended: bool = False

    def part(self, members: Sequence[int]) -> _Place:
        """Return the part of the cohort with these consecutive members, which are numbered from 0 again."""

        def of_part(by_epoch: Mapping[int, Mapping[int, T]]) -> dict[int, dict[int, T]]:
            return {
                epoch: {index - members[0]: value for index, value in values.items() if index in members}
                for epoch, values in by_epoch.items()
            }

        brackets = tuple(self.brackets[index] for index in members)
        return _Place(brackets, of_part(self.posts), of_part(self.verdicts), self.ended)

    def running(self) -> Iterator[int]:
        """Yield the brackets of the members that have not been pruned."""
        pruned = {index for verdict in self.verdicts.values() for index in verdict}
        return (bracket for index, bracket in enumerate(self.brackets) if index not in pruned)


class Rungs:
    """The rungs of one study, and the cohorts that have reached them.

    `expect`, `post` and `end` may be repeated, as a retried cohort does: the first call counts.
    """

    def __init__(self, direction: Direction, factor: int, ladders: Sequence[Sequence[int]]) -> None:
        """`ladders` has the epochs of the rungs of each bracket. At a rung the best `1 / factor` of the bracket's
        members go on."""
        self._sign = -1 if direction == "maximize" else 1
        self._factor = factor
        self._ladders = tuple(frozenset(ladder) for ladder in ladders)
        self._places: dict[int, _Place] = {}

    def expect(self, place: int, brackets: Sequence[int]) -> None:
        """Announce the cohort at `place`, with the bracket of each member. Places must ascend.

        Raises ValueError if a higher place was announced before, or this place with other brackets.
        """
        if place in self._places:
            if self._places[place].brackets != tuple(brackets):
                raise ValueError(f"a place must keep its brackets, but place {place} is expected again with others")
            return
        if self._places and place < max(self._places):
            raise ValueError(f"places must be expected in order, but got place {place} after {max(self._places)}")
        for bracket in brackets:
            if not 0 <= bracket < len(self._ladders):
                raise ValueError(f"`0 <= bracket < {len(self._ladders)}` must hold, but got bracket={bracket}")
        self._places[place] = _Place(tuple(brackets))

    def post(self, place: int, epoch: int, values: Values) -> None:
        """Record the values of the cohort's running members at an epoch.

        A second post for an epoch, or one after the cohort's end, changes nothing.
        """
        cohort = self._cohort(place)
        for index in values:
            if not 0 <= index < len(cohort.brackets):
                raise ValueError(
                    f"`0 <= member < {len(cohort.brackets)}` must hold of the cohort at place {place}, but got "
                    f"member={index}"
                )
        if epoch not in cohort.posts and not cohort.ended:
            cohort.posts[epoch] = {index: _finite(value) for index, value in sorted(values.items())}

    def split(self, place: int, second: int, count: int) -> None:
        """Split a cohort in two: its first `count` members stay at `place`, the others go on at the place `second`.

        No other cohort may be between the two places. Values and verdicts of the members are kept.
        """
        cohort = self._cohort(place)
        size = len(cohort.brackets)
        if not 0 < count < size:
            raise ValueError(
                f"`0 < count < {size}` must hold to split the cohort at place {place}, but got count={count}"
            )
        if between := [other for other in self._places if place < other <= second]:
            raise ValueError(
                f"no cohort may be after place {place} and up to place {second} to split it there, but got {between}"
            )
        members = range(size)
        self._places[place] = cohort.part(members[:count])
        self._places[second] = cohort.part(members[count:])

    def end(self, place: int) -> None:
        """Record that the cohort finished or failed for good. No cohort waits for it any more."""
        self._cohort(place).ended = True

    def seed(self, place: int, brackets: Sequence[int], history: Mapping[int, Values]) -> None:
        """Add a cohort that ended in an earlier run; `history` maps epochs to the values of its members there."""
        self.expect(place, brackets)
        for epoch, values in history.items():
            self.post(place, epoch, values)
        self.end(place)

    def ready(self, place: int, epoch: int) -> bool:
        """Whether the cohort has posted its values of an epoch, and waits for no lower place."""
        return epoch in self._cohort(place).posts and not self.awaited(place, epoch)

    def awaited(self, place: int, epoch: int) -> list[int]:
        """Return the lower places for which the cohort waits: they may have members to compare with, but have not
        posted their values of the epoch."""
        brackets = self._judged(self._cohort(place), epoch)
        return [
            lower
            for lower, other in self._places.items()
            if lower < place
            and epoch not in other.posts
            and not other.ended
            and not brackets.isdisjoint(other.running())
        ]

    def verdict(self, place: int, epoch: int) -> dict[int, str]:
        """Return the members of the cohort that are pruned at an epoch: index -> reason, in one line.

        Of n values in a bracket, those of this cohort and of lower places, the best `max(1, n // factor)` go on; of
        equal values the one posted at the lower place, or of the lower index. A member without a value is pruned. If
        no member of the bracket has a value, the cohort's first member of the bracket goes on.

        Raises ValueError before `ready`.
        """
        cohort = self._cohort(place)
        if epoch not in cohort.verdicts:
            if not self.ready(place, epoch):
                raise ValueError(f"a verdict must be awaited, but place {place} at epoch {epoch} is not ready")
            cohort.verdicts[epoch] = {
                index: reason
                for bracket in sorted(self._judged(cohort, epoch))
                for index, reason in self._pruned(place, epoch, bracket)
            }
        return dict(cohort.verdicts[epoch])

    def _pruned(self, place: int, epoch: int, bracket: int) -> Iterator[tuple[int, str]]:
        """Yield the index and the reason of each of the cohort's members in a bracket that is pruned."""
        ranked = sorted(
            (self._sign * value, lower, index)
            for lower, other in self._places.items()
            if lower <= place
            for index, value in other.posts.get(epoch, {}).items()
            if value is not None and other.brackets[index] == bracket
        )
        best = ranked[: max(1, len(ranked) // self._factor)]
        cohort = self._places[place]
        members = {index: value for index, value in cohort.posts[epoch].items() if cohort.brackets[index] == bracket}
        if not best:
            for index in itertools.islice(members, 1, None):
                yield index, f"no value at epoch {epoch}, where nobody had one and the first went on"
            return
        staying = {(lower, index) for _, lower, index in best}
        threshold = self._sign * best[-1][0]
        for index, value in members.items():
            if (place, index) not in staying:
                own_value = "no value" if value is None else f"{value:.6g}"
                bar = f"{threshold:.6g}" + (", first of equals" if value == threshold else " or better")
                yield index, f"{own_value} at epoch {epoch} was not among the best {len(best)} of {len(ranked)} ({bar})"

    def _judged(self, cohort: _Place, epoch: int) -> set[int]:
        """Return the brackets of the cohort that have a rung at this epoch."""
        return {bracket for bracket in cohort.brackets if epoch in self._ladders[bracket]}

    def _cohort(self, place: int) -> _Place:
        """Return the cohort at a place. Raises ValueError if none was announced there."""
        if place not in self._places:
            known = ", ".join(map(str, self._places)) or "none"
            raise ValueError(f"no cohort is expected at place {place}; places are: {known}")
        return self._places[place]


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
