"""Which slot each cohort gets, where slots are on devices of several kinds."""

from __future__ import annotations

from sweeper.execution.retries import Attempt, RetryQueue
from sweeper.packing.slots import SlotResources, Slots

MOST_WAITING = 64
"""Cohorts that wait for their kind while others go ahead, at the most."""


class SlotAssigner:
    """Gives each cohort that is to be trained a share, of a kind that has one free if it can be."""

    def __init__(self, attempts: RetryQueue, slots: Slots) -> None:
        self._attempts, self._slots = attempts, slots
        self._taken: dict[str, int] = {}
        self._waiting: list[Attempt] = []

    @property
    def ended(self) -> bool:
        """No cohort will follow."""
        return self._attempts.ended

    def next(self, holder: str) -> tuple[Attempt, SlotResources] | None:
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

    def _kind_for(self, given: Attempt) -> int | None:
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
