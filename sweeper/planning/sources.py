"""Sources of the cohorts to train, which give one at a time; and the queue of a grid, which drivers may share."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeper.planning.cohorts import Cohort, halves, remaining

if TYPE_CHECKING:
    from sweeper.storage.lease import Driver, Lease
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


RecordHalved = Callable[[str], None]
"""Takes the id of a cohort that was halved."""


class CohortSource:
    """Gives cohorts to train and receives their progress; a string `cohort` is the id of one."""

    def __init__(self, record_halved: RecordHalved) -> None:
        """`record_halved` is called with every cohort that is halved."""
        self.cohorts: dict[str, Cohort] = {}
        """Cohorts by id; all that were given so far are among them."""
        self._whole: dict[str, Cohort] = {}
        """Cohorts by id, including the trials that had a result before."""
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

    def reported(self, cohort: str, message: CohortReport) -> None:
        """Take a report of the cohort."""

    def waits(self, cohort: str) -> bool:
        """Return whether a cohort that has ended at a rung waits for others there."""
        return False

    def last_report(self, cohort: str) -> CohortReport | None:
        """Return the last report of a cohort that has ended at a rung, if all of its members are pruned there."""
        return None

    def completed(self, cohort: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Record]) -> None:
        """Take the rows and the history of a cohort that has ended; they are in the store already."""

    def trained_elsewhere(self) -> TrainedElsewhere | None:
        """Return which trials another driver has trained since the last call; None if there are none."""
        return None

    def _replace_by_halves(self, cohort: Cohort, statuses: Mapping[str, str]) -> list[Cohort]:
        """Return what remains of the halves of the whole cohort, which are the same in every run."""
        parts = halves(self._whole[cohort.id])
        self._record_halved(cohort.id)
        self._whole |= {part.id: part for part in parts}
        left = remaining(parts, statuses)
        self.cohorts |= {part.id: part for part in left}
        return left


POLL_SECONDS = 2.0
"""Seconds between two reads of the others' claims while nothing else is left."""
SOON = 1.0
"""Seconds within which another claim makes the next ones twice as large."""
MOST_CLAIMED = 64
"""Most cohorts that are claimed at once, so that the claims of short cohorts take no time."""


@dataclass(frozen=True)
class Sharing:
    """How the drivers of a sweep share its trials."""

    lease: Lease
    """This driver's."""
    read_statuses: Callable[[], Mapping[str, str]]
    """Returns trial_id -> status of every trial that has a row."""
    say: Callable[[str], None] = lambda line: None
    """Called with a line when all that is left is claimed by other drivers."""
    clock: Callable[[], float] = time.monotonic


class CohortQueue(CohortSource):
    """A source of cohorts that are all known from the start.

    If it is shared, it claims cohorts before it gives them, leaves out trials that other drivers have trained, and
    waits for those that they train, which it takes over if such a driver dies. The driver that began first takes
    cohorts from the front, and the others from the back.
    """

    def __init__(
        self,
        whole: Sequence[Cohort],
        statuses: Mapping[str, str] | None = None,
        record_halved: RecordHalved = lambda cohort: None,
        sharing: Sharing | None = None,
    ) -> None:
        """Queue what remains of the `whole` cohorts. `statuses` is by trial id."""
        super().__init__(record_halved)
        self._whole |= {cohort.id: cohort for cohort in whole}
        self._statuses = statuses or {}
        self._left = {cohort.id: cohort for cohort in remaining(whole, self._statuses)}
        """Cohorts to claim, by id."""
        self.cohorts |= self._left
        self._sharing = sharing
        self._claimed: list[Cohort] = []
        """Cohorts to give."""
        self._most, self._claimed_at, self._poll_at = 1, -math.inf, -math.inf
        self._read: Hashable = None
        """The version of the leases before the rows were read last."""
        self._elsewhere = TrainedElsewhere({}, 0)
        self._waits = False
        """Whether the wait for other drivers was announced."""

    @property
    def exhausted(self) -> bool:
        return not self._left and not self._claimed

    def next(self) -> Cohort | None:
        if not self._claimed and self._left:
            self._claimed = self._claim(self._sharing) if self._sharing else [self._left.pop(next(iter(self._left)))]
        return self._claimed.pop(0) if self._claimed else None

    def halve(self, cohort: Cohort) -> Sequence[Cohort]:
        return self._replace_by_halves(cohort, self._statuses)

    def completed(self, cohort: str, rows: Sequence[Mapping[str, Any]], history: Sequence[Record]) -> None:
        if self._sharing:
            self._sharing.lease.release([str(row["trial_id"]) for row in rows])

    def trained_elsewhere(self) -> TrainedElsewhere | None:
        news, self._elsewhere = self._elsewhere, TrainedElsewhere({}, 0)
        return news if news.statuses else None

    def _claim(self, sharing: Sharing) -> list[Cohort]:
        """Claim cohorts that no other driver has claimed, and return them. Empty if there are none, or if another
        driver has claimed one of them at the same moment: then nobody tries again for `POLL_SECONDS`."""
        lease, now = sharing.lease, sharing.clock()
        if now < self._poll_at:
            return []
        others = lease.living()
        self._leave_out_trained(sharing)
        self._most = min(MOST_CLAIMED, 2 * self._most) if now - self._claimed_at < SOON else 1
        chosen = self._free(others, backwards=not lease.is_first)
        names = {trial.id for cohort in chosen for trial in cohort.trials}
        if not chosen or not lease.claim(names):
            self._poll_at = now + POLL_SECONDS
            self._say_waiting(sharing, [] if chosen else others)
            return []
        self._leave_out_trained(sharing)  # by a driver that ended between the read and the claim
        claimed = [self._left.pop(cohort.id) for cohort in chosen if cohort.id in self._left]
        lease.release(names - {trial.id for cohort in claimed for trial in cohort.trials})
        self._claimed_at, self._waits = now, False
        return claimed

    def _free(self, others: Sequence[Driver], backwards: bool) -> list[Cohort]:
        """Return the next cohorts without trials that other drivers have claimed, as many as are claimed at once."""
        taken = {name for driver in others for name in driver.lease.claims}
        left = reversed(self._left.values()) if backwards else self._left.values()
        free = (cohort for cohort in left if taken.isdisjoint(trial.id for trial in cohort.trials))
        return list(itertools.islice(free, self._most))

    def _leave_out_trained(self, sharing: Sharing) -> None:
        """If other drivers may have written rows, read which trials have one now, and leave them out."""
        version = sharing.lease.version
        if version == self._read:
            return
        waiting = {trial.id for cohort in self._left.values() for trial in cohort.trials}
        new = {
            trial: status
            for trial, status in sharing.read_statuses().items()
            if trial in waiting and (status != "failed" or self._statuses.get(trial) != "failed")
        }
        self._read = version
        if not new:
            return
        self._statuses = {**self._statuses, **new}
        # Trials that have just failed elsewhere are not tried again here.
        left = remaining([*self._left.values()], dict.fromkeys(new, "finished"))
        cohorts = self._elsewhere.cohorts + len(self._left) - len(left)
        self._left = {cohort.id: cohort for cohort in left}
        self.cohorts |= self._left
        self._elsewhere = TrainedElsewhere({**self._elsewhere.statuses, **new}, cohorts)

    def _say_waiting(self, sharing: Sharing, others: Sequence[Driver]) -> None:
        count = sum(len(cohort.trials) for cohort in self._left.values())
        if others and count and not self._waits:
            self._waits = True
            sharing.say(f"waiting for {count} trials of another driver: {'; '.join(map(str, others))}")
