"""A request -> a plan, checked in all that can be known before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from typing import Any

from sweeper.cli.preset_keys import explained
from sweeper.plan import changes, cohorts
from sweeper.plan.plan import GridPlan, Plan
from sweeper.plan.trials import Trial, enumerate_trials
from sweeper.spec import Grid, Grids, Metric, Search, Searches, Space, SpecError, Sweep, Value, registry
from sweeper.spec.request import Request, SearchWords
from sweeper.spec.schedulers import Halving
from sweeper.spec.search import bounds
from sweeper.storage.schema import Columns
from sweeper.storage.store import Store
from trainables.config import trial as config
from trainables.config.trial import TrialConfig
from trainables.data.datasets import DataError
from trainables.learners.streams import stream_key
from trainables.training import preflight
from trainables.training.reported import reported_by
from trainables.validation import nearest

FIRST_SHARE = 9
"""Where a search has no pruner of its own and is asked for one, its first rung is at the epochs by this."""

OF_EVERY_ROW = ("seconds", "epochs_run")
"""Numbers that every row has beside its metrics."""


def prepare(request: Request, store: Store) -> tuple[Plan, Columns]:
    """What is to run and the columns of its rows. SpecError or StoreError, one line, where it cannot run."""
    whole = registry.find(str(request.name))
    preset, space = whole.preset(request.preset)
    try:
        return _prepared(request, store, whole.of(preset), preset, space)
    except SpecError as error:
        raise SpecError(explained(str(error), request, preset, space)) from error.__cause__ or error


def _prepared(request: Request, store: Store, sweep: Sweep, preset: str, own: Space) -> tuple[Plan, Columns]:
    """As `prepare`; `own` is the preset's space, which the request may change."""
    name, space = str(request.name), _changed(own, request)
    if isinstance(space, Search | Searches):
        from sweeper.search import prepare as studies  # here: it imports Optuna

        assert isinstance(own, Search | Searches)
        return studies.prepare(request, store, name, preset, sweep, own, _worded(space, request.search))
    assert isinstance(own, Grid | Grids)
    if request.warm_start or request.search != SearchWords():
        raise SpecError(f"{name} ({preset}) is a grid, so options of searches do not go with it")
    resolved: list[TrialConfig] = []  # as they are enumerated: a second time costs as much again

    def complete(combination: Mapping[str, Value]) -> Mapping[str, Value]:
        resolved.append(config.resolve(combination))
        return resolved[-1].flat()

    changed = changes.of_grid(request, own, config.defaults)
    trials = enumerate_trials(
        space.combinations(), complete, lambda config: {"preset": preset, "changes": changed(config)}
    )
    configs = {trial.id: one for trial, one in zip(trials, resolved, strict=True)}
    methods = dict.fromkeys(one.method for one in configs.values())
    types = {key: kind for method in methods for key, kind in config.keys(method).items()}
    free = {method: config.fusible(method) for method in methods}
    try:
        prospects = dict(zip(configs, preflight.prospects(list(configs.values()), request.data_read), strict=True))
    except (DataError, ValueError) as error:
        raise SpecError(str(error)) from error
    metrics = tuple(dict.fromkeys(metric for one in prospects.values() for metric in one.metrics))
    _check_shown(sweep, sweep.headline(preset), metrics, types)

    def shape(trial: Trial) -> Hashable:
        but = free[str(trial.config["method"])]
        return (prospects[trial.id].steps, *(item for item in trial.config.items() if item[0] not in but))

    groups = cohorts.group(trials, shape, lambda trial: stream_key(configs[trial.id]))
    firsts = [group[0][0].id for group in groups]
    plan = GridPlan(
        name=name,
        preset=preset,
        sweep=sweep,
        trials=trials,
        groups=groups,
        steps=[configs[first].training.epochs * prospects[first].steps for first in firsts],
        statuses={} if request.fresh else store.statuses(name),
        space=space,
        unsized=tuple(dict.fromkeys(one.data.dataset for trial, one in configs.items() if not prospects[trial].sized)),
        changes=changes.changes_of(request, preset, own, space, config.defaults),
    )
    return plan, Columns(types, metrics)


def _changed(space: Space, request: Request) -> Space:
    """The preset with what the command line sets and varies."""
    try:
        fixed = {key: config.parse(key, text) for key, text in request.fixed.items()}
        axes = {key: tuple(config.parse(key, text) for text in texts) for key, texts in request.axes.items()}
    except ValueError as error:
        raise SpecError(str(error)) from error
    return space.changed(fixed, axes) if isinstance(space, Grid | Search) else space.changed(fixed, axes, config.keys)


def _worded(space: Search | Searches, words: SearchWords) -> Search | Searches:
    """The search with what the command line says of it."""
    if isinstance(space, Searches):
        return Searches(tuple(_with(search, words) for search in space.searches))
    return _with(space, words)


def _with(search: Search, words: SearchWords) -> Search:
    named = {"trials": words.trials, "wave": words.wave, "sampler": words.sampler, "seed": words.seed}
    changes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if words.pruner == "none":
        changes["pruner"] = None
    elif words.pruner:
        epochs = config.resolve(
            {key: bounds(one)[0] for key, one in search.space.items()} | dict(search.fixed)
        ).training.epochs
        pruner = search.pruner or Halving(first=max(1, epochs // FIRST_SHARE))
        changes["pruner"] = replace(pruner, brackets=1 if words.pruner == "halving" else max(2, pruner.brackets))
    return replace(search, **changes)


def _check_shown(sweep: Sweep, headline: Metric, metrics: Collection[str], keys: Collection[str]) -> None:
    """SpecError where trials do not report the metric that says which is best, or lack what a heatmap shows.

    Tables and trajectories do without what these trials lack: a method may have no posterior, a data set few classes.
    A metric that no trial of any method reports is refused there, too.
    """
    for metric in (headline, *(heatmap.metric for heatmap in sweep.heatmaps)):
        if metric.name not in metrics:
            raise SpecError(f"these trials do not report {metric.name}; they report: {', '.join(metrics)}")
    for name in (*sweep.shown, *(metric for pair in sweep.correlations for metric in pair)):
        if name not in (*metrics, *OF_EVERY_ROW) and name not in reported_by():
            raise SpecError(
                f"no method reports {name}{nearest(name, reported_by())}; these trials report: {', '.join(metrics)}"
            )
    for heatmap in sweep.heatmaps:
        for axis in (heatmap.rows, heatmap.columns):
            if axis not in keys:
                raise SpecError(f"these trials have no {axis} to show {heatmap.metric.name} over")
