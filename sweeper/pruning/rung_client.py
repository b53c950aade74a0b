"""Who speaks to the board at which cohorts meet: the driver's side, and the workers'."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeper.pruning.rung_server import ABSENCE, Rule, RungServer

if TYPE_CHECKING:
    from trainables.contract import Judge, Report, Verdict

CALLS = 100_000
"""Calls that may wait on the board at once: a cohort's each, and those of workers that died waiting."""


@dataclass(frozen=True)
class Judges:
    """The workers' side: travels to any process of the cluster."""

    board: Any
    """The actor's handle."""

    def judge_of(self, cohort: str) -> Judge:
        """Asks the board at rungs, and waits for its answer. Stopped where the cohort is to make room; an error of Ray
        where the board is gone."""
        rule_of = functools.cache(lambda: ray.get(self.board.rule.remote(cohort)))

        def judge(report: Report) -> Verdict:
            from trainables.contract import Stopped, Verdict  # needs torch, which the board's own process goes without

            rule: Rule = rule_of()
            if report.epoch not in rule.epochs:
                return Verdict()
            running = {index: one.metrics for index, one in enumerate(report.members) if one.status == "running"}
            if running and all(rule.metric not in metrics for metrics in running.values()):
                there = ", ".join(sorted(set(itertools.chain(*running.values())))) or "none"
                raise ValueError(f"no metric '{rule.metric}' to prune by at epoch {report.epoch}; there are: {there}")
            values = {index: metrics.get(rule.metric) for index, metrics in running.items()}
            pruned = ray.get(self.board.judge.remote(cohort, report.epoch, values))
            if pruned is None:
                raise Stopped(f"it makes room for cohorts that it waits for at epoch {report.epoch}")
            return Verdict(pruned={index: why for index, why in pruned.items() if index in running})

        return judge


class RungClient:
    """The driver's side, a `waves.RungVerbs`: no call waits, not even for the board to be there."""

    def __init__(self, rules: Mapping[str, Rule], absence: float = ABSENCE) -> None:
        """`rules`: by study. The board lives as long as this or its `judges`, on the node of the driver if it can."""
        beside = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        options = {"num_cpus": 0, "max_concurrency": CALLS, "scheduling_strategy": beside}
        self._rules = dict(rules)
        self._board: Any = ray.remote(RungServer).options(**options).remote(self._rules, absence=absence)
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

    def started(self, cohort: str) -> None:
        """A worker has taken it up; nothing where it was not expected."""
        if cohort in self._study:
            self._board.started.remote(next(self._turns), cohort)

    def stopped(self, cohort: str) -> None:
        """It has lost its worker."""
        if cohort in self._study:
            self._board.stopped.remote(next(self._turns), cohort)

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
