"""Sources of the cohorts to train, which give one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sweeper.plan.cohorts import Cohort, halves, remaining

if TYPE_CHECKING:  # it imports torch
    from trainables.worker.messages import CohortReport

Record = tuple[str, int, str, float]
"""trial_id, epoch, metric, value."""


class CohortSource(Protocol):
    """Gives cohorts to train and is told of their progress, on which the next cohorts may depend.

    Methods that take a string `cohort` take the id of a cohort.
    """

    @property
    def cohorts(self) -> Mapping[str, Cohort]:
        """Cohorts by id; all that were given so far are among them."""

    @property
    def exhausted(self) -> bool:
        """True if no cohort will follow."""

    def next(self) -> Cohort | None:
        """Return the cohort to train next; None if there is none at the moment."""

    def ancestors(self, cohort: str) -> Sequence[Cohort]:
        """Return the cohorts that this one was part of before they were halved, smallest first."""

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        """Replace a cohort by its halves, half as wide, and return them; return nothing if it must stay whole."""

    def started(self, cohort: str) -> None:
        """Record that a worker has started the cohort."""

    def stopped(self, cohort: str) -> None:
        """Record that the cohort has lost its worker. It, or its halves, will be trained again."""

    def reported(self, cohort: str, message: CohortReport) -> None:
        """Take a report of the cohort."""

    def completed(self, cohort: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Record]) -> None:
        """Take the rows and the history of a cohort that has ended; they are in the store already."""


class CohortQueue:
    """A source of cohorts that are all known from the start."""

    def __init__(
        self,
        whole: Sequence[Cohort],
        statuses: Mapping[str, str] | None = None,
        ancestors: Mapping[str, Sequence[Cohort]] | None = None,
        record: Callable[[str], None] = lambda cohort: None,
    ) -> None:
        """Queue what remains of the `whole` cohorts.

        `statuses` maps the ids of trials that have a row to their status. `ancestors` maps the id of a cohort that is a
        part to the cohorts that it was part of (see `cohorts.lineage`). `record` is called with the id of every cohort
        that is halved.
        """
        self._ancestors = dict(ancestors or {})
        self._whole = {cohort.id: cohort for cohort in whole}
        self._statuses, self._record = dict(statuses or {}), record
        left = remaining(whole, self._statuses)
        self.cohorts = {cohort.id: cohort for cohort in left}
        self._left = list(reversed(left))

    @property
    def exhausted(self) -> bool:
        return not self._left

    def next(self) -> Cohort | None:
        return self._left.pop() if self._left else None

    def ancestors(self, cohort: str) -> Sequence[Cohort]:
        return self._ancestors.get(cohort, ())

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        """Replace a cohort by what remains of its halves.

        The whole cohort is halved, finished trials included, so that its halves are the same in every run.
        """
        parts = halves(self._whole[cohort.id])
        self._record(cohort.id)
        self._ancestors |= dict.fromkeys((part.id for part in parts), (cohort, *self.ancestors(cohort.id)))
        self._whole |= {part.id: part for part in parts}
        left = remaining(parts, self._statuses)
        self.cohorts |= {part.id: part for part in left}
        return left

    def started(self, cohort: str) -> None:
        pass

    def stopped(self, cohort: str) -> None:
        pass

    def reported(self, cohort: str, message: CohortReport) -> None:
        pass

    def completed(self, cohort: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Record]) -> None:
        pass
