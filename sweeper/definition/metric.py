"""A number that a trial reports, and whether higher or lower is better."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypeGuard, get_args

from sweeper.definition.field_types import check_types
from sweeper.errors import SpecError
from trainables.metrics.families import SHARE
from trainables.metrics.meanings import VALIDATION, family_of

Direction = Literal["maximize", "minimize"]
BETTER = {"maximize": "higher", "minimize": "lower"}
"""Direction -> which values are better."""
Spread = Literal["interval", "deviation"]
"""What stands beside a mean: its 95 % interval, or the standard deviation of the replicates."""
SPREADS: Mapping[Spread, str] = {"interval": "[95 % interval]", "deviation": "± standard deviation"}
"""What stands beside a mean -> how it is written, with its name."""
OF_EVERY_ROW = ("seconds", "device_seconds", "epochs_run")
"""Numeric columns that every row has in addition to its metrics. They are known when the trial has ended."""
REPORTED = "reported values"
"""What a metric is a number of that this project does not know."""
LARGEST = 1e300
"""Largest magnitude of a value that counts as finite: the sum of larger ones may overflow."""


def is_finite(value: object) -> TypeGuard[float]:
    """Whether a value of a metric is a finite number, of a magnitude of at most `LARGEST`."""
    return isinstance(value, Real) and bool(abs(value) <= LARGEST)  # type: ignore[operator]


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values; None if one of them is missing: a mean over the others would hide it."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


@dataclass(frozen=True)
class Metric:
    """A metric. Raises SpecError if the direction is invalid or contradicts the meaning of the metric."""

    name: str
    """Name of its column in the rows, e.g. `auroc_joint`."""
    direction: Direction | None = None
    """Whether higher or lower values are better. None if neither is: trials cannot be ranked by such a metric, so no
    heatmap shows it and it cannot be the first metric of a table."""
    percent: bool = False
    """Whether tables and figures show it in percent. The values themselves are shares in [0, 1]."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.direction not in (*get_args(Direction), None):
            choices = "'maximize', 'minimize' or None"
            raise SpecError(f"the direction of a metric must be {choices}, but {self.name} has {self.direction!r}")
        family = family_of(self.name)
        if family is None:
            return
        if self.direction and family.direction and self.direction != family.direction:
            raise SpecError(
                f"{self.name} is better the {BETTER[family.direction]} it is, so its direction must be "
                f"{family.direction!r}, but got {self.direction!r}"
            )
        if self.percent and not family.share:
            raise SpecError(f"`percent` is for shares in [0, 1], but {self.name} is {family.unit}")

    @property
    def label(self) -> str:
        """The name, with the unit if it is percent, for tables and figures: `knn_z (%)`."""
        return f"{self.name} (%)" if self.percent else self.name

    @property
    def measured_on(self) -> str:
        """What it is a number of, as the end of a sentence: `validation images`, `test images`,
        `generated images`, `test pairs` or `training data`; `reported values` of a metric that this project does not
        know, such as one of a function."""
        family = family_of(self.name)
        if family is None:
            return REPORTED
        measured_on = family.measured_on
        is_validation = measured_on == "test images" and self.name.startswith(VALIDATION)
        return "validation images" if is_validation else measured_on

    @property
    def is_chosen_on_test(self) -> bool:
        """Whether it is the best of several values on the test images themselves, such as a probe's best epoch."""
        family = family_of(self.name)
        return family is not None and family.chosen_on_test

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The lowest and the highest value that the metric can have, in the unit of `label`; None if not a share."""
        family = family_of(self.name)
        is_share = self.percent if family is None else family.unit == SHARE
        return (0.0, 100.0 if self.percent else 1.0) if is_share else None

    def cost(self, value: Any) -> Any:
        """The value as a cost: of two values the one with the lower cost is better. Values may be numbers, arrays or
        Series; the cost of a cost is the value. Raises SpecError if the metric has no direction."""
        return -value if self.ranking_direction == "maximize" else value

    @property
    def better(self) -> str:
        """Which values are better: `higher` or `lower`. Raises SpecError if the metric has no direction."""
        return BETTER[self.ranking_direction]

    @property
    def ranking_direction(self) -> Direction:
        """The direction by which trials are ranked. Raises SpecError if there is none."""
        if self.direction is None:
            raise SpecError(
                f"metric {self.name!r} needs a direction because trials are ranked by it; write "
                f"Metric({self.name!r}, 'maximize') or 'minimize'"
            )
        return self.direction
