"""The Ray actor that compares the cohorts of all workers at rungs; its clients are in `sweeper.pruning.rung_client`.

A cohort at a rung may wait for one that has no worker, because its node was lost or other cohorts have taken its slot.
The waiting cohort then gives up its own slot; otherwise both would wait for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from sweeper.pruning.halving import Rungs, Values, assign_brackets
from sweeper.spec.metric import Direction

ANNOUNCEMENT_TIMEOUT = 60.0
"""Seconds for which a call about an unknown cohort waits until the driver announces the cohort."""
ABSENCE = 30.0
"""Seconds for which a cohort waits for one that has no worker, before it gives up its own slot."""


@dataclass(frozen=True)
class Rule:
    """How one study prunes."""

    metric: str
    """Name of the metric by which members are compared."""
    direction: Direction
    factor: int
    """At each rung the best `1 / factor` of a bracket's members go on."""
    ladders: tuple[tuple[int, ...], ...]
    """Epochs of the rungs of each bracket."""

    @property
    def epochs(self) -> frozenset[int]:
        """Epochs that are a rung of any bracket."""
        return frozenset(itertools.chain(*self.ladders))

    def brackets(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return the bracket of each trial, from its number in the study."""
        return assign_brackets(numbers, len(self.ladders), self.factor, len(self.ladders[0]))


class RungServer:
    """The rungs of all studies, as the class of a Ray actor.

    The driver's calls carry a `turn`: 0, 1, 2, ... They take effect in that order, which Ray alone does not guarantee.
    A worker may ask about a cohort before the driver has announced it; its call then waits for the announcement.
    """

    def __init__(
        self, rules: Mapping[str, Rule], announcement_timeout: float = ANNOUNCEMENT_TIMEOUT, absence: float = ABSENCE
    ) -> None:
        """`rules` maps a study's id to its rule. For the other arguments see `ANNOUNCEMENT_TIMEOUT` and `ABSENCE`."""
        self._rules, self._announcement_timeout, self._absence = rules, announcement_timeout, absence
        self._rungs = {study: Rungs(rule.direction, rule.factor, rule.ladders) for study, rule in rules.items()}
        self._cohorts: dict[str, tuple[str, int]] = {}
        """Id of an announced cohort -> its study and place."""
        self._with_worker: set[tuple[str, int]] = set()
        """Study and place of each cohort that a worker trains."""
        self._waiting: list[tuple[str, int]] = []
        """Study and place of each call that waits for a verdict."""
        self._leaving: set[tuple[str, int]] = set()
        """Cohorts that have been told to give up their slots, until their workers have stopped."""
        self._left_at = -math.inf
        """When the last of them was told, in seconds of the event loop's clock."""
        self._turn = 0
        """The driver's call that is to take effect next."""
        self._changed = asyncio.Condition()

    async def expect(self, turn: int, study: str, place: int, cohort: str, brackets: Sequence[int]) -> None:
        """Announce a cohort before it starts."""
        async with self._in(turn):
            self._rungs[study].expect(place, brackets)
            self._cohorts[cohort] = study, place

    async def seed(
        self, turn: int, study: str, place: int, brackets: Sequence[int], history: Mapping[int, Values]
    ) -> None:
        """Add a cohort that ended in an earlier run; see `Rungs.seed`."""
        async with self._in(turn):
            self._rungs[study].seed(place, brackets, history)

    async def started(self, turn: int, cohort: str) -> None:
        """Record that a worker has started the cohort."""
        async with self._in(turn):
            self._with_worker.add(self._cohorts[cohort])

    async def stopped(self, turn: int, cohort: str) -> None:
        """Record that the cohort has lost its worker."""
        async with self._in(turn):
            self._with_worker.discard(self._cohorts[cohort])
            self._leaving.discard(self._cohorts[cohort])

    async def post(self, turn: int, cohort: str, epoch: int, values: Values) -> None:
        """Record a cohort's values of an epoch, from its report. Changes nothing after a `judge` of the epoch."""
        async with self._in(turn):
            study, place = self._cohorts[cohort]
            self._rungs[study].post(place, epoch, values)

    async def end(self, turn: int, cohort: str) -> None:
        """Record that a cohort finished or failed for good."""
        async with self._in(turn):
            study, place = self._cohorts[cohort]
            self._rungs[study].end(place)

    async def split(self, turn: int, cohort: str, parts: Sequence[str], second: int, count: int) -> None:
        """Split a cohort into two with the ids `parts`; see `Rungs.split` for `second` and `count`."""
        async with self._in(turn):
            study, place = self._cohorts[cohort]
            self._rungs[study].split(place, second, count)
            self._cohorts |= dict(zip(parts, [(study, place), (study, second)], strict=True))

    async def rule(self, cohort: str) -> Rule:
        """Return the rule of the cohort's study."""
        async with self._changed:
            study, _ = await self._announced(cohort)
            return self._rules[study]

    async def judge(self, cohort: str, epoch: int, values: Values) -> dict[int, str] | None:
        """Return the members to prune at an epoch: index -> reason.

        Waits for the cohorts at lower places. Returns None if one of them has no worker and this cohort must give up
        its slot.
        """
        async with self._changed:
            study, place = await self._announced(cohort)
            rungs = self._rungs[study]
            rungs.post(place, epoch, values)
            self._changed.notify_all()
            if not await self._wait_until_ready(study, place, epoch):
                return None
            verdict = rungs.verdict(place, epoch)
            self._changed.notify_all()  # no cohort waits for one without members
            return verdict

    async def _wait_until_ready(self, study: str, place: int, epoch: int) -> bool:
        """Wait until the verdict is ready and return True, or False if this cohort must give up its slot.

        It must once a cohort that it waits for has had no worker for `absence` seconds, and no other cohort was told to
        leave for as long. Only the waiting cohort of the highest place leaves. All calls of its processes return False.
        """
        rungs, now, absent_since = self._rungs[study], asyncio.get_running_loop().time, math.inf
        self._waiting.append((study, place))
        try:
            while (study, place) not in self._leaving:
                if rungs.ready(place, epoch):
                    return True
                absent = any((study, lower) not in self._with_worker for lower in rungs.awaited(place, epoch))
                absent_since = min(absent_since, now()) if absent else math.inf
                seconds_left = max(absent_since, self._left_at) + self._absence - now()
                if seconds_left <= 0 and (study, place) == self._highest():
                    self._leaving.add((study, place))
                    self._left_at = now()
                    self._changed.notify_all()
                    break
                with contextlib.suppress(TimeoutError):
                    timeout = None if math.isinf(seconds_left) else max(seconds_left, self._absence / 10)
                    async with asyncio.timeout(timeout):
                        await self._changed.wait()
            return False
        finally:
            self._waiting.remove((study, place))

    def _highest(self) -> tuple[str, int] | None:
        """Return the study and place of the waiting cohort with the highest place, among those that have a worker.

        Calls of dead workers still wait; their cohorts have no worker.
        """
        return max(
            self._with_worker.intersection(self._waiting),
            key=lambda study_and_place: study_and_place[::-1],
            default=None,
        )

    async def _announced(self, cohort: str) -> tuple[str, int]:
        """Return the cohort's study and place, once the driver has announced it.

        Raises LookupError if it does not within `announcement_timeout` seconds.
        """
        try:
            async with asyncio.timeout(self._announcement_timeout):
                await self._changed.wait_for(lambda: cohort in self._cohorts)
        except TimeoutError:
            known = ", ".join(self._cohorts) or "none"
            raise LookupError(f"no cohort '{cohort}' is expected at any rung; there are: {known}") from None
        return self._cohorts[cohort]

    @contextlib.asynccontextmanager
    async def _in(self, turn: int) -> AsyncIterator[None]:
        """Context of the driver's call number `turn`. Waits for all calls before it; the next may follow even if it
        raises."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._turn == turn)
            try:
                yield
            finally:
                self._turn += 1
                self._changed.notify_all()
