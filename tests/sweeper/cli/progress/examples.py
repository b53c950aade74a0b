"""A plan that is shown, and a clock that stands still until a test moves it."""

from collections.abc import Sequence

from sweeper.plan.plan import GridPlan
from sweeper.plan.trials import Trial
from sweeper.spec import Grid, Metric, Sweep
from sweeper.spec.metric import Direction
from sweeper.spec.views import Table


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def plan_of(
    total: int,
    before: Sequence[str] = (),
    metric: str = "score",
    direction: Direction = "maximize",
    columns: Sequence[str] = ("nu",),
) -> GridPlan:
    """A plan whose first trials have the statuses `before`, and which differ in `columns`."""
    trials = tuple(Trial(f"p{index}", dict.fromkeys(columns, float(index))) for index in range(total))
    statuses = {trial.id: status for trial, status in zip(trials, before, strict=False)}
    table = Table("table", tuple(columns), (Metric(metric, direction),))
    return GridPlan("grid", "paper", Sweep("about", {"paper": Grid({}, {})}, tables=(table,)), trials, [], [], statuses)
