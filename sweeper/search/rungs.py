"""Rungs: epochs at which the members of a cohort are compared and some pruned, independently of the cohorts' timing.

Every cohort of a study has a position, a tuple of whole numbers; positions ascend in the order in which cohorts start.
At a rung the members of a cohort are compared with each other and with the members of all cohorts at lower positions,
whenever those reached the rung. So a cohort waits for lower positions, and never for higher ones.

A cohort may be split while it trains. Its parts keep its position and wait for each other at a rung, so that they are
judged as the whole would have been.

Members of one number are the replicates of one proposal. They are compared by their mean, and go on or are pruned
together. One that diverged or was pruned leaves its proposal without a value; one that failed does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sweeper.spec.metric import Direction, is_finite, mean_of_all
from sweeper.spec.pruners import Pruner

Position = tuple[int, ...]


@dataclass(frozen=True)
class CohortAnnounced:
    """A cohort will start, without its members that ended in an earlier run. Positions must ascend within a study."""

    study: str
    position: Position
    cohort: str
    numbers: Sequence[int]
    """The number of each member's proposal in the study."""
    reached: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    """Index of each member that ended in an earlier run -> epoch -> value of the metric."""


@dataclass(frozen=True)
class CohortRestored:
    """Trials that ended in an earlier run take a position."""

    study: str
    position: Position
    numbers: Sequence[int]
    reached: Sequence[Mapping[int, float]]
    """Epoch -> value of the metric, for each trial."""


@dataclass(frozen=True)
class CohortStarted:
    """A worker has started the cohort."""

    cohort: str


@dataclass(frozen=True)
class CohortStopped:
    """The cohort has lost its worker."""

    cohort: str


@dataclass(frozen=True)
class CohortReported:
    """The cohort has repeated a report from before it was resumed, for which it asks no verdict any more."""

    cohort: str
    epoch: int
    values: Mapping[int, float | None]
    """Index of each member that was running at this epoch -> its value."""


@dataclass(frozen=True)
class CohortSplit:
    """The cohort is replaced by its parts, which have its position and, in order, the members that it trains."""

    cohort: str
    parts: Mapping[str, int]
    """Id of each part -> its number of members."""


@dataclass(frozen=True)
class CohortEnded:
    """The cohort finished or failed for good."""

    cohort: str


RungEvent = (
    CohortAnnounced | CohortRestored | CohortStarted | CohortStopped | CohortReported | CohortSplit | CohortEnded
)


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
        self._positions: dict[Position, _CohortState] = {}

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
        for epoch in frozenset().union(*self._ladders) if reached else ():
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


def _finite(value: float | None) -> float | None:
    return float(value) if is_finite(value) else None
