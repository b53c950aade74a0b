"""Where cohorts of several workers meet at rungs: `Rungs`, in an actor of its own, to which
`sweeper.pruning.rung_client` speaks.

A cohort that waits for one that no worker has taken up, because a node was lost or somebody else has its place, gives
its own place up: else both would wait for ever.
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

PATIENCE = 60.0
"""Seconds in which the driver's word of a cohort must have come after the cohort's own."""
ABSENCE = 30.0
"""Seconds for which a cohort waits for one that no worker has."""


@dataclass(frozen=True)
class Rule:
    """How one study prunes."""

    metric: str
    direction: Direction
    factor: int
    ladders: tuple[tuple[int, ...], ...]
    """Of each bracket the epochs of its rungs."""

    @property
    def epochs(self) -> frozenset[int]:
        """Those that are a rung of any bracket."""
        return frozenset(itertools.chain(*self.ladders))

    def brackets(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The bracket of each trial, by its number in the study."""
        return assign_brackets(numbers, len(self.ladders), self.factor, len(self.ladders[0]))


class RungServer:
    """The rungs of all studies, in an actor of its own.

    The driver numbers its calls with turns, and they take effect in that order: Ray promises none. A cohort may ask
    before the driver's word of it is here, and then waits for it.
    """

    def __init__(self, rules: Mapping[str, Rule], patience: float = PATIENCE, absence: float = ABSENCE) -> None:
        """`rules`: by study."""
        self._rules, self._patience, self._absence = rules, patience, absence
        self._rungs = {study: Rungs(rule.direction, rule.factor, rule.ladders) for study, rule in rules.items()}
        self._cohorts: dict[str, tuple[str, int]] = {}
        self._taken: set[tuple[str, int]] = set()
        self._waiting: list[tuple[str, int]] = []
        self._leaving: set[tuple[str, int]] = set()
        self._left_at = -math.inf
        self._turn = 0
        self._changed = asyncio.Condition()

    async def expect(self, turn: int, study: str, place: int, cohort: str, brackets: Sequence[int]) -> None:
        """A cohort is about to start."""
        async with self._in(turn):
            self._rungs[study].expect(place, brackets)
            self._cohorts[cohort] = study, place

    async def seed(
        self, turn: int, study: str, place: int, brackets: Sequence[int], history: Mapping[int, Values]
    ) -> None:
        """Trials that ended in an earlier run."""
        async with self._in(turn):
            self._rungs[study].seed(place, brackets, history)

    async def started(self, turn: int, cohort: str) -> None:
        """A worker has taken the cohort up."""
        async with self._in(turn):
            self._taken.add(self._cohorts[cohort])

    async def stopped(self, turn: int, cohort: str) -> None:
        """The cohort has lost its worker."""
        async with self._in(turn):
            self._taken.discard(self._cohorts[cohort])
            self._leaving.discard(self._cohorts[cohort])

    async def post(self, turn: int, cohort: str, epoch: int, values: Values) -> None:
        """What a cohort reached, from its report; nothing new where it asked for a verdict itself."""
        async with self._in(turn):
            study, place = self._cohorts[cohort]
            self._rungs[study].post(place, epoch, values)

    async def end(self, turn: int, cohort: str) -> None:
        """A cohort has finished, or failed for good."""
        async with self._in(turn):
            study, place = self._cohorts[cohort]
            self._rungs[study].end(place)

    async def split(self, turn: int, cohort: str, parts: Sequence[str], second: int, count: int) -> None:
        """A cohort goes on as two, the first of `count` members; the other's place is `second`."""
        async with self._in(turn):
            study, place = self._cohorts[cohort]
            self._rungs[study].split(place, second, count)
            self._cohorts |= dict(zip(parts, [(study, place), (study, second)], strict=True))

    async def rule(self, cohort: str) -> Rule:
        """That of its study."""
        async with self._changed:
            study, _ = await self._known(cohort)
            return self._rules[study]

    async def judge(self, cohort: str, epoch: int, values: Values) -> dict[int, str] | None:
        """Index -> why, of the members to prune. Waits for the cohorts of lower places; None where one of them has no
        worker and this cohort is to make room."""
        async with self._changed:
            study, place = await self._known(cohort)
            rungs = self._rungs[study]
            rungs.post(place, epoch, values)
            self._changed.notify_all()
            if not await self._waited(study, place, epoch):
                return None
            verdict = rungs.verdict(place, epoch)
            self._changed.notify_all()  # who has no member left is not waited for
            return verdict

    async def _waited(self, study: str, place: int, epoch: int) -> bool:
        """Until the verdict is ready; False where this cohort is the one to make room, for all of its processes. One
        does so at a time, that of the highest place."""
        rungs, now, since = self._rungs[study], asyncio.get_running_loop().time, math.inf
        self._waiting.append((study, place))
        try:
            while (study, place) not in self._leaving:
                if rungs.ready(place, epoch):
                    return True
                absent = any((study, lower) not in self._taken for lower in rungs.awaited(place, epoch))
                since = min(since, now()) if absent else math.inf
                left = max(since, self._left_at) + self._absence - now()
                if left <= 0 and (study, place) == self._highest():
                    self._leaving.add((study, place))
                    self._left_at = now()
                    self._changed.notify_all()
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if math.isinf(left) else max(left, self._absence / 10)):
                        await self._changed.wait()
            return False
        finally:
            self._waiting.remove((study, place))

    def _highest(self) -> tuple[str, int] | None:
        """Of those that wait, without calls that workers left behind."""
        return max(self._taken.intersection(self._waiting), key=lambda one: (one[1], one[0]), default=None)

    async def _known(self, cohort: str) -> tuple[str, int]:
        """Its study and place. LookupError if the driver says nothing of it."""
        try:
            async with asyncio.timeout(self._patience):
                await self._changed.wait_for(lambda: cohort in self._cohorts)
        except TimeoutError:
            known = ", ".join(self._cohorts) or "none"
            raise LookupError(f"no cohort '{cohort}' is expected at any rung; there are: {known}") from None
        return self._cohorts[cohort]

    @contextlib.asynccontextmanager
    async def _in(self, turn: int) -> AsyncIterator[None]:
        """The driver's call of that number; the next may follow even if it fails."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._turn == turn)
            try:
                yield
            finally:
                self._turn += 1
                self._changed.notify_all()
