"""The order in which the cohorts of a grid start. It changes neither the cohorts nor their trials, ids and rows."""

import math
from collections.abc import Iterator, Sequence

from sweeper.definition import Grid, Value
from sweeper.definition.space import parts_of
from sweeper.definition.sweep import SEEDS
from sweeper.option_values import Order
from sweeper.planning.cohorts import Cohort, content_hash
from sweeper.planning.plan import Plan


def in_order(cohorts: Sequence[Cohort], plan: Plan, order: Order) -> list[Cohort]:
    """Return the cohorts of a plan in the order in which they are to start.

    `coarse`: first those with a trial of the coarsest level (see `_levels`), of these first those whose trials have the
    lowest levels on average, and else as the grid has them. `shuffled`: in a random order that its seed determines.
    """
    if order.kind == "shuffled":
        return sorted(cohorts, key=lambda cohort: content_hash([order.seed, cohort.id]))
    if order.kind == "given":
        return list(cohorts)
    level_of = {trial.id: level for trial, level in zip(plan.grid_trials, _levels(plan), strict=True)}

    def coarseness(cohort: Cohort) -> tuple[int, float]:
        levels = [level_of.get(trial.id, 0) for trial in cohort.trials]
        return min(levels), sum(levels) / len(levels)

    return sorted(cohorts, key=coarseness)


def _levels(plan: Plan) -> Iterator[int]:
    """Yield the level of each trial of a plan's grids, 0 for the coarsest.

    The trials of all levels but the last have every other value of each numeric axis, those of all but the last two
    every fourth, and so on. Axes of two values, and of values that repeat an experiment, such as seeds, are left out.
    """
    for grid in (part for part in parts_of(plan.space) if isinstance(part, Grid)):
        axes = [key for key, values in grid.axes.items() if key not in SEEDS.names and _is_numeric(values)]
        places = {key: {value: place for place, value in enumerate(sorted(grid.axes[key]))} for key in axes}  # type: ignore[type-var]
        coarsest = max((math.floor(math.log2(len(grid.axes[key]) - 1)) for key in axes), default=0)
        for combination in grid.combinations():
            yield coarsest - min((_halvings(places[key][combination[key]], coarsest) for key in axes), default=coarsest)


def _halvings(place: int, most: int) -> int:
    """Return how often a place can be halved, at `most`: 0 for an odd one."""
    return min(most, (place & -place).bit_length() - 1) if place else most


def _is_numeric(values: Sequence[Value]) -> bool:
    return len(values) > 2 and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
