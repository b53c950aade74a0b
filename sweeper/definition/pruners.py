"""Pruners of a study's trials while they train."""

from __future__ import annotations

import bisect
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from sweeper.definition.field_types import check_types
from sweeper.errors import SpecError

GOLDEN = 0x9E3779B97F4A7C15
"""2 ** 64 times the fractional part of the golden ratio. Its multiples modulo 2 ** 64 are spread evenly."""


@dataclass(frozen=True)
class Pruner(ABC):
    """Ends the worse trials of a study at rungs, which are epochs at which they report.

    A pruner of your own is a subclass with `keep`. Its parameters, if it has any, are the fields of a frozen dataclass:
    the id of a study is made from them and from the name of the class.
    """

    @abstractmethod
    def keep(self, epoch: int, values: Sequence[float]) -> int:
        """Return how many trials go on at a rung, the best of them; one does at least.

        `values` are those of the metric at this epoch, best first: of the trials to be judged, and of those that
        started before them and have reached the rung. The answer must depend on the arguments and fields alone.
        """

    def ladders(self, epochs: int, report_every: int) -> tuple[tuple[int, ...], ...]:
        """Return the epochs of the rungs of each bracket: every report before the last epoch, in one bracket.

        Raises SpecError if there is none.
        """
        rungs = tuple(range(report_every, epochs, report_every))
        if not rungs:
            raise SpecError(
                f"a pruner needs a report before the last epoch, but with report_every={report_every} and "
                f"epochs={epochs} there is none; report more often"
            )
        return (rungs,)

    def brackets_of(self, numbers: Sequence[int], rungs: int) -> tuple[int, ...]:
        """Return the bracket of each trial, from its number in the study. `rungs` is the length of the first ladder."""
        return (0,) * len(numbers)

    @property
    def reduction(self) -> int:
        """One of so many trials goes on at a rung, by which work is estimated; 1 if that is not known."""
        return 1


@dataclass(frozen=True)
class Halving(Pruner):
    """Successive halving: of all trials of the study that reach a rung, the best `1 / factor` continue."""

    first: int
    """Epochs at the first rung. Each later rung is at `factor` times the epochs of the one before."""
    factor: int = 3
    """Reduction factor (eta)."""
    brackets: int = 1
    """More than one is Hyperband. Bracket b skips the first b rungs, which gives trials that improve late a chance."""

    def __post_init__(self) -> None:
        check_types(self)
        for name, least in (("first", 1), ("factor", 2), ("brackets", 1)):
            if (value := getattr(self, name)) < least:
                raise SpecError(f"`{name} >= {least}` must hold for a pruner, but got {name}={value}")

    def keep(self, epoch: int, values: Sequence[float]) -> int:
        return len(values) // self.factor

    def ladders(self, epochs: int, report_every: int) -> tuple[tuple[int, ...], ...]:
        """Return the epochs of the rungs of each bracket. Raises SpecError if a bracket would have none.

        A rung is at a report, so its epoch is rounded up to a multiple of `report_every`. It is before the last epoch.
        Example: `Halving(first=4, factor=3).ladders(epochs=45, report_every=10)` is `((10, 20, 40),)`.
        """
        targets = (self.first * self.factor**k for k in itertools.count())
        reports = (math.ceil(epoch / report_every) * report_every for epoch in targets)
        rungs = tuple(dict.fromkeys(itertools.takewhile(lambda epoch: epoch < epochs, reports)))
        if len(rungs) < self.brackets:
            raise SpecError(
                f"a pruner needs a report before the last epoch for each of its {self.brackets} brackets, but with "
                f"first={self.first}, factor={self.factor}, report_every={report_every} and epochs={epochs} there are "
                f"{len(rungs)}; report more often, or choose a smaller first"
            )
        return tuple(rungs[bracket:] for bracket in range(self.brackets))

    def brackets_of(self, numbers: Sequence[int], rungs: int) -> tuple[int, ...]:
        return assign_brackets(numbers, self.brackets, self.factor, rungs)

    @property
    def reduction(self) -> int:
        return self.factor


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
