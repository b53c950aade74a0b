"""Sources of the cohorts to train, which give one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeper.plan.cohorts import Cohort, halves, remaining

if TYPE_CHECKING:  # it imports torch
    from trainables.worker.messages import CohortReport

Record = tuple[str, int, str, float]
"""trial_id, epoch, metric, value."""


@dataclass(frozen=True)
class TrainedElsewhere:
    """Trials of a source to which another driver has given a row meanwhile."""

    statuses: Mapping[str, str]
    """trial_id -> status."""
    cohorts: int
    """Number of cohorts of the source that had no other trials."""


class CohortSource:
    """Gives cohorts to train and is told of their progress; a string `cohort` is the id of one."""

    def __init__(self, record_halved: Callable[[str], None]) -> None:
        """`record_halved` is called with the id of every cohort that is halved."""
        self.cohorts: dict[str, Cohort] = {}
        """Cohorts by id; all that were given so far are among them."""
        self._whole: dict[str, Cohort] = {}
        """Cohorts by id, including the trials that had a result before."""
        self._ancestors: dict[str, Sequence[Cohort]] = {}
        self._record_halved = record_halved

    @property
    def exhausted(self) -> bool:
        """True if no cohort will follow."""
        raise NotImplementedError

    def next(self) -> Cohort | None:
        """Return the cohort to train next; None if there is none at the moment."""
        raise NotImplementedError

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        """Replace a cohort by its halves, half as wide, and return them; return nothing if it must stay whole."""
        raise NotImplementedError

    def ancestors(self, cohort: str) -> Sequence[Cohort]:
        """Return the cohorts that this one was part of before they were halved, smallest first."""
        return self._ancestors.get(cohort, ())

    def started(self, cohort: str) -> None:
        """Record that a worker has started the cohort."""

    def stopped(self, cohort: str) -> None:
        """Record that the cohort has lost its worker. It, or its halves, will be trained again."""

    def reported(self, cohort: str, message: CohortReport) -> None:
        """Take a report of the cohort."""

    def completed(self, cohort: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Record]) -> None:
        """Take the rows and the history of a cohort that has ended; they are in the store already."""

    def trained_elsewhere(self) -> TrainedElsewhere | None:
        """Return which trials another driver has trained since the last call; None if there are none."""
        return None

    def _replace_by_halves(self, cohort: Cohort, statuses: Mapping[str, str]) -> list[Cohort]:
        """Return what remains of the halves of the whole cohort, which are the same in every run."""
        parts = halves(self._whole[cohort.id])
        self._record_halved(cohort.id)
        self._ancestors |= dict.fromkeys((part.id for part in parts), (cohort, *self.ancestors(cohort.id)))
        self._whole |= {part.id: part for part in parts}
        left = remaining(parts, statuses)
        self.cohorts |= {part.id: part for part in left}
        return left
