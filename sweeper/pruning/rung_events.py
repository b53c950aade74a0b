"""What the driver tells the rung server about cohorts that are compared at rungs. Cohorts are named by their ids.

A cohort of a study has a position, a tuple of whole numbers; positions ascend in the order in which cohorts start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Position = tuple[int, ...]


@dataclass(frozen=True)
class CohortAnnounced:
    """A cohort will start, without its members that ended in an earlier run. Positions must ascend within a study."""

    study: str
    position: Position
    cohort: str
    numbers: Sequence[int]
    """The number of each member in the study."""
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
