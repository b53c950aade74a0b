"""A number that a trial reports, and which way it is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sweeper.errors import SpecError
from trainables.evaluation.metrics import family_of

Direction = Literal["maximize", "minimize"]
WAYS: dict[str, str] = {"maximize": "higher", "minimize": "lower"}


VALIDATION = "val_"
"""Begins the name of a metric of validation images; the rest is that of the same metric of the test images."""


@dataclass(frozen=True)
class Metric:
    """A metric by its name. SpecError for a direction that is none, or that contradicts what the metric means."""

    name: str
    """As in the rows, e.g. `auroc_joint`."""
    direction: Direction | None = None
    """Which way is better; None for what is neither, which no heatmap shows and no table begins with."""
    percent: bool = False
    """A share in [0, 1] that tables and figures show in percent, as papers print accuracies."""

    def __post_init__(self) -> None:
        if self.direction not in (*get_args(Direction), None):
            choices = "'maximize', 'minimize' or None"
            raise SpecError(f"the direction of a metric must be {choices}, but {self.name} has {self.direction!r}")
        family = family_of(self.name)
        if family is None:
            return
        if self.direction and family.direction and self.direction != family.direction:
            raise SpecError(
                f"{self.name} is better the {WAYS[family.direction]} it is, so its direction must be "
                f"{family.direction!r}, but got {self.direction!r}"
            )
        if self.percent and not family.share:
            raise SpecError(f"`percent` is for shares in [0, 1], but {self.name} is {family.unit}")

    @property
    def better(self) -> Direction:
        """Its direction. SpecError where it has none."""
        if self.direction is None:
            raise SpecError(
                f"metric {self.name!r} needs a direction because trials are ranked by it; write "
                f"Metric({self.name!r}, 'maximize') or 'minimize'"
            )
        return self.direction
