"""Where cohorts run: shares of devices, of one kind or of several, and which of them each cohort is given."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from sweeper.errors import ClusterError
from sweeper.execution.retries import Attempts, Given


@dataclass(frozen=True)
class Share:
    """What one process takes of a device of some kind."""

    resources: Mapping[str, float]
    """Of Ray."""
    count: int
    """So many at once on what is there now."""
    memory: int | None = None
    """Bytes that the process may use at the most: its part of the device, or of the machine; None where unknown."""


@dataclass(frozen=True)
class Slots:
    """What a cohort takes of a cluster, and how many run at once on what is there now."""

    shares: tuple[Share, ...]
    """Of each kind of device that is used; of each worker of a cohort."""
    here: bool
    """True where they run on this machine's cores."""
    grows: bool = False
    """True for a cluster elsewhere, to which nodes may come."""
    workers: int = 1
    """Processes that train one cohort together."""
    only: Mapping[str, Collection[int]] = field(default_factory=dict)
    """trial_id -> the places in `shares` of the kinds that have room for its cohort; all where it is not named."""

    @property
    def resources(self) -> dict[str, float]:
        return dict(self.shares[0].resources)

    @property
    def count(self) -> int:
        """Cohorts at once; an autoscaling cluster may grow beyond it."""
        return max(1, sum(share.count for share in self.shares) // self.workers)

    def of(self, workers: int) -> Slots:
        """The same place for cohorts of so many workers each, of several all on one kind of device. ClusterError where
        it has no room for one."""
        if workers > 1 and self.resources.get("GPU", 1.0) < 1:
            raise ClusterError(
                f"each of several workers must have a GPU of its own, but got workers={workers} on shares"
            )
        if workers > self.count and not self.grows:
            raise ClusterError(
                f"workers must not exceed the {self.count} that this machine has GPUs or else cores for, but got "
                f"workers={workers}; choose fewer with --set workers=N, or give a cluster's --address"
            )
        return replace(self, shares=self.shares if workers == 1 else self.shares[:1], workers=workers)


MOST_WAITING = 64
"""Cohorts that wait for their kind while others go ahead, at the most."""


class Seating:
    """Gives each cohort that is to be trained a share, of a kind that has one free if it can be."""

    def __init__(self, attempts: Attempts, slots: Slots) -> None:
        self._attempts, self._slots = attempts, slots
        self._taken: dict[str, int] = {}
        self._waiting: list[Given] = []

    @property
    def ended(self) -> bool:
        """No cohort will follow."""
        return self._attempts.ended

    def next(self, holder: str) -> tuple[Given, Share] | None:
        """A cohort and the share that `holder` has until it has `left`; None where there is nothing at the moment.

        Of several kinds, a cohort waits for one with room for it, unless nodes may come: then the least busy has it.
        """
        for given in [*self._waiting, None]:
            if given is None:
                given = self._attempts.next() if len(self._waiting) < MOST_WAITING else None
                if given is None:
                    return None
                self._waiting.append(given)
            kind = self._kind_for(given)
            if kind is not None:
                self._waiting.remove(given)
                self._taken[holder] = kind
                return given, self._slots.shares[kind]
        return None

    def left(self, holder: str) -> None:
        """The share is free again."""
        self._taken.pop(holder, None)

    def _kind_for(self, given: Given) -> int | None:
        shares = self._slots.shares
        if len(shares) == 1:
            return 0
        taken = list(self._taken.values())
        busy = {
            kind: taken.count(kind) / max(1, shares[kind].count)
            for kind in self._slots.only.get(given.cohort.trials[0].id, range(len(shares)))
        }
        kind = min(busy, key=lambda one: busy[one])
        return kind if busy[kind] < 1 or self._slots.grows else None
