"""The two clients of the `RungServer` actor: `RungClient` on the driver, and `Judges` on the workers."""

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
"""Calls that may wait in the actor at once: one of each cohort, and those of workers that died while they waited."""


@dataclass(frozen=True)
class Judges:
    """The workers' client. It can be pickled and sent to any process of the cluster."""

    board: Any
    """Handle of the `RungServer` actor."""

    def judge_of(self, cohort: str) -> Judge:
        """Return a judge that asks the actor at each rung and waits for its verdict.

        The judge raises Stopped if the cohort must give up its slot for one that it waits for, ValueError if no member
        has reported the metric, and a RayError if the actor is gone.
        """
        cached_rule = functools.cache(lambda: ray.get(self.board.rule.remote(cohort)))

        def judge(report: Report) -> Verdict:
            from trainables.contract import Stopped, Verdict  # imports torch, which the actor's process does not need

            rule: Rule = cached_rule()
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
            pruned = ray.get(self.board.judge.remote(cohort, report.epoch, values))
            if pruned is None:
                raise Stopped(f"it makes room for cohorts that it waits for at epoch {report.epoch}")
            return Verdict(pruned={index: reason for index, reason in pruned.items() if index in running})

        return judge


class RungClient:
    """The driver's client, a `waves.RungVerbs`. No call waits for the actor, not even for its start."""

    def __init__(self, rules: Mapping[str, Rule], absence: float = ABSENCE) -> None:
        """Start the actor, on the driver's node if possible. It lives as long as this client or its `judges`.

        `rules` maps a study's id to its rule. For `absence` see `RungServer`.
        """
        driver_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        options = {"num_cpus": 0, "max_concurrency": CALLS, "scheduling_strategy": driver_node}
        self._rules = dict(rules)
        self._server: Any = ray.remote(RungServer).options(**options).remote(self._rules, absence=absence)
        self._turns = itertools.count()
        self._study: dict[str, str] = {}

    @property
    def judges(self) -> Judges:
        """The client for the workers."""
        return Judges(self._server)

    def expect(self, study: str, place: int, cohort: str, numbers: Sequence[int]) -> None:
        """Announce a cohort before it starts. `numbers` are those of its trials in the study; places must ascend."""
        self._study[cohort] = study
        brackets = self._rules[study].brackets(numbers)
        self._server.expect.remote(next(self._turns), study, place, cohort, brackets)

    def seed(self, study: str, place: int, numbers: Sequence[int], reached: Sequence[Mapping[int, float]]) -> None:
        """Add a cohort of trials that ended in an earlier run; `reached` maps epochs to values, for each trial."""
        rule = self._rules[study]
        history = {
            epoch: {index: values[epoch] for index, values in enumerate(reached) if epoch in values}
            for epoch in rule.epochs
        }
        self._server.seed.remote(next(self._turns), study, place, rule.brackets(numbers), history)

    def started(self, cohort: str) -> None:
        """Record that a worker has started the cohort. Ignores a cohort that was not announced."""
        if cohort in self._study:
            self._server.started.remote(next(self._turns), cohort)

    def stopped(self, cohort: str) -> None:
        """Record that the cohort has lost its worker. Ignores a cohort that was not announced."""
        if cohort in self._study:
            self._server.stopped.remote(next(self._turns), cohort)

    def reported(self, cohort: str, report: Mapping[str, Any]) -> None:
        """Post the values of a `contract.Report` in dict form, if its epoch is a rung.

        A cohort that continues from a checkpoint repeats its earlier reports, but does not ask for a verdict at their
        rungs: a new actor learns the values from here.
        """
        study, epoch = self._study.get(cohort), report["epoch"]
        if study is None or epoch not in self._rules[study].epochs:
            return
        values = {
            index: member["metrics"].get(self._rules[study].metric)
            for index, member in enumerate(report["members"])
            if member["status"] == "running" or (member["status"], member["epochs_run"]) == ("pruned", epoch)
        }
        self._server.post.remote(next(self._turns), cohort, epoch, values)

    def split(self, cohort: str, parts: Sequence[str], second: int, count: int) -> None:
        """Split an announced cohort into two with the ids `parts`; see `Rungs.split` for `second` and `count`."""
        self._study |= dict.fromkeys(parts, self._study[cohort])
        self._server.split.remote(next(self._turns), cohort, list(parts), second, count)

    def end(self, cohort: str) -> None:
        """Record that the cohort finished or failed for good. Ignores a cohort that was not announced."""
        if cohort in self._study:
            self._server.end.remote(next(self._turns), cohort)
