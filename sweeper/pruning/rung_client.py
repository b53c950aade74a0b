"""The two clients of the `RungServer` actor: `RungClient` on the driver, and `JudgeFactory` on the workers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeper.pruning.rung_events import RungEvent
from sweeper.pruning.rung_server import ABSENCE, Rule, RungServer
from trainables.reports import Judge, Report, Stopped, Verdict

CALLS = 100_000
"""Calls that may wait in the actor at once: one of each cohort, and those of workers that died while they waited."""


@dataclass(frozen=True)
class JudgeFactory:
    """Makes judges on the workers. It can be pickled and sent to any process of the cluster."""

    server: Any
    """Handle of the `RungServer` actor."""

    def __call__(self, cohort: str) -> Judge:
        """Return a judge that asks the actor at each rung and waits for its verdict.

        The judge raises Stopped if the cohort must give up its slot for one that it waits for, ValueError if no member
        has reported the metric, and a RayError if the actor is gone.
        """
        cached_rule = functools.cache(lambda: ray.get(self.server.rule.remote(cohort)))

        def judge(report: Report) -> Verdict:
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
            pruned = ray.get(self.server.judge.remote(cohort, report.epoch, values))
            if pruned is None:
                raise Stopped(f"it makes room for cohorts that it waits for at epoch {report.epoch}")
            return Verdict(pruned={index: reason for index, reason in pruned.items() if index in running})

        return judge


class RungClient:
    """The driver's client. No call waits for the actor, not even for its start."""

    def __init__(self, rules: Mapping[str, Rule], absence: float = ABSENCE) -> None:
        """Start the actor, on the driver's node if possible. It lives as long as this client or its `judge_factory`.

        `rules` maps a study's id to its rule. For `absence` see `RungServer`.
        """
        driver_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        options = {"num_cpus": 0, "max_concurrency": CALLS, "scheduling_strategy": driver_node}
        self._server: Any = ray.remote(RungServer).options(**options).remote(dict(rules), absence=absence)
        self._turns = itertools.count()

    @property
    def judge_factory(self) -> JudgeFactory:
        """The client for the workers."""
        return JudgeFactory(self._server)

    def tell(self, event: RungEvent) -> None:
        """Tell the actor what has happened. Events take effect in the order of the calls."""
        self._server.apply.remote(next(self._turns), event)
