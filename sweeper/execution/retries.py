"""Decides what becomes of a cohort that failed: it is tried again, split into halves, or given up.

- A cohort that waits for others at a rung has saved and ended. It goes on once these are there.
- A process that is lost with its machine, or whose GPU is unusable, is not the cohort's fault: the cohort is tried
  again, up to `LOSSES` times.
- A cohort that hangs or does not fit into memory is split at once; a single trial is tried once more. A cohort that
  must stay whole and does not fit is tried with stacks of half the width.
- After any other error a cohort is tried again up to `retries` times, then split. Halves of several trials are split at
  their first failure, until the trial that causes it is alone and takes no other trial with it. Halves, and narrower
  stacks, begin anew.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from sweeper.planning.cohorts import Cohort
from sweeper.planning.sources import CohortSource
from trainables.worker.messages import Cause, CohortReport

LOSSES = 50
"""Times that a cohort may lose its machine in a row without reaching a further epoch."""


@dataclass(frozen=True)
class Attempt:
    """A cohort to train now."""

    cohort: Cohort
    order: int = 0
    """Place of its cohort among those of the source. The parts of a cohort have the place of their whole."""


@dataclass(frozen=True)
class RetryDecision:
    """What becomes of a cohort that did not end."""

    kind: Literal["again", "smaller", "failed"]
    parts: tuple[Cohort, ...] = ()
    """For `smaller`, what replaces the cohort: its halves, or the same trials in narrower stacks."""


class RetryQueue:
    """Gives the cohorts of a source, each until it has ended or failed for good.

    Methods that take a string `cohort` take the id of a cohort.
    """

    def __init__(self, source: CohortSource, retries: int) -> None:
        """`retries` is how often in a row a cohort is tried again after an error without reaching a further epoch."""
        self._source, self._retries = source, retries
        self._left: list[Attempt] = []
        """Attempts to give, by their `order`; those of equal order in the sequence in which they came here."""
        self._given = 0
        """Number of the source's cohorts that have come here."""
        self._running: dict[str, Attempt] = {}
        self._waiting: dict[str, Attempt] = {}
        """Attempts that have ended at a rung, by the id of their cohort."""
        self._failures, self._losses = Counter[str](), Counter[str]()
        self._reached: dict[str, int] = {}
        """Last epoch that each running cohort has reported."""
        self._parts: set[str] = set()
        """Ids of the cohorts that are halves of others."""

    @property
    def ended(self) -> bool:
        """True if no cohort will follow."""
        return self._source.exhausted and not self._left and not self._running and not self._waiting

    def next(self) -> Attempt | None:
        """Return the next attempt; None if there is none at the moment.

        Cohorts that are tried again, or go on after a rung, come before later ones, because others may wait for them.
        """
        ready = [cohort for cohort in self._waiting if not self._source.waits(cohort)]
        self._put_back(*map(self._waiting.pop, ready))
        if not self._left and (cohort := self._source.next()):
            self._put_back(Attempt(cohort, self._given))
            self._given += 1
        if not self._left:
            return None
        attempt = self._left.pop(0)
        self._running[attempt.cohort.id] = attempt
        return attempt

    def reported(self, cohort: str, epoch: int, done: bool) -> None:
        """Record that the cohort has reached an epoch, and whether it is `done`."""
        if epoch > self._reached.get(cohort, -1):
            self._reached[cohort] = epoch
            del self._failures[cohort], self._losses[cohort]
        if done:
            self._forget(cohort)

    def runs(self, cohort: str) -> bool:
        """Whether the cohort was given and has neither ended nor failed."""
        return cohort in self._running or cohort in self._waiting

    def wait(self, cohort: str) -> None:
        """Record that a running cohort has saved and ended at a rung. It is given again when it does not wait there any
        more."""
        self._waiting[cohort] = self._running.pop(cohort)

    def last_reports(self) -> Iterator[tuple[str, CohortReport]]:
        """Yield the last report of each waiting cohort whose members are all pruned at its rung."""
        for cohort in list(self._waiting):
            if report := self._source.last_report(cohort):
                yield cohort, report

    def lost(self, cohort: str, cause: Cause) -> RetryDecision:
        """Decide what becomes of a running cohort whose worker failed or was lost."""
        attempt = self._running.pop(cohort)
        if cause in ("machine", "device") and self._excused(cohort):
            self._put_back(attempt)
            return RetryDecision("again")
        self._failures[cohort] += 1
        hopeless = cause in ("hung", "memory")
        several = len(attempt.cohort.trials) > 1
        retries = 0 if several and (hopeless or cohort in self._parts) else self._retries
        if self._failures[cohort] <= (min(1, retries) if hopeless else retries):
            self._put_back(attempt)
            return RetryDecision("again")
        smaller = self._smaller(attempt, cause == "memory")
        self._forget(cohort)
        self._put_back(*smaller)
        if not smaller:
            return RetryDecision("failed")
        return RetryDecision("smaller", tuple(part.cohort for part in smaller))

    def excuse(self, cohort: str) -> None:
        """Give a cohort back the attempt that its last failure has cost, if it has not failed for good."""
        if self._failures[cohort] > 0:
            self._failures[cohort] -= 1

    def _excused(self, cohort: str) -> bool:
        """Count the loss of a machine, and return whether the cohort may be tried again for it."""
        self._losses[cohort] += 1
        return self._losses[cohort] <= LOSSES

    def _smaller(self, attempt: Attempt, narrower: bool) -> list[Attempt]:
        """Return attempts with the cohort's halves.

        If the cohort must stay whole, return it in stacks of half the width if `narrower`, else an empty list.
        """
        halves = self._source.halve(attempt.cohort) if len(attempt.cohort.trials) > 1 else ()
        self._parts |= {half.id for half in halves}
        if not halves and narrower and attempt.cohort.width > 1:
            narrow = replace(attempt.cohort, width=(attempt.cohort.width + 1) // 2)
            return [Attempt(narrow, attempt.order)]
        return [Attempt(half, attempt.order) for half in halves]

    def _put_back(self, *attempts: Attempt) -> None:
        if attempts:
            self._left = sorted([*self._left, *attempts], key=lambda attempt: attempt.order)

    def _forget(self, cohort: str) -> None:
        self._running.pop(cohort, None)
        self._waiting.pop(cohort, None)
        for by_cohort in (self._failures, self._losses, self._reached):
            by_cohort.pop(cohort, None)
        self._parts.discard(cohort)
