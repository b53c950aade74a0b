"""A request -> a plan, checked in all that can be known before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from pathlib import Path

from sweeper import cohorts, spec
from sweeper.command import Request
from sweeper.plan import Plan
from sweeper.schema import Columns
from sweeper.spec import Grid, Space, SpecError, Sweep
from sweeper.store import Store
from sweeper.trials import Trial, enumerate_trials
from trainables import config, preflight
from trainables.data.datasets import DataError
from trainables.streams import stream_key


def prepare(request: Request, store: Store) -> tuple[Plan, Columns]:
    """What is to run and the columns of its rows. SpecError or StoreError, one line, where it cannot run."""
    name = str(request.name)
    whole = spec.find(name)
    preset, space = whole.preset(request.preset)
    sweep = whole.of(preset)
    trials = enumerate_trials(
        _changed(space, request).combinations(), lambda combination: config.resolve(combination).flat()
    )
    configs = {trial.id: config.resolve(trial.config) for trial in trials}
    types = {key: kind for one in configs.values() for key, kind in config.keys(one.method).items()}
    try:
        prospects = dict(zip(configs, preflight.prospects(list(configs.values()), Path(request.data)), strict=True))
    except (DataError, ValueError) as error:
        raise SpecError(str(error)) from error
    metrics = tuple(dict.fromkeys(metric for one in prospects.values() for metric in one.metrics))
    _check_shown(sweep, metrics, types)

    def shape(trial: Trial) -> Hashable:
        free = config.fusible(str(trial.config["method"]))
        return (prospects[trial.id].steps, *((key, value) for key, value in trial.config.items() if key not in free))

    groups = cohorts.group(trials, shape, lambda trial: stream_key(configs[trial.id]))
    firsts = [group[0][0].id for group in groups]
    plan = Plan(
        name=name,
        preset=preset,
        sweep=sweep,
        trials=trials,
        groups=groups,
        steps=[configs[first].training.epochs * prospects[first].steps for first in firsts],
        statuses={} if request.fresh else store.statuses(name),
    )
    return plan, Columns(types, metrics)


def _changed(space: Space, request: Request) -> Space:
    """The preset with what the command line sets and varies."""
    try:
        fixed = {key: config.parse(key, text) for key, text in request.fixed.items()}
        axes = {key: tuple(config.parse(key, text) for text in texts) for key, texts in request.axes.items()}
    except ValueError as error:
        raise SpecError(str(error)) from error
    return space.changed(fixed, axes) if isinstance(space, Grid) else space.changed(fixed, axes, config.keys)


def _check_shown(sweep: Sweep, metrics: Collection[str], keys: Collection[str]) -> None:
    """SpecError where trials do not report the metric that says which is best, or lack what a heatmap shows.

    Tables and trajectories do without what these trials lack: a method may have no posterior, a data set few classes.
    """
    for metric in (sweep.headline, *(heatmap.metric for heatmap in sweep.heatmaps)):
        if metric.name not in metrics:
            raise SpecError(f"these trials do not report {metric.name}; they report: {', '.join(metrics)}")
    for heatmap in sweep.heatmaps:
        for axis in (heatmap.rows, heatmap.columns):
            if axis not in keys:
                raise SpecError(f"these trials have no {axis} to show {heatmap.metric.name} over")
