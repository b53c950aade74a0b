"""Which members are pruned at a rung: successive halving over cohorts whose answers do not depend on timing.

The cohorts of a study have places, in the order in which they are started. At a rung the members of a cohort are
compared with those of the cohorts of lower places, whenever these got there, and with each other; so a cohort waits for
the lower ones, and never for a higher one.
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
"""Index of a member -> its value at an epoch; None, or not finite, where it has none."""
GOLDEN = 0x9E3779B97F4A7C15
"""The golden ratio's fraction of 2 ** 64: its multiples fill a circle evenly, and keep step with no other sequence."""


@dataclass
class _Place:
    brackets: tuple[int, ...]
    """Of each member."""
    posts: dict[int, dict[int, float | None]] = field(default_factory=dict)
    """Epoch -> the values of the members that were running then."""
    verdicts: dict[int, dict[int, str]] = field(default_factory=dict)
    """Epoch -> who was pruned there, and why."""
    ended: bool = False

    def part(self, members: Sequence[int]) -> _Place:
        """These members alone."""

        def of(known: Mapping[int, Mapping[int, T]]) -> dict[int, dict[int, T]]:
            return {
                epoch: {index - members[0]: value for index, value in values.items() if index in members}
                for epoch, values in known.items()
            }

        brackets = tuple(self.brackets[index] for index in members)
        return _Place(brackets, of(self.posts), of(self.verdicts), self.ended)

    def running(self) -> Iterator[int]:
        """The brackets of the members that have not been pruned."""
        pruned = {index for verdict in self.verdicts.values() for index in verdict}
        return (bracket for index, bracket in enumerate(self.brackets) if index not in pruned)


class Rungs:
    """The rungs of one study and who has reached them. Of what is said twice, the first counts."""

    def __init__(self, direction: Direction, factor: int, ladders: Sequence[Sequence[int]]) -> None:
        """At each epoch of `ladders[bracket]` the best `1 / factor` of that bracket's members go on."""
        self._sign = -1 if direction == "maximize" else 1
        self._factor = factor
        self._ladders = tuple(frozenset(ladder) for ladder in ladders)
        self._places: dict[int, _Place] = {}

    def expect(self, place: int, brackets: Sequence[int]) -> None:
        """A cohort starts, after those of lower places. ValueError where it comes too late, or differs from before."""
        if place in self._places:
            if self._places[place].brackets != tuple(brackets):
                raise ValueError(f"a place has one cohort, but place {place} is expected with other brackets again")
            return
        if self._places and place < max(self._places):
            raise ValueError(f"places must be expected in order, but got place {place} after {max(self._places)}")
        for bracket in brackets:
            if not 0 <= bracket < len(self._ladders):
                raise ValueError(f"`0 <= bracket < {len(self._ladders)}` must hold, but got bracket={bracket}")
        self._places[place] = _Place(tuple(brackets))

    def post(self, place: int, epoch: int, values: Values) -> None:
        """The values of the cohort's running members at an epoch; nothing is changed by a repeat, or after its end."""
        own = self._known(place)
        for index in values:
            if not 0 <= index < len(own.brackets):
                raise ValueError(f"the cohort at place {place} has {len(own.brackets)} members, but got member {index}")
        if epoch not in own.posts and not own.ended:
            own.posts[epoch] = {index: _finite(value) for index, value in sorted(values.items())}

    def split(self, place: int, second: int, count: int) -> None:
        """The cohort goes on as two: its first `count` members at its place, the others at a `second` one, before any
        other's. What they reached, and what was said of them, stands."""
        own = self._known(place)
        if not 0 < count < len(own.brackets) or any(place < other <= second for other in self._places):
            raise ValueError(f"two parts of a cohort follow each other, but got {count} of {place}, others at {second}")
        members = range(len(own.brackets))
        self._places[place] = own.part(members[:count])
        self._places[second] = own.part(members[count:])

    def end(self, place: int) -> None:
        """Nobody waits for this cohort any more: it finished, or failed for good."""
        self._known(place).ended = True

    def seed(self, place: int, brackets: Sequence[int], history: Mapping[int, Values]) -> None:
        """A cohort that ended in an earlier run: the values of its members at the epochs that they reached."""
        self.expect(place, brackets)
        for epoch, values in history.items():
            self.post(place, epoch, values)
        self.end(place)

    def ready(self, place: int, epoch: int) -> bool:
        """The cohort has posted its values, and so has every lower one that may have members to compare with."""
        return epoch in self._known(place).posts and not self.awaited(place, epoch)

    def awaited(self, place: int, epoch: int) -> list[int]:
        """The lower places that may have members to compare with, and have not posted their values."""
        brackets = self._judged(self._known(place), epoch)
        return [
            lower
            for lower, other in self._places.items()
            if lower < place
            and epoch not in other.posts
            and not other.ended
            and not brackets.isdisjoint(other.running())
        ]

    def verdict(self, place: int, epoch: int) -> dict[int, str]:
        """Index -> why, in one line, of the cohort's members that are pruned there. ValueError before it is ready.

        Of n values in a bracket the best `max(1, n // factor)` stay, the first of equals; a member without a value does
        not, unless nobody has one and it is the first of its cohort.
        """
        own = self._known(place)
        if epoch not in own.verdicts:
            if not self.ready(place, epoch):
                raise ValueError(f"a verdict must be awaited, but place {place} at epoch {epoch} is not ready")
            own.verdicts[epoch] = {
                index: reason
                for bracket in sorted(self._judged(own, epoch))
                for index, reason in self._bracket(place, epoch, bracket)
            }
        return dict(own.verdicts[epoch])

    def _bracket(self, place: int, epoch: int, bracket: int) -> Iterator[tuple[int, str]]:
        """The members of the cohort in this bracket that are pruned, and why."""
        ranked = sorted(
            (self._sign * value, lower, index)
            for lower, other in self._places.items()
            if lower <= place
            for index, value in other.posts.get(epoch, {}).items()
            if value is not None and other.brackets[index] == bracket
        )
        best = ranked[: max(1, len(ranked) // self._factor)]
        own = self._places[place]
        mine = {index: value for index, value in own.posts[epoch].items() if own.brackets[index] == bracket}
        if not best:
            for index in itertools.islice(mine, 1, None):
                yield index, f"no value at epoch {epoch}, where nobody had one and the first went on"
            return
        stay = {(lower, index) for _, lower, index in best}
        last = self._sign * best[-1][0]
        for index, value in mine.items():
            if (place, index) not in stay:
                had = "no value" if value is None else f"{value:.6g}"
                bar = f"{last:.6g}" + (", first of equals" if value == last else " or better")
                yield index, f"{had} at epoch {epoch} was not among the best {len(best)} of {len(ranked)} ({bar})"

    def _judged(self, own: _Place, epoch: int) -> set[int]:
        """The brackets of the cohort that have a rung at this epoch."""
        return {bracket for bracket in own.brackets if epoch in self._ladders[bracket]}

    def _known(self, place: int) -> _Place:
        if place not in self._places:
            known = ", ".join(map(str, self._places)) or "none"
            raise ValueError(f"no cohort is expected at place {place}; places are: {known}")
        return self._places[place]


def assign_brackets(numbers: Sequence[int], brackets: int, factor: int, rungs: int | None = None) -> tuple[int, ...]:
    """The bracket of each trial, by its number alone, so that all brackets train for about equally many epochs.

    Bracket b has s = `rungs` - b rungs (`rungs` of bracket 0, as many as brackets unless given), the first at
    `factor ** -s` of all epochs. A trial that starts in it trains for a share of them that is on average
    `factor ** -s * (1 + s * (1 - 1 / factor))`, and brackets get trials in inverse proportion. Hyperband (Li et al.
    2018, algorithm 1) has `s + 1` for the sum, as it counts every rung's training from the first epoch; here members go
    on from where they are. Any run of numbers is dealt in these proportions: a trial's number times the golden ratio
    falls in its bracket's part of the circle.
    """
    deepest = brackets if rungs is None else rungs
    if not 1 <= brackets <= deepest:
        raise ValueError(f"`1 <= brackets <= rungs` must hold, but got brackets={brackets}, rungs={deepest}")
    shares = [factor**s / (1 + s * (1 - 1 / factor)) for s in range(deepest, deepest - brackets, -1)]
    bounds = [bound / sum(shares) for bound in itertools.accumulate(shares)][:-1]
    return tuple(bisect.bisect_right(bounds, number * GOLDEN % 2**64 / 2**64) for number in numbers)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
