"""Assigns a slot to each cohort, on devices of one kind or several."""

from sweeper.execution.retries import Attempt, RetryQueue
from sweeper.packing.placement import SlotResources, Slots

MOST_WAITING = 64
"""Most cohorts that wait for a slot of a kind that they fit while others go ahead."""


class SlotAssigner:
    """Assigns each cohort to train a slot on a kind of device that it fits."""

    def __init__(self, attempts: RetryQueue, slots: Slots) -> None:
        self._attempts, self._slots = attempts, slots
        self._taken: dict[str, int] = {}
        """Id of a cohort -> index of the kind of device on which it has a slot."""
        self._waiting: list[Attempt] = []
        """Attempts that fit no free slot yet."""

    def next(self) -> tuple[Attempt, SlotResources] | None:
        """Return the next attempt, and the slot that its cohort has until `release`; None if there is none now.

        With several kinds of devices, a cohort that fits some of them waits for a free slot there, and later cohorts go
        ahead. If nodes may come it does not wait, and gets a slot on the least busy kind that it fits.
        """
        for attempt in [*self._waiting, None]:
            if attempt is None:
                attempt = self._attempts.next() if len(self._waiting) < MOST_WAITING else None
                if attempt is None:
                    return None
                self._waiting.append(attempt)
            kind = self._kind_for(attempt)
            if kind is not None:
                self._waiting.remove(attempt)
                self._taken[attempt.cohort.id] = kind
                return attempt, self._slots.by_kind[kind]
        return None

    def release(self, cohort: str) -> None:
        """Free the slot of a cohort, named by its id."""
        self._taken.pop(cohort, None)

    def _kind_for(self, attempt: Attempt) -> int | None:
        """Return the index of the least busy kind of device that the cohort fits; None if it has to wait."""
        kinds = self._slots.by_kind
        if len(kinds) == 1:
            return 0
        taken = list(self._taken.values())
        busy = {
            kind: taken.count(kind) / max(1, kinds[kind].count)
            for kind in self._slots.fitting_kinds.get(attempt.cohort.trials[0].id, range(len(kinds)))
        }
        kind = min(busy, key=lambda index: busy[index])
        return kind if busy[kind] < 1 or not self._slots.local else None
