"""Rungs: epochs at which the members of a cohort are compared and some pruned, independently of the cohorts' timing.

Every cohort of a study has a position, a tuple of whole numbers; positions ascend in the order in which cohorts start.
At a rung the members of a cohort are compared with each other and with the members of all cohorts at lower positions,
whenever those reached the rung. So a cohort waits for lower positions, and never for higher ones. It waits without a
slot: it has saved a checkpoint and ended, and continues once there is a verdict.

A cohort may be split while it trains. Its parts keep its position and wait for each other at a rung, so that they are
judged as the whole would have been.

Members of one number are the replicates of one proposal. They are compared by their mean, and go on or are pruned
together. One that diverged or was pruned leaves its proposal without a value; one that failed does not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from typing import Self

from sweeper.definition.metric import Direction, is_finite, mean_of_all
from sweeper.definition.pruners import Pruner

Position = tuple[int, ...]


Values = Mapping[int, float | None]
"""Index of a member in its cohort -> its value at an epoch; None or not finite if it has no value there."""


@dataclass
class _CohortState:
    """What is known of the cohort at one position."""

    brackets: tuple[int, ...]
    """The bracket of each member."""
    numbers: tuple[int, ...]
    """The number of each member's proposal."""
    last: Mapping[int, int] = field(default_factory=dict)
    """Index of each member that ended in an earlier run -> last epoch that it reported."""
    values: dict[int, dict[int, float | None]] = field(default_factory=dict)
    """Epoch -> index -> value, of the members that were running then."""
    known: dict[int, set[int]] = field(default_factory=dict)
    """Epoch -> indices of the members of which it is known whether they were running then, and with which value."""
    verdicts: dict[tuple[int, int], dict[int, str]] = field(default_factory=dict)
    """Epoch and bracket -> index -> reason, of the members that were pruned there."""
    ended: set[int] = field(default_factory=set)
    """Indices of the members that will not be trained any further."""

    def proposals(self, epoch: int, bracket: int) -> dict[int, float | None]:
        """Return the proposals of a bracket with a member that was running at an epoch: index of its first member ->
        mean of its members; None if one of them, that has not failed, has no value."""
        values, proposals = self.values.get(epoch, {}), dict[int, list[int]]()
        for index in sorted(self.known.get(epoch, set())):
            if self.brackets[index] == bracket:
                proposals.setdefault(self.numbers[index], []).append(index)
        return {
            members[0]: mean_of_all([values.get(index) for index in members])
            for members in proposals.values()
            if any(index in values for index in members)
        }

    def settled(self, number: int, epoch: int) -> bool | None:
        """Return whether a proposal went on at an epoch, by its members that ended in an earlier run; None without
        such members there. Those that failed then are tried again, and follow."""
        last = [self.last[index] for index in self.last if self.numbers[index] == number and self.last[index] >= epoch]
        return max(last) > epoch if last else None

    def awaited(self, epoch: int, brackets: Collection[int]) -> set[int]:
        """Return the members of these brackets that may still have a value at an epoch, which is not known yet."""
        known = self.known.get(epoch, set())
        if len(known) == len(self.brackets) or len(self.ended) == len(self.brackets):
            return set()
        pruned = {index for (at, _), verdict in self.verdicts.items() if at < epoch for index in verdict}
        members = {index for index, bracket in enumerate(self.brackets) if bracket in brackets}
        return members - known - self.ended - pruned


class Rungs:
    """The rungs of one study, and the cohorts that have reached them.

    Where a method takes `members`, they are the indices of the cohort's members that it is about; None: all.
    `announce`, `post` and `end` may be repeated, as a retried cohort does: the first call counts, for each member.
    """

    def __init__(self, direction: Direction, pruner: Pruner, ladders: Sequence[Sequence[int]]) -> None:
        """`ladders` has the epochs of the rungs of each bracket. At a rung the pruner says how many of the bracket's
        members go on."""
        self._sign = -1 if direction == "maximize" else 1
        self._pruner = pruner
        self._ladders = tuple(frozenset(ladder) for ladder in ladders)
        self.epochs = frozenset(itertools.chain(*ladders))
        """Epochs that are a rung of any bracket."""
        self._positions: dict[Position, _CohortState] = {}

    def up_to(self, position: Position) -> Self:
        """Return a copy of what is known now of the cohorts at this position and at lower ones."""
        known = copy(self)
        known._positions = {at: deepcopy(cohort) for at, cohort in self._positions.items() if at <= position}
        return known

    def brackets(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return the bracket of each trial, from the number of its proposal in the study."""
        return self._pruner.brackets_of(numbers, len(self._ladders[0]))

    def announce(
        self,
        position: Position,
        brackets: Sequence[int],
        reached: Mapping[int, Mapping[int, float]] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        """Announce the cohort at `position`, with the bracket of each member. Positions must ascend.

        `reached` maps the index of each member that ended in an earlier run to its values by epoch. `numbers` are those
        of the members' proposals; None: each is one of its own. Raises ValueError if a higher position was announced
        before, or this position with other brackets.
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
        last = {index: max(of_member, default=-1) for index, of_member in (reached or {}).items()}
        numbers = range(len(brackets)) if numbers is None else numbers
        self._positions[position] = _CohortState(tuple(brackets), tuple(numbers), last)
        for epoch in self.epochs if reached else ():
            values = {index: of_member[epoch] for index, of_member in (reached or {}).items() if epoch in of_member}
            self.post(position, epoch, values, reached)
        self.end(position, reached or ())

    def post(self, position: Position, epoch: int, values: Values, members: Collection[int] | None = None) -> None:
        """Record the values of those of the `members` that are running at an epoch.

        A second post of a member for an epoch, or one after the member's end, changes nothing.
        """
        cohort = self._cohort(position)
        members = set(range(len(cohort.brackets)) if members is None else members)
        for index in values:
            if index not in members:
                raise ValueError(
                    f"a member of the cohort at position {position} must be one of "
                    f"{', '.join(map(str, sorted(members)))}, but got member={index}"
                )
        known, known_values = cohort.known.setdefault(epoch, set()), cohort.values.setdefault(epoch, {})
        new = members - known - cohort.ended
        known |= new
        known_values |= {index: _finite(values[index]) for index in sorted(new.intersection(values))}

    def end(self, position: Position, members: Collection[int] | None = None) -> None:
        """Record that the members finished or failed for good. No cohort waits for them any more."""
        cohort = self._cohort(position)
        cohort.ended.update(range(len(cohort.brackets)) if members is None else members)

    def ready(self, position: Position, epoch: int, members: Collection[int] | None = None) -> bool:
        """Whether a verdict on the members at an epoch waits for nobody."""
        return not self.awaited(position, epoch, members)

    def awaited(
        self, position: Position, epoch: int, members: Collection[int] | None = None
    ) -> dict[Position, set[int]]:
        """Return the members at this and lower positions for which a verdict on `members` waits: those with which they
        are compared, or which may be, and whose values of the epoch are not known."""
        brackets = self._judged(self._cohort(position), epoch, members)
        states = ((at, cohort) for at, cohort in self._positions.items() if brackets and at <= position)
        return {at: awaited for at, cohort in states if (awaited := cohort.awaited(epoch, brackets))}

    def verdict(self, position: Position, epoch: int, members: Collection[int] | None = None) -> dict[int, str]:
        """Return those of the members that are pruned at an epoch: index -> reason, in one line.

        Of n proposals in a bracket, those of this cohort and of lower positions, the best `max(1, Pruner.keep)` go
        on; of equal values the one posted at the lower position, or of the lower index. A proposal without a value is
        pruned. If none of the bracket has a value, the cohort's first one of the bracket goes on.

        Raises ValueError before `ready`.
        """
        cohort = self._cohort(position)
        verdict: dict[int, str] = {}
        for bracket in sorted(self._judged(cohort, epoch, members)):
            if (epoch, bracket) not in cohort.verdicts:
                if not self.ready(position, epoch, members):
                    raise ValueError(
                        f"a verdict must be awaited, but position {position} at epoch {epoch} is not ready"
                    )
                cohort.verdicts[epoch, bracket] = dict(self._pruned(position, epoch, bracket))
            verdict |= cohort.verdicts[epoch, bracket]
        return {index: reason for index, reason in verdict.items() if members is None or index in members}

    def _pruned(self, position: Position, epoch: int, bracket: int) -> Iterator[tuple[int, str]]:
        """Yield the index and the reason of each of the cohort's members in a bracket that is pruned."""
        proposals = {
            lower: other.proposals(epoch, bracket) for lower, other in self._positions.items() if lower <= position
        }
        ranked = sorted(
            (self._sign * value, lower, index)
            for lower, means in proposals.items()
            for index, value in means.items()
            if value is not None
        )
        kept = self._pruner.keep(epoch, [self._sign * cost for cost, _, _ in ranked]) if ranked else 0
        best, cohort, own = ranked[: max(1, kept)], self._positions[position], proposals[position]
        staying = {index for _, lower, index in best if lower == position} if best else {next(iter(own), -1)}
        for first, value in own.items():
            number = cohort.numbers[first]
            went_on = cohort.settled(number, epoch)
            if first in staying if went_on is None else went_on:
                continue
            members = [index for index in cohort.values[epoch] if cohort.numbers[index] == number]
            if went_on is not None and first in staying:
                reason = f"its replicates were pruned at epoch {epoch}"
            elif not best:
                reason = f"no value at epoch {epoch}, where nobody had one and the first went on"
            else:
                threshold = self._sign * best[-1][0]
                own_value = "no value" if value is None else f"{value:.6g}"
                mean_of = f" (mean of {len(members)})" if len(members) > 1 and value is not None else ""
                bar = f"{threshold:.6g}" + (", first of equals" if value == threshold else " or better")
                reason = (
                    f"{own_value}{mean_of} at epoch {epoch} was not among the best {len(best)} of {len(ranked)} ({bar})"
                )
            for index in members:
                yield index, reason

    def _judged(self, cohort: _CohortState, epoch: int, members: Collection[int] | None) -> set[int]:
        """Return the brackets of the members that have a rung at this epoch."""
        brackets = cohort.brackets if members is None else {cohort.brackets[index] for index in members}
        return {bracket for bracket in brackets if epoch in self._ladders[bracket]}

    def _cohort(self, position: Position) -> _CohortState:
        """Return the cohort at a position. Raises ValueError if none was announced there."""
        if position not in self._positions:
            known = ", ".join(map(str, self._positions)) or "none"
            raise ValueError(f"no cohort is announced at position {position}; positions are: {known}")
        return self._positions[position]


@dataclass(frozen=True)
class Place:
    """Where a cohort stands at the rungs of its study. Its methods take indices of members within the cohort."""

    rungs: Rungs
    position: Position
    members: tuple[int, ...]
    """Indices of its members among all at the position, in ascending order."""

    @property
    def known_now(self) -> Self:
        """The place with a copy of what the rungs know now, for a process that trains the cohort."""
        return replace(self, rungs=self.rungs.up_to(self.position))

    def parts(self, sizes: Sequence[int]) -> list[Self]:
        """Return the places of the cohort's parts, which have these numbers of members."""
        members = iter(self.members)
        return [replace(self, members=tuple(itertools.islice(members, size))) for size in sizes]

    def post(self, epoch: int, values: Values, members: Collection[int] | None = None) -> None:
        """Record the values of those of the `members` that are running at an epoch, as `Rungs.post` does."""
        if epoch in self.rungs.epochs:
            of = self.members if members is None else [self.members[index] for index in members]
            self.rungs.post(self.position, epoch, {self.members[index]: values[index] for index in values}, of)

    def waits(self, epoch: int) -> bool:
        """Whether a verdict at an epoch waits for other cohorts, or for the other parts of this one."""
        return not self.rungs.ready(self.position, epoch, self.members)

    def verdict(self, epoch: int) -> dict[int, str]:
        """Return the members that are pruned at an epoch: index -> reason. Raises ValueError where it waits."""
        pruned = self.rungs.verdict(self.position, epoch, self.members)
        return {self.members.index(index): reason for index, reason in pruned.items()}

    def decide(self, epoch: int, values: Values) -> dict[int, str] | None:
        """Record the values at an epoch, and return the verdict; None if it waits for what is not known here."""
        self.post(epoch, values)
        return None if self.waits(epoch) else self.verdict(epoch)

    def end(self) -> None:
        """Record that the cohort finished or failed for good."""
        self.rungs.end(self.position, self.members)


def _finite(value: float | None) -> float | None:
    return float(value) if is_finite(value) else None
