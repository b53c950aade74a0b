"""A plan that is shown, and a clock that stands still until a test moves it."""

from collections.abc import Mapping, Sequence

from sweeper.definition import Grid, Metric, Sweep
from sweeper.definition.figures import Table
from sweeper.definition.metric import Direction
from sweeper.planning.cohorts import Group, Trial
from sweeper.planning.plan import Plan


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
) -> Plan:
    """A plan whose first trials have the statuses `before`, and which differ in `columns`."""
    trials = tuple(Trial(f"p{index}", dict.fromkeys(columns, float(index))) for index in range(total))
    statuses = {trial.id: status for trial, status in zip(trials, before, strict=False)}
    table = Table("table", tuple(columns), (Metric(metric, direction),))
    return _plan(trials, [], [], statuses, table)


def plan_of_groups(groups: Sequence[tuple[str, int, int]], statuses: Mapping[str, str] | None = None) -> Plan:
    """A plan of groups, each given by its method, its number of trials and the steps of one of them. The trials of the
    first are g0t0, g0t1, ... Those of `gaussian_process` are not trained by gradients."""
    built = [
        [
            tuple(
                Trial(
                    f"g{index}t{number}",
                    {"method": method, "epochs": 10, **({} if method == "gaussian_process" else {"lr": 0.1})},
                )
                for number in range(count)
            )
        ]
        for index, (method, count, _) in enumerate(groups)
    ]
    trials = tuple(trial for (stream,) in built for trial in stream)
    table = Table("table", ("method",), (Metric("score", "maximize"),))
    return _plan(trials, built, [steps for _, _, steps in groups], statuses or {}, table)


def _plan(
    trials: tuple[Trial, ...],
    groups: Sequence[Group],
    steps: Sequence[int],
    statuses: Mapping[str, str],
    table: Table,
) -> Plan:
    sweep = Sweep("about", {"paper": Grid({}, {})}, figures=(table,))
    return Plan("grid", "paper", sweep, trials, groups, steps, statuses)
