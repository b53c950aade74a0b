"""The two clients of the `RungServer`: `RungClient` on the driver, and `JudgeFactory` on the workers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sweeper.pruning.rung_events import RungEvent
from sweeper.pruning.rung_server import Rule
from trainables.reports import Judge, Report, Stopped, Verdict


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
