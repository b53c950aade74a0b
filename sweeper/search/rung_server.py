"""The Ray actor that compares the cohorts of all workers at rungs, and its clients on the driver and on the workers.

A cohort at a rung may wait for one that has no worker, because its node was lost or other cohorts have taken its slot,
or because it is the other part of a cohort that was split and there is one slot for both. The waiting cohort then gives
up its own slot; otherwise both would wait for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sweeper.search.rungs import (
    CohortAnnounced,
    CohortEnded,
    CohortReported,
    CohortRestored,
    CohortSplit,
    CohortStarted,
    CohortStopped,
    Position,
    RungEvent,
    Rungs,
    Values,
)
from sweeper.spec.metric import Direction
from sweeper.spec.pruners import Pruner
from trainables.reports import Judge, Report, Stopped, Verdict

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
    pruner: Pruner
    ladders: tuple[tuple[int, ...], ...]
    """Epochs of the rungs of each bracket."""

    @property
    def epochs(self) -> frozenset[int]:
        """Epochs that are a rung of any bracket."""
        return frozenset(itertools.chain(*self.ladders))

    def brackets(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return the bracket of each trial, from its number in the study."""
        return self.pruner.brackets_of(numbers, len(self.ladders[0]))


@dataclass(frozen=True)
class _Cohort:
    """A cohort that was announced, or a part of one."""

    study: str
    position: Position
    members: tuple[int, ...]
    """Indices of its members among all at this position, in ascending order."""
    turn: int
    """The driver's turn in which the position was announced. Cohorts get slots in this order."""

    @property
    def rank(self) -> tuple[int, int]:
        """Cohorts that wait give up their slots in descending order of this."""
        return self.turn, self.members[0]


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
        self._rungs = {study: Rungs(rule.direction, rule.pruner, rule.ladders) for study, rule in rules.items()}
        self._cohorts: dict[str, _Cohort] = {}
        """Announced cohorts and parts of them, by id."""
        self._at: dict[tuple[str, Position], list[str]] = {}
        """Study and position -> ids of the cohorts that have its members now."""
        self._with_worker: set[str] = set()
        """Ids of the cohorts that a worker trains."""
        self._waiting: list[str] = []
        """Id of the cohort of each call that waits for a verdict."""
        self._leaving: set[str] = set()
        """Ids of the cohorts that have been told to give up their slots, until their workers have stopped."""
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
            case CohortAnnounced(study, position, cohort, numbers, reached):
                self._rungs[study].announce(position, self._rules[study].brackets(numbers), reached, numbers)
                if members := tuple(index for index in range(len(numbers)) if index not in reached):
                    self._cohorts[cohort] = _Cohort(study, position, members, self._turn)
                    self._at[study, position] = [cohort]
            case CohortRestored(study, position, numbers, reached):
                brackets = self._rules[study].brackets(numbers)
                self._rungs[study].announce(position, brackets, dict(enumerate(reached)), numbers)
            case CohortStarted(cohort):
                self._with_worker.add(cohort)
            case CohortStopped(cohort):
                self._with_worker.discard(cohort)
                self._leaving.discard(cohort)
            case CohortReported(cohort, epoch, values):
                known = self._cohorts[cohort]
                if epoch in self._rules[known.study].epochs:
                    self._post(known, epoch, values)
            case CohortSplit(cohort, parts):
                self._split(cohort, parts)
            case CohortEnded(cohort):
                known = self._cohorts[cohort]
                self._rungs[known.study].end(known.position, known.members)

    def _split(self, cohort: str, parts: Mapping[str, int]) -> None:
        """Give the cohort's members to its parts, which keep its position and so wait for each other."""
        whole = self._cohorts[cohort]
        if min(parts.values(), default=0) < 1 or sum(parts.values()) != len(whole.members):
            raise ValueError(
                f"the parts of cohort '{cohort}' must have its {len(whole.members)} members, but got "
                f"{', '.join(map(str, parts.values())) or 'none'}"
            )
        members = iter(whole.members)
        for part, size in parts.items():
            self._cohorts[part] = replace(whole, members=tuple(itertools.islice(members, size)))
        others = (other for other in self._at[whole.study, whole.position] if other != cohort)
        self._at[whole.study, whole.position] = [*others, *parts]

    def _post(self, cohort: _Cohort, epoch: int, values: Values) -> None:
        """Record the values of a cohort's members, which are numbered within the cohort."""
        by_index = {cohort.members[index]: value for index, value in values.items()}
        self._rungs[cohort.study].post(cohort.position, epoch, by_index, cohort.members)

    async def rule(self, cohort: str) -> Rule:
        """Return the rule of the cohort's study."""
        async with self._changed:
            return self._rules[(await self._announced(cohort)).study]

    async def judge(self, cohort: str, epoch: int, values: Values) -> dict[int, str] | None:
        """Return the members to prune at an epoch: index -> reason.

        Waits for the cohorts at lower positions, and for the other parts of its own. Returns None if one of them has no
        worker and this cohort must give up its slot.
        """
        async with self._changed:
            own = await self._announced(cohort)
            self._post(own, epoch, values)
            self._changed.notify_all()
            if not await self._wait_until_ready(cohort, epoch):
                return None
            verdict = self._rungs[own.study].verdict(own.position, epoch, own.members)
            self._changed.notify_all()  # no cohort waits for one without members
            return {own.members.index(member): reason for member, reason in verdict.items()}

    async def _wait_until_ready(self, cohort: str, epoch: int) -> bool:
        """Wait until the verdict is ready and return True, or False if this cohort must give up its slot.

        Once a cohort that any waits for has had no worker for `absence` seconds, and no cohort was told to leave for as
        long, the waiting cohort of the highest rank must leave. It may itself wait only for cohorts that have workers
        and wait in turn. All calls of its processes return False.
        """
        own, now, absent_since = self._cohorts[cohort], asyncio.get_running_loop().time, math.inf
        self._waiting.append(cohort)
        try:
            while cohort not in self._leaving:
                awaited = self._rungs[own.study].awaited(own.position, epoch, own.members)
                if not awaited:
                    return True
                absent_since = min(absent_since, now()) if self._some_absent(own.study, awaited) else math.inf
                seconds_left = max(absent_since, self._left_at) + self._absence - now()
                if seconds_left <= 0 and (highest := self._highest()) and highest not in self._leaving:
                    self._leaving.add(highest)
                    self._left_at = now()
                    self._changed.notify_all()
                    continue
                with contextlib.suppress(TimeoutError):
                    timeout = None if math.isinf(seconds_left) else max(seconds_left, self._absence / 10)
                    async with asyncio.timeout(timeout):
                        await self._changed.wait()
            return False
        finally:
            self._waiting.remove(cohort)

    def _some_absent(self, study: str, awaited: Mapping[Position, Set[int]]) -> bool:
        """Whether one of these members is trained by no worker."""
        for position, members in awaited.items():
            at_work = self._with_worker.intersection(self._at[study, position])
            if not members <= {index for cohort in at_work for index in self._cohorts[cohort].members}:
                return True
        return False

    def _highest(self) -> str | None:
        """Return the waiting cohort with a worker that has the highest rank.

        Calls of dead workers still wait; their cohorts have no worker.
        """
        return max(
            self._with_worker.intersection(self._waiting), key=lambda cohort: self._cohorts[cohort].rank, default=None
        )

    async def _announced(self, cohort: str) -> _Cohort:
        """Return the cohort, once the driver has announced it.

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


class Service(Protocol):
    """A client of an object that the driver and all cohorts may call. It can be sent to where they run."""

    def ask(self, method: str, *arguments: object) -> Any:
        """Return the result of a call. Raises an exception if the object is gone."""

    def tell(self, method: str, *arguments: object) -> None:
        """Make a call and do not wait for it."""


@dataclass(frozen=True)
class JudgeFactory:
    """Makes judges on the workers."""

    server: Service
    """A client of the `RungServer`."""

    def __call__(self, cohort: str) -> Judge:
        """Return a judge that asks the server at each rung and waits for its verdict.

        The judge raises Stopped if the cohort must give up its slot for one that it waits for, ValueError if no member
        has reported the metric, and what `Service.ask` raises if the server is gone.
        """
        cached_rule: Callable[[], Rule] = functools.cache(lambda: self.server.ask("rule", cohort))

        def judge(report: Report) -> Verdict:
            rule = cached_rule()
            if report.epoch not in rule.epochs:
                return Verdict()
            running = {
                index: member.metrics for index, member in enumerate(report.members) if member.status == "running"
            }
            if running and all(rule.metric not in metrics for metrics in running.values()):
                reported = ", ".join(sorted(set(itertools.chain(*running.values())))) or "none"
                raise ValueError(
                    f"no metric '{rule.metric}' to prune by at epoch {report.epoch}; there are: {reported}"
                )
            values = {index: metrics.get(rule.metric) for index, metrics in running.items()}
            pruned = self.server.ask("judge", cohort, report.epoch, values)
            if pruned is None:
                raise Stopped(f"it makes room for cohorts that it waits for at epoch {report.epoch}")
            return Verdict(pruned={index: reason for index, reason in pruned.items() if index in running})

        return judge


class RungClient:
    """The driver's client. No call waits for the server, not even for its start."""

    def __init__(self, server: Service) -> None:
        self._server, self._turns = server, itertools.count()

    @property
    def judge_factory(self) -> JudgeFactory:
        """The client for the workers."""
        return JudgeFactory(self._server)

    def tell(self, event: RungEvent) -> None:
        """Tell the server what has happened. Events take effect in the order of the calls."""
        self._server.tell("apply", next(self._turns), event)
