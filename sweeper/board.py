"""Where cohorts of several workers meet at rungs: a Ray actor around `Rungs`, with a driver's and a workers' side."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeper.metric import Direction
from sweeper.rungs import Rungs, Values, deal

if TYPE_CHECKING:
    from trainables.contract import Judge, Report, Verdict

PATIENCE = 60.0
"""Seconds in which the driver's word of a cohort must have come after the cohort's own."""
CALLS = 100_000
"""Calls that may wait on the board at once: a cohort's each, and those of workers that died waiting."""


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
        return deal(numbers, len(self.ladders), self.factor, len(self.ladders[0]))


class Board:
    """The rungs of all studies, in an actor of its own.

    The driver numbers its calls with turns, and they take effect in that order: Ray promises none. A cohort may ask
    before the driver's word of it is here, and then waits for it.
    """

    def __init__(self, rules: Mapping[str, Rule], patience: float = PATIENCE) -> None:
        """`rules`: by study."""
        self._rules, self._patience = rules, patience
        self._rungs = {study: Rungs(rule.direction, rule.factor, rule.ladders) for study, rule in rules.items()}
        self._cohorts: dict[str, tuple[str, int]] = {}
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

    async def judge(self, cohort: str, epoch: int, values: Values) -> dict[int, str]:
        """Index -> why, of the members to prune. Waits for the cohorts of lower places."""
        async with self._changed:
            study, place = await self._known(cohort)
            rungs = self._rungs[study]
            rungs.post(place, epoch, values)
            self._changed.notify_all()
            await self._changed.wait_for(lambda: rungs.ready(place, epoch))
            verdict = rungs.verdict(place, epoch)
            self._changed.notify_all()  # who has no member left is not waited for
            return verdict

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


@dataclass(frozen=True)
class Judges:
    """The workers' side: travels to any process of the cluster."""

    board: Any
    """The actor's handle."""

    def judge_of(self, cohort: str) -> Judge:
        """Asks the board at rungs, and waits for its answer. An error of Ray where the board is gone."""
        rule_of = functools.cache(lambda: ray.get(self.board.rule.remote(cohort)))

        def judge(report: Report) -> Verdict:
            from trainables.contract import Verdict  # needs torch, which the board's own process goes without

            rule: Rule = rule_of()
            if report.epoch not in rule.epochs:
                return Verdict()
            running = {index: one.metrics for index, one in enumerate(report.members) if one.status == "running"}
            if running and all(rule.metric not in metrics for metrics in running.values()):
                there = ", ".join(sorted(set(itertools.chain(*running.values())))) or "none"
                raise ValueError(f"no metric '{rule.metric}' to prune by at epoch {report.epoch}; there are: {there}")
            values = {index: metrics.get(rule.metric) for index, metrics in running.items()}
            pruned = ray.get(self.board.judge.remote(cohort, report.epoch, values))
            return Verdict(pruned={index: why for index, why in pruned.items() if index in running})

        return judge


class Referee:
    """The driver's side, a `waves.Ladder`: no call waits, not even for the board to be there."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        """`rules`: by study. The board lives as long as this or its `judges`, on the node of the driver if it can."""
        beside = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        options = {"num_cpus": 0, "max_concurrency": CALLS, "scheduling_strategy": beside}
        self._rules = dict(rules)
        self._board: Any = ray.remote(Board).options(**options).remote(self._rules)
        self._turns = itertools.count()
        self._study: dict[str, str] = {}

    @property
    def judges(self) -> Judges:
        """For the workers."""
        return Judges(self._board)

    def expect(self, study: str, place: int, cohort: str, numbers: Sequence[int]) -> None:
        """A cohort is about to start; `numbers` of its trials in the study. Places of a study ascend."""
        self._study[cohort] = study
        brackets = self._rules[study].brackets(numbers)
        self._board.expect.remote(next(self._turns), study, place, cohort, brackets)

    def seed(self, study: str, place: int, numbers: Sequence[int], reached: Sequence[Mapping[int, float]]) -> None:
        """Trials that ended in an earlier run; of each, epoch -> value."""
        rule = self._rules[study]
        history = {
            epoch: {index: values[epoch] for index, values in enumerate(reached) if epoch in values}
            for epoch in rule.epochs
        }
        self._board.seed.remote(next(self._turns), study, place, rule.brackets(numbers), history)

    def reported(self, cohort: str, report: Mapping[str, Any]) -> None:
        """A `contract.Report`, as a dict: a cohort that goes on from a checkpoint asks no more about earlier rungs."""
        study, epoch = self._study.get(cohort), report["epoch"]
        if study is None or epoch not in self._rules[study].epochs:
            return
        values = {
            index: one["metrics"].get(self._rules[study].metric)
            for index, one in enumerate(report["members"])
            if one["status"] == "running" or (one["status"], one["epochs_run"]) == ("pruned", epoch)
        }
        self._board.post.remote(next(self._turns), cohort, epoch, values)

    def split(self, cohort: str, parts: Sequence[str], second: int, count: int) -> None:
        """It goes on as two, the first of `count` members; the other's place is `second`."""
        self._study |= dict.fromkeys(parts, self._study[cohort])
        self._board.split.remote(next(self._turns), cohort, list(parts), second, count)

    def end(self, cohort: str) -> None:
        """It has finished, or failed for good; nothing where it was not expected."""
        if cohort in self._study:
            self._board.end.remote(next(self._turns), cohort)
