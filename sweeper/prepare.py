"""A request -> a plan, checked in all that can be known before anything starts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

from sweeper import cohorts, spec
from sweeper.command import Request
from sweeper.plan import Plan
from sweeper.schema import Columns
from sweeper.spec import Grid, SpecError, Sweep
from sweeper.store import Store
from sweeper.trials import Trial, enumerate_trials
from trainables import config, preflight
from trainables.data.datasets import DataError
from trainables.streams import stream_key
from trainables.train import metric_names


def prepare(request: Request, store: Store) -> tuple[Plan, Columns]:
    """What is to run and the columns of its rows. SpecError or StoreError, one line, where it cannot run."""
    name = str(request.name)
    sweep = spec.find(name)
    preset, grid = sweep.preset(request.preset)
    trials = enumerate_trials(
        _changed(grid, request).combinations(), lambda combination: config.resolve(combination).flat()
    )
    configs = {trial.id: config.resolve(trial.config) for trial in trials}
    metrics = tuple(dict.fromkeys(metric for one in configs.values() for metric in metric_names(one)))
    _check_shown(sweep, metrics, configs[trials[0].id].flat())
    try:
        steps = dict(zip(configs, preflight.steps_of(list(configs.values()), Path(request.data)), strict=True))
    except (DataError, ValueError) as error:
        raise SpecError(str(error)) from error

    def shape(trial: Trial) -> Hashable:
        free = config.fusible(str(trial.config["method"]))
        return (steps[trial.id], *((key, value) for key, value in trial.config.items() if key not in free))

    groups = cohorts.group(trials, shape, lambda trial: stream_key(configs[trial.id]))
    firsts = [group[0][0].id for group in groups]
    plan = Plan(
        name=name,
        preset=preset,
        sweep=sweep,
        trials=trials,
        groups=groups,
        steps=[configs[first].training.epochs * steps[first] for first in firsts],
        statuses={} if request.fresh else store.statuses(name),
    )
    types = {key: kind for one in configs.values() for key, kind in config.keys(one.method).items()}
    return plan, Columns(types, metrics)


def _changed(grid: Grid, request: Request) -> Grid:
    """The grid with what the command line sets and varies."""
    try:
        fixed = {key: config.parse(key, text) for key, text in request.fixed.items()}
        axes = {key: tuple(config.parse(key, text) for text in texts) for key, texts in request.axes.items()}
    except ValueError as error:
        raise SpecError(str(error)) from error
    return grid.changed(fixed, axes)


def _check_shown(sweep: Sweep, metrics: Sequence[str], keys: dict[str, spec.Value]) -> None:
    """SpecError where the sweep would show a metric that its trials do not report, or an axis that they do not have."""
    for heatmap in sweep.heatmaps:
        if heatmap.metric.name not in metrics:
            raise SpecError(f"these trials do not report {heatmap.metric.name}; they report: {', '.join(metrics)}")
        for axis in (heatmap.rows, heatmap.columns):
            if axis not in keys:
                raise SpecError(f"these trials have no {axis} to show a heatmap over")
