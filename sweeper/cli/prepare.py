"""Turn a request into a plan, and check all that can be checked before anything starts."""

import contextlib
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from sweeper.cli.own_images import with_own_images
from sweeper.plan import changes, cohorts
from sweeper.plan.best_trials import missing_models
from sweeper.plan.changes import Changes, expected_values
from sweeper.plan.cohorts import Trial, content_hash, enumerate_trials
from sweeper.plan.plan import GridPlan, Plan
from sweeper.request import Request, SearchOptions, Text
from sweeper.spec import Grid, Grids, Metric, Search, Searches, Space, SpecError, Sweep, Value, registry
from sweeper.spec.pruners import Halving
from sweeper.spec.space import bounds
from sweeper.spec.sweep import subspaces
from sweeper.spec.user_code import search_folder
from sweeper.storage.requests import RequestRows
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from trainables import config
from trainables.catalog import import_method, known_methods
from trainables.config import stream_key
from trainables.data.errors import DataError
from trainables.sections import TrialConfig
from trainables.training import checks
from trainables.training.metric_names import methods_by_metric
from trainables.validation import nearest

FIRST_RUNG_DIVISOR = 9
"""First rung of a pruner requested with `--pruner` for a search that defines none: `epochs // FIRST_RUNG_DIVISOR`."""

S = TypeVar("S", bound=Space)
"""A grid or a search, or several."""
OF_EVERY_ROW = ("seconds", "device_seconds", "epochs_run")
"""Numeric columns that every row has in addition to its metrics."""


def prepare(request: Request, store: Store) -> tuple[Plan, Columns]:
    """Return the plan of a request and the columns of its rows.

    Raises SpecError or StoreError, with a message of one line, if it cannot run.
    """
    sweep = request.sweep or registry.find(request.name)
    preset, preset_space = sweep.preset(request.preset)
    try:
        return _prepared(request, store, sweep.for_preset(preset), preset, preset_space)
    except SpecError as error:
        raise SpecError(explain_preset_keys(str(error), request, preset, preset_space)) from error.__cause__ or error


def _prepared(request: Request, store: Store, sweep: Sweep, preset: str, preset_space: Space) -> tuple[Plan, Columns]:
    """As `prepare`, for a sweep reduced to one preset. `preset_space` does not have the request's changes yet."""
    _load_methods(preset_space, request)
    own = with_own_images(request, preset_space)
    request, preset_space = own.request, own.space
    name, space = sweep.name or request.name, _changed(preset_space, request, own.classes)
    if isinstance(space, Search | Searches):
        from sweeper.search import prepare as studies  # here: it imports Optuna

        assert isinstance(preset_space, Search | Searches)
        search = _with_options(space, request.search)
        changed = changes.request_changes(request, preset, preset_space, search, config.defaults)
        whole_search = _without_narrowing(request, preset_space, changed, own.classes, search)
        search_plan, columns = studies.prepare(request, store, name, sweep, preset_space, search, whole_search, changed)
        return replace(search_plan, notes=(*filter(None, [own.note]), *search_plan.notes)), columns
    assert isinstance(preset_space, Grid | Grids)
    if request.warm_start or request.search != SearchOptions():
        raise SpecError(f"{name} ({preset}) is a grid, and takes no options of searches")
    resolved: list[TrialConfig] = []  # kept, because resolving all trials again would take as long again

    def complete(combination: Mapping[str, Value]) -> Mapping[str, Value]:
        resolved.append(config.resolve(combination))
        return resolved[-1].flat()

    changed = changes.request_changes(request, preset, preset_space, space, config.defaults)
    changes_of_trial = changes.trial_changes(request, preset_space, config.defaults)
    trials = enumerate_trials(
        space.combinations(), complete, lambda config: {"preset": preset, "changes": changes_of_trial(config)}
    )
    configs = {trial.id: trial_config for trial, trial_config in zip(trials, resolved, strict=True)}
    types = config.column_types(resolved)
    fusible = {method: config.fusible_keys(method) for method in {trial_config.method for trial_config in resolved}}
    try:
        checked = checks.check_trials(list(configs.values()), request.data_folder)
    except (DataError, ValueError) as error:
        raise SpecError(str(error)) from error
    preflight_results = dict(zip(configs, checked, strict=True))
    metrics = tuple(dict.fromkeys(metric for result in preflight_results.values() for metric in result.metrics))
    _check_shown(sweep, sweep.headline(preset), metrics, types)

    def shape(trial: Trial) -> Hashable:
        ignored = fusible[str(trial.config["method"])]
        return (preflight_results[trial.id].steps, *(item for item in trial.config.items() if item[0] not in ignored))

    whole = _without_narrowing(request, preset_space, changed, own.classes, space)
    whole_configs = {trial.id: trial.config for trial in trials} if whole == space else _legal_trials(whole)
    request_rows = RequestRows(changed.name, preset, "trial_id", list(whole_configs))
    statuses = {} if request.fresh else store.statuses(name)
    earlier = None
    if not statuses.keys() <= whole_configs.keys():
        of_trials = {str(trial.facts["changes"]) for trial in trials}
        expected = expected_values(whole_configs.values())
        earlier = changes.note_on_earlier_rows(store, name, request_rows, changed, of_trials, expected)
    longer = changes.longer_trials(preset_space, (trial.config for trial in trials), changed)
    groups = cohorts.group(trials, shape, lambda trial: stream_key(configs[trial.id]))
    first_ids = [group[0][0].id for group in groups]
    unsized = (str(trial.config["dataset"]) for trial in trials if not preflight_results[trial.id].size_known)
    plan = GridPlan(
        name=name,
        preset=preset,
        sweep=sweep,
        trials=trials,
        groups=groups,
        steps=[configs[first_id].training.epochs * preflight_results[first_id].steps for first_id in first_ids],
        statuses=statuses,
        space=space,
        unsized=tuple(dict.fromkeys(unsized)),
        changes=changed,
        whole=request_rows,
        notes=(*filter(None, [own.note, earlier, longer]), *checks.stacking_notes(list(configs.values()), checked)),
    )
    return _without_unwritten_models(plan, store, request), Columns(types, metrics)


def _without_unwritten_models(plan: GridPlan, store: Store, request: Request) -> GridPlan:
    """The plan without the results of trials whose model is to be kept but could not be written."""
    missing = frozenset() if request.fresh else missing_models(store.files, plan, request.keep) & plan.statuses.keys()
    if not missing:
        return plan
    statuses = {trial: status for trial, status in plan.statuses.items() if trial not in missing}
    note = f"{len(missing)} trials have a row, but their model could not be written; they are trained again"
    return replace(plan, statuses=statuses, without_model=missing, notes=(*plan.notes, note))


def _changed(space: Space, request: Request, classes: Sequence[str]) -> Space:
    """The preset's space with the changes of `--set` and `--axis`. `classes` are names that `normal_class` can have."""

    def value_of(key: str, value: Value) -> Value:
        return config.parse(key, value, classes) if isinstance(value, Text) else config.check(key, value, classes)

    try:
        fixed = {key: value_of(key, value) for key, value in request.fixed.items()}
        axes = {key: tuple(value_of(key, value) for value in values) for key, values in request.axes.items()}
    except ValueError as error:
        raise SpecError(str(error)) from None
    return space.changed(fixed, axes) if isinstance(space, Grid | Search) else space.changed(fixed, axes, config.keys)


def _without_narrowing(request: Request, preset_space: Space, changed: Changes, classes: Sequence[str], own: S) -> S:
    """The space of a request without its narrowing, of which its `own` space is a part."""
    wider = changed.without_narrowing(request)
    if (wider.fixed, wider.axes) == (request.fixed, request.axes):
        return own
    try:
        space = _changed(preset_space, wider, classes)
        return cast(S, _with_options(space, request.search) if isinstance(space, Search | Searches) else space)
    except (SpecError, ValueError):  # what the request changes is legal in its part of the preset alone
        return own


def _legal_trials(space: Grid | Grids) -> dict[str, Mapping[str, Value]]:
    """Id -> config of the trials of a space, without those that are illegal."""
    trials: dict[str, Mapping[str, Value]] = {}
    for combination in space.combinations():
        with contextlib.suppress(ValueError):
            trial_config = config.resolve(combination).flat()
            trials[content_hash(trial_config)] = trial_config
    return trials


def _load_methods(space: Space, request: Request) -> None:
    """Import the methods of the user, whose keys the request may change. Raises SpecError for one that is none."""
    values = [value for part in subspaces(space) for value in part.values("method")]
    names = list(map(str, filter(None, [*values, request.fixed.get("method"), *request.axes.get("method", ())])))
    if any(":" in name for name in names):
        search_folder(Path.cwd())
    try:
        for name in names:
            import_method(name)
    except ValueError as error:
        raise SpecError(str(error)) from None


def _with_options(space: Search | Searches, options: SearchOptions) -> Search | Searches:
    """The search or searches with the command line's options, such as `--sampler`."""
    if isinstance(space, Searches):
        return Searches(tuple(_search_with_options(search, options) for search in space.searches))
    return _search_with_options(space, options)


def _search_with_options(search: Search, options: SearchOptions) -> Search:
    values = {"trials": options.trials, "wave": options.wave, "sampler": options.sampler, "seed": options.seed}
    changes: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if options.pruner == "none":
        changes["pruner"] = None
    elif options.pruner:
        lowest = {key: bounds(distribution)[0] for key, distribution in search.space.items()}
        epochs = config.resolve(lowest | dict(search.fixed)).training.epochs
        pruner = search.pruner or Halving(first=max(1, epochs // FIRST_RUNG_DIVISOR))
        changes["pruner"] = replace(pruner, brackets=1 if options.pruner == "halving" else max(2, pruner.brackets))
    return replace(search, **changes)


def _check_shown(sweep: Sweep, headline: Metric, metrics: Collection[str], keys: Collection[str]) -> None:
    """Raise SpecError if the trials do not report the headline or a heatmap's metric, or lack a heatmap's axis.

    Other views may name metrics that only other trials report, for example of a method with a posterior. A selection
    may name keys that only other methods have, whose trials a narrowed request leaves out.
    """
    for metric in (headline, *(heatmap.metric for heatmap in sweep.heatmaps)):
        if metric.name not in metrics:
            raise SpecError(f"these trials do not report {metric.name}; they report: {', '.join(metrics)}")
    known = methods_by_metric()
    for name in (*sweep.axes_by_metric, *(metric for pair in sweep.correlations for metric in pair)):
        if name not in (*metrics, *OF_EVERY_ROW) and name not in known:
            raise SpecError(
                f"no method reports {name}{nearest(name, known)}; these trials report: {', '.join(metrics)}"
            )
    selectable = {*keys, *(key for method in known_methods() for key in config.keys(method))}
    for heatmap in sweep.heatmaps:
        selecting = {key for selection in heatmap.selections for key in selection.where}
        for axis in heatmap.hyperparameters:
            if axis not in (selectable if axis in selecting else keys):
                raise SpecError(f"a heatmap of {heatmap.metric.name} needs the axis {axis}, which these trials lack")


def explain_preset_keys(error: str, request: Request, preset: str, space: Space) -> str:
    """Add ` (KEY is set by preset 'NAME')` to an error, for the keys it names that the preset alone sets.

    Only the part before the first semicolon counts, because a list of choices may follow it.
    """
    head, semicolon, rest = error.partition("; ")
    statement = re.sub(r"\(did you mean [^)]*\)", "", head)
    words = {part for word in statement.split() if "/" not in word for part in re.findall(r"\w+", word)}  # no paths
    keys = sorted((words & _preset_keys(space)) - {"method"} - set(request.fixed) - set(request.axes))
    if not keys:
        return error
    verb = "are" if len(keys) > 1 else "is"
    return f"{head} ({' and '.join(keys)} {verb} set by preset '{preset}'){semicolon}{rest}"


def _preset_keys(space: Space) -> set[str]:
    if isinstance(space, Grids):
        return {key for grid in space.grids for key in _preset_keys(grid)}
    if isinstance(space, Searches):
        return {key for search in space.searches for key in _preset_keys(search)}
    return {*space.fixed, *space.axes, *(space.space if isinstance(space, Search) else ())}
