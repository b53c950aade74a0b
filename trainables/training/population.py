"""Population-based training (Jaderberg et al. 2017, arXiv:1711.09846): the worst members of a cohort take over the
weights of the best, and change their hyperparameters a little.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from trainables.config.trial import TrialConfig, fusible
from trainables.contract import Judge, Member, Move, Report, Verdict
from trainables.learners.streams import generator
from trainables.validation import between, choices, positive, whole

UNADAPTED = frozenset({"seed", "normal_class"})
"""Fusible, but no quantities: they say which data a member reads."""


@dataclass(frozen=True)
class Population:
    """The rule by which members move. It keeps nothing: the same report gets the same verdict in any process."""

    metric: str
    """What members are ranked by; one that lacks it ranks last."""
    direction: Literal["maximize", "minimize"]
    every: int
    """Epochs between moves, which follow a report."""
    share: float
    """Of the running members, that many of the worst move, each to one of as many best; in (0, 0.5]. One at least of
    two members or more."""
    factor: float
    """Each hyperparameter is multiplied or divided by it, as likely the one as the other; `factor > 1`."""
    ranges: Mapping[str, tuple[float, float]]
    """Key -> the least and the most that it may become."""

    def __post_init__(self) -> None:
        choices("direction", self.direction, ("maximize", "minimize"))
        whole("every", self.every, 1)
        between("share", self.share, 0, 0.5, above=True)
        positive("factor", self.factor)
        if self.factor <= 1:
            raise ValueError(f"`factor > 1` must hold, but got factor={self.factor}")
        for key, (low, high) in self.ranges.items():
            if not low <= high:
                raise ValueError(f"a range goes from low to high, but got {key} from {low} to {high}")

    def judge_of(self, configs: Sequence[TrialConfig]) -> Judge:
        """The judge of a cohort of these configs. ValueError for a range of what is not fusible."""
        able = fusible(configs[0].method) - UNADAPTED
        for key in self.ranges:
            if key not in able:
                raise ValueError(f"a population of {configs[0].method} adapts {', '.join(sorted(able))}, but got {key}")
        flat = [config.flat() for config in configs]
        initial = [{key: float(one[key]) for key in self.ranges} for one in flat]  # type: ignore[arg-type]
        identity = generator("population", [sorted(one.items()) for one in flat]).initial_seed()

        def judge(report: Report) -> Verdict:
            if report.epoch % self.every:
                return Verdict()
            best, worst = self._ends(report)
            moves = {}
            for index in worst if best else ():
                source = generator("population", identity, report.epoch, index)
                chosen = best[_draw(len(best), source)]
                present = initial[chosen]
                for move in schedule(report.members[chosen].schedule):
                    present = present | move
                moves[index] = Move(chosen, self._changed(present, source))
            return Verdict(moves=moves)

        return judge

    def _ends(self, report: Report) -> tuple[list[int], list[int]]:
        """The best of the running members, as far as they have the metric, and as many of the worst; of equals the
        first is the better. ValueError where the report does not have the metric."""
        running = [index for index, member in enumerate(report.members) if member.status == "running"]
        ranked = sorted(running, key=lambda index: self._rank(report.members[index]))
        count = min(max(1, math.floor(self.share * len(ranked) + 1e-9)), len(ranked) // 2)
        best = [index for index in ranked[:count] if report.members[index].metrics[self.metric] is not None]
        return best, ranked[len(ranked) - count :]

    def _rank(self, member: Member) -> tuple[bool, float]:
        """Less for better."""
        if self.metric not in member.metrics:
            raise ValueError(f"a population ranks by what is reported: {', '.join(member.metrics)}; got {self.metric}")
        value = member.metrics[self.metric]
        return value is None, 0.0 if value is None else value if self.direction == "minimize" else -value

    def _changed(self, values: Mapping[str, float], source: torch.Generator) -> dict[str, float]:
        changed = {}
        for key in sorted(self.ranges):
            low, high = self.ranges[key]
            value = values[key] * self.factor if _draw(2, source) else values[key] / self.factor
            changed[key] = float(min(max(value, low), high))
        return changed


def schedule(text: str | None) -> tuple[dict[str, Any], ...]:
    """The moves of a member from its `Member.schedule`: after which `epoch`, `from` which member of its cohort, and key
    -> value from then on. None for a member that never moved."""
    return tuple(json.loads(text)) if text else ()


def _draw(count: int, source: torch.Generator) -> int:
    """One of 0, 1, ..., `count - 1`."""
    return int(torch.randint(count, (), generator=source))
