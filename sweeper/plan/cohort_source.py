"""Where cohorts to train come from, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from sweeper.plan.cohorts import Cohort, halves, remaining

Record = tuple[str, int, str, float]
"""trial_id, epoch, metric, value."""


class CohortSource(Protocol):
    """Gives cohorts, and is told what became of them, from which the next may follow."""

    @property
    def cohorts(self) -> Mapping[str, Cohort]:
        """By id, every one given so far."""

    @property
    def ended(self) -> bool:
        """No cohort will follow."""

    def next(self) -> Cohort | None:
        """The cohort to train next; None where there is none at the moment."""

    def options(self, cohort: str) -> Mapping[str, Any]:
        """What `trainables.worker.ray_train` needs beside the configs: `population`, and whether it is `judged`."""

    def before(self, cohort: str) -> Sequence[Cohort]:
        """What the cohort was part of, nearest first."""

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        """Take its two halves for it, half as wide; nothing where it must stay whole."""

    def started(self, cohort: str) -> None:
        """A worker has taken the cohort up."""

    def stopped(self, cohort: str) -> None:
        """The cohort has lost its worker; it, or what it was halved into, will be given again."""

    def reported(self, cohort: str, report: Mapping[str, Any]) -> None:
        """A `trainables.contract.Report`, as a dict."""

    def told(self, cohort: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Record]) -> None:
        """The rows and the history of a cohort that has ended are in the store."""


class CohortQueue:
    """A feed of cohorts that are all known before."""

    def __init__(
        self,
        whole: Sequence[Cohort],
        statuses: Mapping[str, str] | None = None,
        before: Mapping[str, Sequence[Cohort]] | None = None,
        record: Callable[[str], None] = lambda cohort: None,
    ) -> None:
        """`statuses`: of the trials that have a row; `before`: of cohorts that are parts (`cohorts.lineage`); `record`
        is told of every cohort that is halved."""
        self._before = dict(before or {})
        self._whole = {cohort.id: cohort for cohort in whole}
        self._statuses, self._record = dict(statuses or {}), record
        left = remaining(whole, self._statuses)
        self.cohorts = {cohort.id: cohort for cohort in left}
        self._left = list(reversed(left))

    @property
    def ended(self) -> bool:
        return not self._left

    def next(self) -> Cohort | None:
        return self._left.pop() if self._left else None

    def options(self, cohort: str) -> Mapping[str, Any]:
        return {}

    def before(self, cohort: str) -> Sequence[Cohort]:
        return self._before.get(cohort, ())

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        """Of the whole cohort, so that it always has the same ones; of these what is left."""
        parts = halves(self._whole[cohort.id])
        self._record(cohort.id)
        self._before |= dict.fromkeys((part.id for part in parts), (cohort, *self.before(cohort.id)))
        self._whole |= {part.id: part for part in parts}
        left = remaining(parts, self._statuses)
        self.cohorts |= {part.id: part for part in left}
        return left

    def started(self, cohort: str) -> None:
        pass

    def stopped(self, cohort: str) -> None:
        pass

    def reported(self, cohort: str, report: Mapping[str, Any]) -> None:
        pass

    def told(self, cohort: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Record]) -> None:
        pass
