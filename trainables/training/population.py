"""Population-based training (Jaderberg et al. 2017, arXiv:1711.09846).

The worst members of a cohort copy the weights and hyperparameters of the best, and perturb the hyperparameters.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

import torch

from trainables.config import adaptable_keys
from trainables.json_input import read_json
from trainables.learners.data_parallel import seeded_generator
from trainables.reports import Judge, Member, Move, Report, Verdict
from trainables.sections import TrialConfig
from trainables.validation import above, at_least, between, checked, one_of


@checked
class PopulationRule:
    """The rule by which members move. It is stateless: the same report gets the same verdict in any process."""

    metric: str
    """Metric by which members are ranked; a member without a value ranks last."""
    direction: Annotated[Literal["maximize", "minimize"], one_of("maximize", "minimize")]
    every: Annotated[int, at_least(1)]
    """Epochs between moves. Members move after the report of such an epoch."""
    share: Annotated[float, between(0, 0.5, above=True)]
    """Share of the running members that move, in (0, 0.5]: each of the worst members copies one of equally many best
    members. At least one member moves if two or more are running."""
    factor: Annotated[float, above(1)]
    """Factor by which each hyperparameter is multiplied or divided, with equal probability; `factor > 1`."""
    ranges: Mapping[str, tuple[float, float]]
    """Key of an adapted hyperparameter -> its smallest and largest value."""

    def __post_init__(self) -> None:
        for key, (low, high) in self.ranges.items():
            if not low <= high:
                raise ValueError(f"`low <= high` must hold for each range, but got {key} from {low} to {high}")

    def judge_of(self, configs: Sequence[TrialConfig]) -> Judge:
        """Return the judge of a cohort with these configs. Raises ValueError for a range of a key that cannot be
        adapted."""
        adaptable = adaptable_keys(configs[0].method)
        for key in self.ranges:
            if key not in adaptable:
                raise ValueError(
                    f"a population of {configs[0].method} can only adapt {', '.join(sorted(adaptable))}, but got {key}"
                )
        flat_configs = [config.flat() for config in configs]
        initial = [{key: float(cast(float, flat[key])) for key in self.ranges} for flat in flat_configs]
        identity = seeded_generator("population", [sorted(flat.items()) for flat in flat_configs]).initial_seed()

        def judge(report: Report) -> Verdict:
            if report.epoch % self.every:
                return Verdict()
            best, worst = self._best_and_worst(report)
            moves = {}
            for index in worst if best else ():
                rng = seeded_generator("population", identity, report.epoch, index)
                source = best[_draw(len(best), rng)]
                present = initial[source]
                for move in parse_schedule(report.members[source].schedule):
                    present = present | move
                moves[index] = Move(source, self._perturbed(present, rng))
            return Verdict(moves=moves)

        return judge

    def _best_and_worst(self, report: Report) -> tuple[list[int], list[int]]:
        """Indices of the best running members, without members that have no value, and of equally many of the worst.
        Among equal values the first member ranks higher. Raises ValueError if the report lacks the metric."""
        running = [index for index, member in enumerate(report.members) if member.status == "running"]
        ranked = sorted(running, key=lambda index: self._rank(report.members[index]))
        count = min(max(1, math.floor(self.share * len(ranked) + 1e-9)), len(ranked) // 2)
        best = [index for index in ranked[:count] if report.members[index].metrics[self.metric] is not None]
        return best, ranked[len(ranked) - count :]

    def _rank(self, member: Member) -> tuple[bool, float]:
        """Sort key of a member, smaller for better."""
        if self.metric not in member.metrics:
            raise ValueError(
                f"no metric '{self.metric}' for a population to rank by; there are: {', '.join(member.metrics)}"
            )
        value = member.metrics[self.metric]
        return value is None, 0.0 if value is None else value if self.direction == "minimize" else -value

    def _perturbed(self, values: Mapping[str, float], rng: torch.Generator) -> dict[str, float]:
        """Each value multiplied or divided by `factor`, and clipped to its range."""
        perturbed = {}
        for key in sorted(self.ranges):
            low, high = self.ranges[key]
            value = values[key] * self.factor if _draw(2, rng) else values[key] / self.factor
            perturbed[key] = float(min(max(value, low), high))
        return perturbed


def parse_schedule(text: str | None) -> tuple[dict[str, Any], ...]:
    """Parse `Member.schedule` into the member's moves; `text` is None for a member that never moved. Each move is a
    dict: the `epoch` after which it took place, the index of the member it copied (`from`), and the hyperparameters
    from then on, as in `{"epoch": 2, "from": 1, "lr": 0.1}`. Raises ValueError for any other text."""
    moves: tuple[dict[str, Any], ...] = read_json(tuple[Mapping[str, int | float], ...], text) if text else ()
    return moves


def _draw(count: int, rng: torch.Generator) -> int:
    """A random integer from 0 to `count - 1`."""
    return int(torch.randint(count, (), generator=rng))
