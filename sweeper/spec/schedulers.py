"""What becomes of the trials of a study while they train: halving drops them, a population adapts them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from sweeper.errors import SpecError


@dataclass(frozen=True)
class Halving:
    """Successive halving: at each rung the best `1 / factor` of all members of the study that reached it go on."""

    first: int
    """Epochs at the first rung; those of the others are `factor` times those of the one before."""
    factor: int = 3
    brackets: int = 1
    """More than one is Hyperband: bracket b leaves out the first b rungs, so that slow starters have a chance."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("first", self.first, 1),
            ("factor", self.factor, 2),
            ("brackets", self.brackets, 1),
        ):
            if value < least:
                raise SpecError(f"`{name} >= {least}` must hold for a pruner, but got {name}={value}")

    def ladders(self, epochs: int, report_every: int) -> tuple[tuple[int, ...], ...]:
        """Of each bracket the epochs of its rungs: reports before the last one. SpecError where a bracket has none."""
        wanted = itertools.takewhile(
            lambda epoch: epoch < epochs, (self.first * self.factor**k for k in itertools.count())
        )
        rungs = tuple(dict.fromkeys(-(-epoch // report_every) * report_every for epoch in wanted))
        rungs = tuple(epoch for epoch in rungs if epoch < epochs)
        if len(rungs) < self.brackets:
            raise SpecError(
                f"a pruner needs a report before the last epoch for each of its {self.brackets} brackets, but with "
                f"first={self.first}, factor={self.factor}, report_every={report_every} and epochs={epochs} there are "
                f"{len(rungs)}; report more often, or choose a smaller first"
            )
        return tuple(rungs[bracket:] for bracket in range(self.brackets))


@dataclass(frozen=True)
class Population:
    """Population-based training: a wave is one stack; at times the worst members take over weights and
    hyperparameters of the best, and change the latter a little."""

    every: int
    """Epochs between two such times."""
    share: float = 0.25
    """Of the members that take over, and of those that are taken from; in (0, 0.5]."""
    factor: float = 1.25
    """A hyperparameter is multiplied by it or divided by it, as likely the one as the other, and kept in the space."""

    def __post_init__(self) -> None:
        if self.every < 1 or not 0 < self.share <= 0.5 or not self.factor > 1:
            raise SpecError(
                "`every >= 1`, `0 < share <= 0.5` and `factor > 1` must hold for a population, but got "
                f"every={self.every}, share={self.share}, factor={self.factor}"
            )
