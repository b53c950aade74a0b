"""`--hours` and `--cost`: what a run may take. It starts no cohort that cannot end in time, and stops before the end.

How long a cohort takes is known from cohorts of its kind that have ended in this run, else from the measurements by
which the grid was packed, in proportion to what those took that have ended, else from cohorts of its method. One of
which nothing is known is started. So is one that has a checkpoint of an earlier run, because nobody knows how much of
it is left. What trains at the limit is cut off as at Ctrl-C, and the next run goes on from its checkpoint.

A cost is a time: that at which the nodes in use, at their price per hour, have cost it since the first cohort began.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sweeper.planning.cohorts import Cohort, Trial
from sweeper.record.listener import CohortListener, Row

if TYPE_CHECKING:
    from trainables.reports import Heartbeat
    from trainables.worker.messages import Failure

HOUR = 3600.0
"""Seconds per hour."""
STOP_SECONDS, STOP_SHARE = 30.0, 0.1
"""Time before the limit at which cohorts are cut off, so that the rest of the run ends before it: so many seconds, but
at most this share of the limit."""
Expected = Callable[[Cohort], float | None]
"""Returns the seconds that a cohort takes by measurement; None if it was not measured."""


class BudgetSpent(Exception):
    """The run has reached a limit, or nothing that is left can end before it. The message says which limit."""


@dataclass(frozen=True)
class _Work:
    """Cohorts that have ended in this run."""

    seconds: float = 0.0
    members: float = 0.0
    """Trials that they trained; of a cohort that was continued, the share that this run has trained."""
    epochs: float = 0.0
    """Epochs of all these trials."""

    def plus(self, other: _Work) -> _Work:
        return _Work(self.seconds + other.seconds, self.members + other.members, self.epochs + other.epochs)


class Budget(CohortListener):
    """What is left of a run's time and cost, and whether cohorts end within it."""

    def __init__(
        self, hours: float | None = None, cost: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """The time runs from now on. None is no limit."""
        self._hours, self._cost, self._clock = hours, cost, clock
        self._began = clock()
        self._price = self._spent = 0.0
        self._priced_at = self._began
        self._shape: Callable[[Trial], Hashable] = lambda trial: None
        self._expected: Expected = lambda cohort: None
        self._started: dict[str, float] = {}
        """Running cohort -> when it started."""
        self._begun: dict[str, float] = {}
        """Running cohort -> the share of its training that was done when it started."""
        self._ended: dict[Hashable, _Work] = {}
        """Shape of the trials of cohorts, and their method -> those that have ended."""
        self._measured = _Work()
        """Those that have ended and were measured: `members` are the seconds that were expected."""

    @property
    def limited(self) -> bool:
        return self._hours is not None or self._cost is not None

    def begin(self, shape: Callable[[Trial], Hashable], expected: Expected, price: float | None) -> None:
        """Take what is known of the cohorts that follow: the `shape` of trials that take equally long, what is expected
        by measurement, and the `price` of the nodes on which they run, per hour."""
        now = self._clock()
        self._spent += self._price * (now - self._priced_at) / HOUR
        self._shape, self._expected, self._price, self._priced_at = shape, expected, price or 0.0, now

    def check(self) -> None:
        """Raise BudgetSpent if the time has come to stop."""
        if self._seconds_left <= 0:
            raise BudgetSpent(self.name)

    def longest_wait(self, seconds: float) -> float:
        """Return for how long the end of the run may wait for something: for so many seconds, but for at most half of
        those that are left until a limit, because what follows needs some, too."""
        return max(0.0, min(seconds, min(self._ends) / 2))

    def fits(self, cohort: Cohort) -> bool:
        """Whether a cohort that would start now ends in time, as far as that is known."""
        seconds = self.seconds_of(cohort) if self.limited else None
        return seconds is None or seconds <= self._seconds_left

    def seconds_of(self, cohort: Cohort) -> float | None:
        """Return how long a cohort takes; None if nothing is known that tells it."""
        members = len(cohort.trials)
        if (alike := self._ended.get(self._shape(cohort.trials[0]))) and alike.members:
            return alike.seconds / alike.members * members
        if expected := self._expected(cohort):
            return expected * (self._measured.seconds / self._measured.members if self._measured.members else 1.0)
        of_method = self._ended.get(_method(cohort))
        return of_method.seconds / of_method.epochs * _epochs(cohort) if of_method and of_method.epochs else None

    @property
    def name(self) -> str:
        """The limit that is reached first, as it was given: `--hours 2`."""
        by_hours, by_cost = self._ends
        return f"--hours {self._hours:g}" if by_hours <= by_cost else f"--cost {self._cost:g}"

    @property
    def _ends(self) -> tuple[float, float]:
        """Seconds from now until the hours and the cost are reached."""
        now = self._clock()
        by_hours = math.inf if self._hours is None else self._began + self._hours * HOUR - now
        if self._cost is None or not self._price:
            return by_hours, math.inf
        spent = self._spent + self._price * (now - self._priced_at) / HOUR
        return by_hours, (self._cost - spent) / self._price * HOUR

    @property
    def _seconds_left(self) -> float:
        """Seconds in which cohorts may train."""
        whole = [self._hours * HOUR] if self._hours is not None else []
        whole += [self._cost / self._price * HOUR] if self._cost is not None and self._price else []
        return min(self._ends) - min(STOP_SECONDS, STOP_SHARE * min(whole, default=0.0))

    def started(self, cohort: Cohort) -> None:
        self._started[cohort.id], self._begun[cohort.id] = self._clock(), 0.0

    def advanced(self, cohort: Cohort, heartbeat: Heartbeat) -> None:
        if heartbeat.epochs:
            self._begun[cohort.id] = heartbeat.begun / heartbeat.epochs

    def waits(self, cohort: Cohort) -> None:
        self._started.pop(cohort.id, None)

    def interrupted(self, cohort: Cohort, failure: Failure) -> None:
        self._started.pop(cohort.id, None)

    def split(self, cohort: Cohort, parts: Sequence[Cohort], failure: Failure) -> None:
        self._started.pop(cohort.id, None)

    def failed(self, cohort: Cohort, failure: Failure) -> None:
        self._started.pop(cohort.id, None)

    def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        """Learn from a cohort that has ended. One that ended early, by pruning or divergence, counts as it is."""
        started = self._started.pop(cohort.id, None)
        share = 1.0 - self._begun.pop(cohort.id, 0.0)
        if started is None or share <= 0 or not self.limited:
            return
        seconds = self._clock() - started
        work = _Work(seconds, share * len(cohort.trials), share * _epochs(cohort))
        for key in (self._shape(cohort.trials[0]), _method(cohort)):
            self._ended[key] = self._ended.get(key, _Work()).plus(work)
        if expected := self._expected(cohort):
            self._measured = self._measured.plus(replace(work, members=share * expected))


def _method(cohort: Cohort) -> Hashable:
    return str(cohort.trials[0].config["method"])


def _epochs(cohort: Cohort) -> float:
    """Epochs of all trials of a cohort; those of a method without epochs count as one."""
    epochs = [trial.config.get("epochs") for trial in cohort.trials]
    return sum(count if isinstance(count, int) and count > 0 else 1 for count in epochs)
