"""The best trials of a plan: of each cell of its heatmaps and tables, of each study, and of all.

They do not depend on the order in which rows come, so a sweep that was interrupted has the same ones at its end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeper.plan.plan import Plan
from sweeper.spec.metric import VALIDATION, Metric
from sweeper.spec.search import Search, Searches
from sweeper.spec.sweep import Sweep

Rank = tuple[bool, float, str]
"""Sort key of a trial, smaller for better."""
ALWAYS = ("trial_id", "status")
"""Columns of a row that every ranking reads."""


@dataclass(frozen=True)
class Ranking:
    """A metric, and the columns whose values divide the trials into cells."""

    metric: Metric
    columns: tuple[str, ...] = ()

    def cell(self, row: Mapping[str, Any]) -> tuple[Hashable, ...]:
        return tuple(_plain(row.get(column)) for column in self.columns)

    def rank(self, row: Mapping[str, Any]) -> Rank | None:
        """The rank of a trial; None if it has no value of the metric or did not finish.

        Trials are ranked by `val_METRIC` where they have it, as the best cell of a heatmap is chosen. Trials without it
        come after them. Of equal trials the one with the smallest id comes first.
        """
        if row.get("status") != "finished":
            return None
        sign = -1 if self.metric.ranking_direction == "maximize" else 1
        for name in (f"{VALIDATION}{self.metric.name}", self.metric.name):
            value = _plain(row.get(name))
            if isinstance(value, int | float) and math.isfinite(value):
                return name == self.metric.name, sign * value, str(row["trial_id"])
        return None


class BestTrials:
    """The best trial of each cell of some rankings, among the rows that were added."""

    def __init__(self, rankings: Sequence[Ranking]) -> None:
        self._best: dict[Ranking, dict[tuple[Hashable, ...], Rank]] = {ranking: {} for ranking in rankings}
        """Ranking -> cell -> rank of its best trial."""

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows, of which only the columns in `columns` are read."""
        for row in rows:
            for ranking, best in self._best.items():
                rank = ranking.rank(row)
                if rank is not None:
                    cell = ranking.cell(row)
                    best[cell] = min(best.get(cell, rank), rank)

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the best trials."""
        return frozenset(trial for best in self._best.values() for _, _, trial in best.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of rows that the rankings read."""
        names = [ranking.metric.name for ranking in self._best]
        own = [column for ranking in self._best for column in ranking.columns]
        return tuple(dict.fromkeys((*ALWAYS, *names, *(f"{VALIDATION}{name}" for name in names), *own)))


def rankings_of(plan: Plan) -> list[Ranking]:
    """The rankings by which the best trials of a plan are chosen."""
    space = getattr(plan, "space", None)
    objectives = space.objectives if isinstance(space, Search | Searches) else ()
    studies = [Ranking(metric, ("study_id",)) for metric in objectives]
    return [Ranking(plan.headline), *studies, *_of_views(plan.sweep)]


def _of_views(sweep: Sweep) -> list[Ranking]:
    """A ranking for each set of hyperparameters that place trials in cells, by the metric of the first view with these:
    several heatmaps over the same axes would keep a trial each of every cell."""
    by_axes: dict[tuple[str, ...], Metric] = {}
    for heatmap in sweep.heatmaps:
        by_axes.setdefault(heatmap.hyperparameters, heatmap.metric)
    for table in sweep.tables:
        if table.metrics[0].direction:
            by_axes.setdefault(table.hyperparameters, table.metrics[0])
    return [Ranking(metric, axes) for axes, metric in by_axes.items()]


def find_best(rows: Collection[Mapping[str, Any]], metric: Metric) -> str | None:
    """The id of the best of all these trials; None if none has finished with a value of the metric."""
    best = BestTrials([Ranking(metric)])
    best.add(rows)
    return next(iter(best.ids), None)


def _plain(value: Any) -> Any:
    """The value with NaN, as pandas has nulls, replaced by None."""
    return None if isinstance(value, float) and math.isnan(value) else value
