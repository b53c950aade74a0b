"""The Ray actor that compares the cohorts of all workers at rungs; its clients are in `sweeper.pruning.rung_client`.

A cohort at a rung may wait for one that has no worker, because its node was lost or other cohorts have taken its slot.
The waiting cohort then gives up its own slot; otherwise both would wait for ever.
"""

import asyncio
import contextlib
import itertools
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from sweeper.pruning.halving import Rungs, Values, assign_brackets
from sweeper.pruning.rung_events import (
    CohortAnnounced,
    CohortEnded,
    CohortReported,
    CohortRestored,
    CohortSplit,
    CohortStarted,
    CohortStopped,
    Position,
    RungEvent,
)
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

    The driver's events carry a `turn`: 0, 1, 2, ... They take effect in that order, which Ray alone does not guarantee.
    A worker may ask about a cohort before the driver has announced it; its call then waits for the announcement.
    """

    def __init__(
        self, rules: Mapping[str, Rule], announcement_timeout: float = ANNOUNCEMENT_TIMEOUT, absence: float = ABSENCE
    ) -> None:
        """`rules` maps a study's id to its rule. For the other arguments see `ANNOUNCEMENT_TIMEOUT` and `ABSENCE`."""
        self._rules, self._announcement_timeout, self._absence = rules, announcement_timeout, absence
        self._rungs = {study: Rungs(rule.direction, rule.factor, rule.ladders) for study, rule in rules.items()}
        self._cohorts: dict[str, tuple[str, Position]] = {}
        """Id of an announced cohort -> its study and position."""
        self._with_worker: set[tuple[str, Position]] = set()
        """Study and position of each cohort that a worker trains."""
        self._waiting: list[tuple[str, Position]] = []
        """Study and position of each call that waits for a verdict."""
        self._leaving: set[tuple[str, Position]] = set()
        """Cohorts that have been told to give up their slots, until their workers have stopped."""
        self._left_at = -math.inf
        """When the last of them was told, in seconds of the event loop's clock."""
        self._turn = 0
        """The turn of the driver's event that is to take effect next."""
        self._changed = asyncio.Condition()

    async def apply(self, turn: int, event: RungEvent) -> None:
        """Apply an event of the driver, the one with this `turn`, once those before it have been applied."""
        async with self._in(turn):
            self._apply(event)

    def _apply(self, event: RungEvent) -> None:
        match event:
            case CohortAnnounced(study, position, cohort, numbers):
                self._rungs[study].announce(position, self._rules[study].brackets(numbers))
                self._cohorts[cohort] = study, position
            case CohortRestored(study, position, numbers, reached):
                self._rungs[study].restore(position, self._rules[study].brackets(numbers), reached)
            case CohortStarted(cohort):
                self._with_worker.add(self._cohorts[cohort])
            case CohortStopped(cohort):
                self._with_worker.discard(self._cohorts[cohort])
                self._leaving.discard(self._cohorts[cohort])
            case CohortReported(cohort, epoch, values):
                study, position = self._cohorts[cohort]
                if epoch in self._rules[study].epochs:
                    self._rungs[study].post(position, epoch, values)
            case CohortSplit(cohort, parts):
                study, position = self._cohorts[cohort]
                positions = self._rungs[study].split(position, *parts.values()) if len(parts) > 1 else (position,)
                self._cohorts |= {part: (study, of_part) for part, of_part in zip(parts, positions, strict=True)}
            case CohortEnded(cohort):
                study, position = self._cohorts[cohort]
                self._rungs[study].end(position)

    async def rule(self, cohort: str) -> Rule:
        """Return the rule of the cohort's study."""
        async with self._changed:
            study, _ = await self._announced(cohort)
            return self._rules[study]

    async def judge(self, cohort: str, epoch: int, values: Values) -> dict[int, str] | None:
        """Return the members to prune at an epoch: index -> reason.

        Waits for the cohorts at lower positions. Returns None if one of them has no worker and this cohort must give up
        its slot.
        """
        async with self._changed:
            study, position = await self._announced(cohort)
            rungs = self._rungs[study]
            rungs.post(position, epoch, values)
            self._changed.notify_all()
            if not await self._wait_until_ready(study, position, epoch):
                return None
            verdict = rungs.verdict(position, epoch)
            self._changed.notify_all()  # no cohort waits for one without members
            return verdict

    async def _wait_until_ready(self, study: str, position: Position, epoch: int) -> bool:
        """Wait until the verdict is ready and return True, or False if this cohort must give up its slot.

        It must once a cohort that it waits for has had no worker for `absence` seconds, and no other cohort was told to
        leave for as long. Only the waiting cohort of the highest position leaves. All calls of its processes return
        False.
        """
        rungs, now, absent_since = self._rungs[study], asyncio.get_running_loop().time, math.inf
        self._waiting.append((study, position))
        try:
            while (study, position) not in self._leaving:
                if rungs.ready(position, epoch):
                    return True
                absent = any((study, lower) not in self._with_worker for lower in rungs.awaited(position, epoch))
                absent_since = min(absent_since, now()) if absent else math.inf
                seconds_left = max(absent_since, self._left_at) + self._absence - now()
                if seconds_left <= 0 and (study, position) == self._highest():
                    self._leaving.add((study, position))
                    self._left_at = now()
                    self._changed.notify_all()
                    break
                with contextlib.suppress(TimeoutError):
                    timeout = None if math.isinf(seconds_left) else max(seconds_left, self._absence / 10)
                    async with asyncio.timeout(timeout):
                        await self._changed.wait()
            return False
        finally:
            self._waiting.remove((study, position))

    def _highest(self) -> tuple[str, Position] | None:
        """Return the study and position of the waiting cohort with a worker that has the highest position.

        Calls of dead workers still wait; their cohorts have no worker.
        """
        return max(
            self._with_worker.intersection(self._waiting),
            key=lambda study_and_position: study_and_position[::-1],
            default=None,
        )

    async def _announced(self, cohort: str) -> tuple[str, Position]:
        """Return the cohort's study and position, once the driver has announced it.

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
        """Context of the driver's event number `turn`. Waits for all events before it; the next may follow even if it
        raises."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._turn == turn)
            try:
                yield
            finally:
                self._turn += 1
                self._changed.notify_all()
