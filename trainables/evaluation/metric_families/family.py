"""What all metrics of a family have in common."""

from dataclasses import dataclass
from typing import Literal

SHARE = "a share in [0, 1]"
CORRECTED_SHARE = "a share of at most 1, corrected for chance: 0 for random clusters"


@dataclass(frozen=True)
class MetricFamily:
    """The properties that all metrics of a family share."""

    meaning: str
    """One or two sentences."""
    direction: Literal["maximize", "minimize"] | None = None
    """Which direction is better; None if neither is, or if it depends on the question."""
    unit: str = SHARE
    """Unit and range."""
    at_end: bool = False
    """Whether it is reported at the end of training only, not at every report."""
    may_be_undefined: bool = False
    """Whether it may be NaN. A trial with a NaN in any other metric has diverged."""

    chosen_on_test: bool = False
    """Whether it is the best of several values, chosen on the very images that it is measured on."""

    @property
    def share(self) -> bool:
        """Whether it is a share, so that it can be shown in percent."""
        return self.unit in (SHARE, CORRECTED_SHARE)
