"""What a proposal of a search must meet, beside being good: a bound on a column of its row."""

import math
from dataclasses import dataclass
from typing import Literal

from sweeper.definition.field_types import check_types
from sweeper.definition.metric import OF_EVERY_ROW
from sweeper.errors import SpecError


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric or on `seconds`, `device_seconds` or `epochs_run`. A proposal that lacks the value, or whose
    value is on the other side of the bound, is infeasible.

    Example: `Constraint("seconds", "<=", 60)`. Raises SpecError for another sign, and for a bound that is not finite.
    """

    column: str
    sign: Literal["<=", ">="]
    bound: float

    def __post_init__(self) -> None:
        check_types(self)
        if self.sign not in ("<=", ">="):
            raise SpecError(f"the sign of a constraint must be '<=' or '>=', but {self.column} has {self.sign!r}")
        if not math.isfinite(self.bound):
            raise SpecError(f"the bound of a constraint must be a finite number, but {self.column} has {self.bound!r}")

    @property
    def text(self) -> str:
        """For example `seconds <= 60`."""
        return f"{self.column} {self.sign} {self.bound:.12g}"

    @property
    def at_end(self) -> bool:
        """Whether the column is known of a trial that has ended alone."""
        return self.column in OF_EVERY_ROW

    def violation(self, value: float) -> float:
        """Return by how much a finite value is beyond the bound: at most 0 if it is not. The unit is the bound, so that
        the violations of several constraints can be added; of a bound of 0 it is that of the column."""
        beyond = value - self.bound if self.sign == "<=" else self.bound - value
        return float(beyond / (abs(self.bound) or 1.0))
