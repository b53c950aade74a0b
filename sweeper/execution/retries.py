"""What becomes of a cohort that failed: it is given again, given as its halves, or given up.

A process that is lost with its machine is no fault of the cohort's, and memory that does not suffice never will. After
anything else a cohort is tried again, and what fails then too is halved until what is to blame stands alone, so that it
takes no other trial with it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from sweeper.plan.cohort_source import CohortSource
from sweeper.plan.cohorts import Cohort

Cause = Literal["error", "machine", "hung", "memory"]
"""Why a cohort did not end: it raised or its process died, it lost its machine, it did not go on, or it did not fit."""
LOSSES = 50
"""How often a cohort may lose its machine in a row without getting further."""


@dataclass(frozen=True)
class Attempt:
    """A cohort to train now."""

    cohort: Cohort
    before: tuple[Cohort, ...] = ()
    """What it was part of, or itself when it was stacked wider, nearest first: their checkpoints serve, too."""
    order: tuple[int, ...] = ()
    """Which was given first, halves in the place of their whole."""


@dataclass(frozen=True)
class RetryDecision:
    """What becomes of a cohort that did not end."""

    kind: Literal["again", "smaller", "failed"]
    parts: tuple[Cohort, ...] = ()
    """What takes its place, if it is made smaller: its halves, or itself in narrower stacks."""


class RetryQueue:
    """Cohorts of a feed, each until it has ended or failed for good."""

    def __init__(self, feed: CohortSource, retries: int) -> None:
        """`retries`: how often in a row a cohort, or a single trial of one, may fail without getting further."""
        self._feed, self._retries = feed, retries
        self._again: list[Attempt] = []
        self._given = itertools.count()
        self._running: dict[str, Attempt] = {}
        self._failures, self._losses = Counter[str](), Counter[str]()
        self._reached: dict[str, int] = {}
        self._parts: set[str] = set()

    @property
    def ended(self) -> bool:
        """No cohort will follow."""
        return self._feed.ended and not self._again and not self._running

    def next(self) -> Attempt | None:
        """What to train next; None where there is nothing at the moment. What was begun goes on before anything else
        begins, in its order: a cohort may wait for those before it."""
        given = self._again.pop(0) if self._again else None
        if given is None and (cohort := self._feed.next()):
            given = Attempt(cohort, tuple(self._feed.before(cohort.id)), (next(self._given),))
        if given:
            self._running[given.cohort.id] = given
        return given

    def options(self, cohort: str) -> Mapping[str, Any]:
        """As the feed's."""
        return self._feed.options(cohort)

    def reported(self, cohort: str, epoch: int, done: bool) -> None:
        """The cohort has got to this epoch."""
        if epoch > self._reached.get(cohort, -1):
            self._reached[cohort] = epoch
            del self._failures[cohort], self._losses[cohort]
        if done:
            self._forget(cohort)

    def runs(self, cohort: str) -> bool:
        """Whether it was given and has not ended."""
        return cohort in self._running

    def lost(self, cohort: str, cause: Cause) -> RetryDecision:
        """The worker of a cohort that runs failed or was lost."""
        given = self._running.pop(cohort)
        if cause == "machine" and self._excused(cohort):
            self._put_back(given)
            return RetryDecision("again")
        self._failures[cohort] += 1
        hopeless = cause in ("hung", "memory")
        several = len(given.cohort.trials) > 1
        retries = 0 if several and (hopeless or cohort in self._parts) else self._retries
        if self._failures[cohort] <= (min(1, retries) if hopeless else retries):
            self._put_back(given)
            return RetryDecision("again")
        smaller = self._smaller(given, cause == "memory")
        self._forget(cohort)
        self._put_back(*smaller)
        if not smaller:
            return RetryDecision("failed")
        return RetryDecision("smaller", tuple(part.cohort for part in smaller))

    def _excused(self, cohort: str) -> bool:
        """Whether a lost machine is no fault of the cohort's."""
        self._losses[cohort] += 1
        return self._losses[cohort] <= LOSSES

    def _smaller(self, given: Attempt, narrower: bool) -> list[Attempt]:
        """Its halves; of what must stay whole, itself in narrower stacks if that is of use; else nothing."""
        halves = self._feed.halve(given.cohort) if len(given.cohort.trials) > 1 else ()
        self._parts |= {half.id for half in halves}
        if not halves and narrower and given.cohort.width > 1:
            narrow = replace(given.cohort, width=(given.cohort.width + 1) // 2)
            return [Attempt(narrow, (given.cohort, *given.before), given.order)]
        return [
            Attempt(half, tuple(self._feed.before(half.id)), (*given.order, place)) for place, half in enumerate(halves)
        ]

    def _put_back(self, *given: Attempt) -> None:
        self._again = sorted([*self._again, *given], key=lambda one: one.order)

    def _forget(self, cohort: str) -> None:
        self._running.pop(cohort, None)
        for known in (self._failures, self._losses, self._reached):
            known.pop(cohort, None)
        self._parts.discard(cohort)
