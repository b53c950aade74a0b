"""A number that a trial reports, and which way it is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sweeper.grid import SpecError

Direction = Literal["maximize", "minimize"]


VALIDATION = "val_"
"""Begins the name of a metric of validation images; the rest is that of the same metric of the test images."""


@dataclass(frozen=True)
class Metric:
    name: str
    """As in the rows, e.g. `auroc_joint`."""
    direction: Direction | None = None
    """Which way is better; None for what is neither, which no heatmap shows and no table begins with."""
    percent: bool = False
    """A share in [0, 1] that tables and figures show in percent, as papers print accuracies."""

    @property
    def better(self) -> Direction:
        """Its direction. SpecError where it has none."""
        if self.direction is None:
            raise SpecError(f"what a heatmap shows or comes first has a direction, but {self.name} has none")
        return self.direction
