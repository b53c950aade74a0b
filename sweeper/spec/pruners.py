"""Pruners of a study's trials while they train."""

import itertools
import math
from dataclasses import dataclass

from sweeper.errors import SpecError


@dataclass(frozen=True)
class Halving:
    """Successive halving: of all trials of the study that reach a rung, the best `1 / factor` continue."""

    first: int
    """Epochs at the first rung. Each later rung is at `factor` times the epochs of the one before."""
    factor: int = 3
    """Reduction factor (eta)."""
    brackets: int = 1
    """More than one is Hyperband. Bracket b skips the first b rungs, which gives trials that improve late a chance."""

    def __post_init__(self) -> None:
        for name, least in (("first", 1), ("factor", 2), ("brackets", 1)):
            if (value := getattr(self, name)) < least:
                raise SpecError(f"`{name} >= {least}` must hold for a pruner, but got {name}={value}")

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
