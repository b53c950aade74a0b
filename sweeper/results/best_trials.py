"""The best trials of a plan, whose models stay: of each cell of its heatmaps and tables, of each study, and of the best
setting.

They do not depend on the order in which rows come, so a sweep that was interrupted has the same ones at its end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeper.definition.constraint import Constraint
from sweeper.definition.metric import VALIDATION, Metric, is_finite
from sweeper.definition.sweep import Sweep
from sweeper.planning.plan import Plan
from sweeper.storage.rows import QUESTIONS

if TYPE_CHECKING:
    from sweeper.results.best import Settings

Rank = tuple[bool, float, str]
"""Sort key of a trial, smaller for better."""
ALWAYS = ("trial_id", "status")
"""Columns of a row that every ranking reads."""


@dataclass(frozen=True)
class CellRanking:
    """A metric, and the columns whose values divide the trials into cells."""

    metric: Metric
    columns: tuple[str, ...] = ()
    of_grids: bool = False
    """Whether the trials of studies, which have rankings of their own, are left out."""
    constraints: tuple[Constraint, ...] = ()
    """Those of trials of studies."""

    def cell(self, row: Mapping[str, Any]) -> tuple[Hashable, ...]:
        return tuple(_plain(row.get(column)) for column in self.columns)

    def rank(self, row: Mapping[str, Any]) -> Rank | None:
        """The rank of a trial; None if it has no value of the metric, did not finish or is infeasible.

        Trials are ranked by `val_METRIC` where they have it, as the best cell of a heatmap is chosen. Trials without it
        come after them. Of equal trials the one with the smallest id comes first.
        """
        of_study = _plain(row.get("study_id")) is not None
        if row.get("status") != "finished" or (self.of_grids and of_study):
            return None
        if of_study and not all(_is_met(constraint, row) for constraint in self.constraints):
            return None
        for name in (f"{VALIDATION}{self.metric.name}", self.metric.name):
            value = _plain(row.get(name))
            if is_finite(value):
                return name == self.metric.name, self.metric.cost(value), str(row["trial_id"])
        return None


def best_of_cells(rankings: Sequence[CellRanking], rows: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The ids of the best trials of each cell of the rankings, among these rows."""
    best: dict[tuple[CellRanking, tuple[Hashable, ...]], Rank] = {}
    for row in rows:
        for ranking in rankings:
            rank = ranking.rank(row)
            if rank is not None:
                cell = ranking, ranking.cell(row)
                best[cell] = min(best.get(cell, rank), rank)
    return frozenset(trial for _, _, trial in best.values())


def columns_of(rankings: Sequence[CellRanking]) -> tuple[str, ...]:
    """The columns of rows that the rankings read."""
    names = [ranking.metric.name for ranking in rankings]
    own = [column for ranking in rankings for column in ranking.columns]
    own += ["study_id"] if any(ranking.of_grids or ranking.constraints for ranking in rankings) else []
    own += [constraint.column for ranking in rankings for constraint in ranking.constraints]
    return tuple(dict.fromkeys((*ALWAYS, *names, *(f"{VALIDATION}{name}" for name in names), *own)))


def columns_ranked(plan: Plan) -> tuple[str, ...]:
    """The columns of rows that `best_of_request` and `without_result` read."""
    return (*columns_of(rankings_of(plan)), *settings_of(plan).columns)


def rankings_of(plan: Plan) -> list[CellRanking]:
    """The rankings by which the best trials of a plan are chosen while it runs: any setting may still become the best,
    so each has one. Without replicates there is one for each data set."""
    of_proposals = ("study_id", "number") if _replicated(plan) else ("study_id",)
    bounds = _of_single_trials(plan)
    of_studies = [CellRanking(metric, of_proposals, constraints=bounds) for metric in _objectives(plan)]
    if not plan.sweep.grids(plan.preset):
        return [*of_studies, *_of_figures(plan.sweep, bounds)]
    settings = [key for key in varying_keys(plan) if key not in plan.sweep.repeats.names]
    repeated = any(key in plan.sweep.repeats.names for key in varying_keys(plan))
    columns = settings if repeated else [key for key in settings if key in QUESTIONS]
    of_settings = CellRanking(plan.headline, tuple(columns), of_grids=bool(of_studies))
    return list(dict.fromkeys([of_settings, *of_studies, *_of_figures(plan.sweep, bounds)]))


def best_of_request(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The best trials by the rows of a request. Once all trials of the request have a result, of the settings only the
    best one of each data set has one, and so has the best proposal of each study. As long as one has failed or has no
    row, the next run may make any setting the best, so each has one."""
    objectives, replicated = _objectives(plan), _replicated(plan)
    bounds = _of_single_trials(plan)
    of_studies = [] if replicated else [CellRanking(metric, ("study_id",), constraints=bounds) for metric in objectives]
    of_settings = rankings_of(plan) if without_result(plan, rows) else []
    best = best_of_cells([*of_studies, *_of_figures(plan.sweep, bounds), *of_settings], rows)
    grids = bool(plan.sweep.grids(plan.preset))
    if not grids and not replicated:
        return best
    settings = settings_of(plan)
    settings.add(rows)
    ranked = [*([plan.headline] if grids else []), *(objectives if replicated else [])]
    return best | {next(iter(found.values)) for metric in ranked for found in settings.best(metric)}


def without_result(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The trials of a request that have failed or have no row, by the rows of the request, and all of its studies where
    some of their trials are not known yet."""
    ended = {row["trial_id"] for row in rows if row["status"] != "failed"}
    left = {trial for trial in plan.request_rows.trials if trial not in ended}
    return frozenset(left.union(plan.request_rows.studies) if left or len(ended) < plan.total else left)


def _objectives(plan: Plan) -> tuple[Metric, ...]:
    """The objectives of the plan's studies, of which a grid with a pruner has one, too."""
    of_studies = (metric for study_run in plan.study_runs for metric in study_run.study.search.objectives)
    return tuple(dict.fromkeys((*plan.sweep.objectives(plan.preset), *of_studies)))


def _replicated(plan: Plan) -> bool:
    """Whether a study's proposals are several trials each."""
    return any(study_run.study.search.replicates for study_run in plan.study_runs)


def _of_single_trials(plan: Plan) -> tuple[Constraint, ...]:
    """The constraints that decide whether a single trial may be best: none where its proposal has others, too."""
    return () if _replicated(plan) else plan.sweep.constraints(plan.preset)


def settings_of(plan: Plan) -> Settings:
    """The settings of a plan, without any rows yet. The number of a study's trial tells it apart from the others."""
    from sweeper.results.best import Settings  # here: it imports pandas

    names = plan.sweep.naming(plan.preset) if plan.sweep.objectives(plan.preset) else ()
    constraints = plan.sweep.constraints(plan.preset)
    return Settings((*varying_keys(plan), *names, "dataset"), plan.sweep.repeats, constraints)


def varying_keys(plan: Plan) -> list[str]:
    """The hyperparameters that differ between trials of the plan, or of its preset: a plan that narrows the preset is
    judged together with the other trials of its request."""
    configs = [trial.config for trial in plan.trials]
    common = dict(set(configs[0].items()).intersection(*(config.items() for config in configs))) if configs else {}
    differing = [key for key in dict.fromkeys(itertools.chain.from_iterable(configs)) if key not in common]
    parts = plan.sweep.parts(plan.preset)
    keys = dict.fromkeys(key for part in parts for key in (*part.fixed, *part.axes, *part.replicates))
    in_preset = {key: {part.values(key) for part in parts} for key in keys}
    varying = (key for key, tried in in_preset.items() if len(tried) > 1 or any(len(values) > 1 for values in tried))
    return list(dict.fromkeys((*differing, *varying)))


def _of_figures(sweep: Sweep, constraints: tuple[Constraint, ...]) -> list[CellRanking]:
    """A ranking for each set of hyperparameters that place trials in cells, by that of the first figure with these:
    several heatmaps over the same axes would keep a trial each of every cell."""
    by_axes: dict[tuple[str, ...], Metric] = {}
    for figure in sweep.figures:
        if figure.ranking and figure.ranking.direction:
            by_axes.setdefault(figure.hyperparameters, figure.ranking)
    return [CellRanking(metric, axes, constraints=constraints) for axes, metric in by_axes.items()]


def _is_met(constraint: Constraint, row: Mapping[str, Any]) -> bool:
    value = _plain(row.get(constraint.column))
    return is_finite(value) and constraint.violation(value) <= 0


def _plain(value: Any) -> Any:
    """The value with NaN, as pandas has nulls, replaced by None."""
    return None if isinstance(value, float) and math.isnan(value) else value
