"""Turn a request into a plan, and check all that can be checked before anything starts."""

import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeper.definition import Grid, Metric, Space, SpecError, Sweep, Value
from sweeper.definition.metric import OF_EVERY_ROW
from sweeper.definition.pruners import Halving, Pruner
from sweeper.definition.ranges import advice
from sweeper.definition.space import (
    EPOCHS,
    SEED,
    Part,
    Study,
    bounds,
    change_space,
    parts_of,
    replicate_space,
    studies_of,
)
from sweeper.definition.user_code import search_folder
from sweeper.option_values import Order, Text
from sweeper.planning import changes, cohorts
from sweeper.planning.changes import DIGEST, Changes
from sweeper.planning.cohorts import Group, Trial, enumerate_trials, trial_id
from sweeper.planning.keep import epoch_metric, missing_models
from sweeper.planning.plan import Plan
from sweeper.request import Request
from sweeper.search import studies
from sweeper.storage.requests import RequestRows
from sweeper.storage.rows import FIXED, STUDY_COLUMNS, Columns
from sweeper.storage.store import Store
from trainables import config
from trainables.catalog import import_method, is_function, known_methods, method_of
from trainables.config import stream_key
from trainables.data.datasets.class_folders import FOLDER, list_folder
from trainables.data.datasets.dataset import ImageListing
from trainables.data.datasets.own_data import is_own_data, list_own_data
from trainables.data.errors import DataError
from trainables.functions.command import is_command
from trainables.functions.method import FunctionMethod
from trainables.metrics.roc import check_alarm_rate
from trainables.own_code import KINDS, import_own
from trainables.sections import TrialConfig
from trainables.training import checks
from trainables.training.checks import PreflightResult
from trainables.training.metric_names import methods_by_metric
from trainables.validation import is_own, nearest

FIRST_RUNG_DIVISOR = 9
"""First rung of a pruner requested with `--pruner`, for a search without a halving: `epochs // FIRST_RUNG_DIVISOR`."""

PATIENCE, PATIENCE_METRIC = "patience", "patience_metric"


def prepare(request: Request, store: Store) -> tuple[Plan, Columns]:
    """Return the plan of a request and the columns of its rows.

    Raises SpecError or StoreError, with a message of one line, if it cannot run.
    """
    sweep = request.find_sweep()
    preset, preset_space = sweep.preset(request.preset)
    try:
        return _prepared(_asked(request, sweep.for_preset(preset), preset, preset_space), store)
    except SpecError as error:
        raise SpecError(explain_preset_keys(str(error), request, preset, preset_space)) from error.__cause__ or error


def with_replicates(
    request: Request, store: Store, plan: Plan, name: str, configs: Sequence[Mapping[str, Value]], now: int
) -> Plan:
    """Return the plan of the request `name`: a plan of grids with further replicates, whose complete `configs` differ
    from those of its trials in the seed. The first `now` of them are to be trained. Raises SpecError."""
    asked = _asked(request, plan.sweep, *plan.sweep.preset(plan.preset))
    fixed = {key: value for key, value in request.fixed.items() if key != SEED}
    seeded = replace(request, fixed=fixed, axes={**request.axes, SEED: (0,)})  # facts depend on which keys change
    changes_of = changes.trial_changes(seeded, asked.preset_space, config.defaults)
    trial_configs = [config.resolve(each) for each in configs]
    resolved = iter(trial_configs)
    trials = enumerate_trials(
        configs, lambda _: next(resolved), lambda each: {"preset": asked.preset, "changes": changes_of(each)}
    )
    results = checks.check_trials(trial_configs, asked.request.data_folder)
    groups, steps = _groups(trials[:now], trial_configs[:now], results[:now])
    statuses = store.statuses(plan.name)
    return replace(
        plan,
        grid_trials=(*plan.grid_trials, *trials),
        groups=groups,
        steps=steps,
        grid_statuses={trial.id: statuses[trial.id] for trial in (*plan.grid_trials, *trials) if trial.id in statuses},
        whole=RequestRows(name, plan.preset, [*plan.request_rows.trials, *(trial.id for trial in trials)]),
    )


@dataclass(frozen=True)
class _Asked:
    """A request, and what it asks for."""

    request: Request
    name: str
    """The sweep's name in the store."""
    sweep: Sweep
    """Reduced to the preset."""
    preset: str
    preset_space: Space
    """The preset without the request's changes."""
    space: Space
    whole: Space
    """The space of the request without its narrowing, of which `space` is a part."""
    changed: Changes
    note: str
    """One line on the user's own images; empty without them."""

    def of_trial(self) -> Callable[[Mapping[str, Value]], Mapping[str, Value]]:
        """Return a function from the complete config of a grid's trial to the further columns of its row."""
        changes_of = changes.trial_changes(self.request, self.preset_space, config.defaults)
        return lambda trial_config: {"preset": self.preset, "changes": changes_of(trial_config)}

    def of_study(self, study: Study) -> Mapping[str, Value]:
        """The further columns of the rows of a study."""
        changed = self.changed.text
        if not study.search.given:
            changed = changes.study_changes(self.request, self.preset_space, study, config.defaults)
        return {"preset": self.preset, "changes": changed}


def _asked(request: Request, sweep: Sweep, preset: str, preset_space: Space) -> _Asked:
    _load_own_code(preset_space, request)
    own = with_own_images(request, preset_space)
    request, preset_space, name = own.request, own.space, sweep.name or request.name
    request = _with_patience_metric(request, sweep, preset, preset_space)
    space = _changed(preset_space, request, own.classes)
    settings = (request.trials, request.wave, request.sampler, request.search_seed)
    of_searches = request.warm_start or request.replicates or any(setting is not None for setting in settings)
    if of_searches and not any(part.searched for part in parts_of(space)):
        raise SpecError(f"{name} ({preset}) is a grid, and takes no options of searches but --pruner")
    if request.order != Order() and not any(isinstance(part, Grid) for part in parts_of(space)):
        raise SpecError(f"{name} ({preset}) is a search, whose sampler orders its trials; --order is for grids")
    space = _with_options(space, request)
    if request.order != Order() and any(isinstance(part, Grid) and part.pruner for part in parts_of(space)):
        raise SpecError("a pruner compares the settings of a grid in their order, so --order must not change it")
    changed = changes.request_changes(request, preset, preset_space, space, config.defaults)
    whole = _without_narrowing(request, preset_space, changed, own.classes, space)
    space, whole = (_compared(each, sweep, preset) for each in (space, whole))
    return _Asked(request, name, sweep, preset, preset_space, space, whole, changed, own.note)


def _compared(space: Space, sweep: Sweep, preset: str) -> Space:
    """The space with its grids that have a pruner as the searches that they are trained as. Raises SpecError."""
    grids = [part for part in parts_of(space) if isinstance(part, Grid) and part.pruner]
    if not grids:
        return space
    of_images = epoch_metric(sweep, preset, "a pruner")
    for combination in (combination for grid in grids for combination in grid.combinations()):
        try:
            config.resolve(combination)
        except ValueError as error:
            raise SpecError(str(error)) from None

    def metric_of(grid: Grid) -> Metric:
        """The metric that its trials are compared by. A function reports no other beside the one that ranks them."""
        functions = all(map(is_function, map(str, grid.values("method"))))
        return sweep.headline(preset) if functions else of_images

    parts = tuple(part.compared(metric_of(part)) if part in grids else part for part in parts_of(space))
    if not isinstance(space, tuple):
        return parts[0]
    names = [study.name for study in studies_of(parts)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SpecError(f"a pruner needs grids that differ in their method, but two have {twice[0]}; narrow the preset")
    return parts


def _with_patience_metric(request: Request, sweep: Sweep, preset: str, space: Space) -> Request:
    """The request with the metric that its patience waits for, if it asks for patience: that which ranks trials, unless
    the request or the preset names one. Raises SpecError."""
    if any(is_function(str(method)) for part in parts_of(space) for method in part.values("method")):
        return request  # its patience waits for the metric that ranks trials
    asked = (request.fixed.get(PATIENCE, 0), *request.axes.get(PATIENCE, ()))
    named = {*request.fixed, *request.axes, *(key for part in parts_of(space) for key in (*part.fixed, *part.axes))}
    if PATIENCE_METRIC in named or not any(str(value) != "0" for value in asked):
        return request
    metric = epoch_metric(sweep, preset, PATIENCE)
    return replace(request, fixed={**request.fixed, PATIENCE_METRIC: metric.name})


def _prepared(asked: _Asked, store: Store) -> tuple[Plan, Columns]:
    trial_configs: list[TrialConfig] = []  # kept, because resolving all trials again would take as long again

    def resolve(combination: Mapping[str, Value]) -> TrialConfig:
        trial_configs.append(config.resolve(combination))
        return trial_configs[-1]

    combinations = (combination for part in parts_of(asked.space) for combination in part.combinations())
    trials = enumerate_trials(combinations, resolve, asked.of_trial())
    own_studies = list(studies_of(asked.space))
    corners = [studies.corners(study) for study in own_studies]
    configs = [*trial_configs, *itertools.chain(*corners)]
    try:
        results = checks.check_trials(configs, asked.request.data_folder)
    except (DataError, ValueError) as error:
        raise SpecError(str(error)) from error
    _check_alarm_rate(asked.request.alarm_rate, results)
    if any(result.any_metric for result in results):
        _check_functions(asked.request, configs)
    if asked.request.keep.best_epoch:
        metric = epoch_metric(asked.sweep, asked.preset, "--keep best-epoch")
        _check_epochs("--keep best-epoch ranks the epochs of a trial", metric.name, configs, results)
    of_corners = iter(results[len(trials) :])
    for study, own_corners in zip(own_studies, corners, strict=True):
        own_results = list(itertools.islice(of_corners, len(own_corners)))
        if study.search.given:
            _check_epochs("a pruner compares trials", study.search.objectives[0].name, own_corners, own_results)
    _check_populations(own_studies)
    study_steps = studies.check(own_studies, corners, results[len(trials) :], asked.request.cohort)
    columns = _columns(configs, results, STUDY_COLUMNS if own_studies else {})
    if trials:
        keys = {*columns.hyperparameters, *_preset_keys(asked.preset_space)}
        known = None if any(result.any_metric for result in results) else columns.metrics
        _check_shown(asked.sweep, asked.sweep.headline(asked.preset), known, keys)
    groups, steps = _groups(trials, trial_configs, results)
    of_trials = zip(trials, results[: len(trials)], strict=True)
    unsized = dict.fromkeys(str(trial.config["dataset"]) for trial, result in of_trials if not result.size_known)

    whole_trials = {trial.id: trial.config for trial in trials} if asked.whole == asked.space else _legal(asked.whole)
    whole_studies = [studies.identity(study, asked.request) for study in studies_of(asked.whole)]
    request_rows = RequestRows(asked.changed.name, asked.preset, list(whole_trials), whole_studies)
    statuses = store.statuses(asked.name) if trials and not asked.request.fresh else {}
    records = studies.StudyRecords(asked.request, store, asked.name, own_studies)
    study_runs = [
        records.study_run(study, own_corners[0].complete(), asked.of_study(study), least_steps)
        for study, own_corners, least_steps in zip(own_studies, corners, study_steps, strict=True)
    ]
    study_of = {str(row["trial_id"]): row.get("study_id") for row in records.rows}
    earlier = None
    if any(
        trial not in whole_trials and study_of.get(trial) not in whole_studies for trial in {**statuses, **study_of}
    ):
        facts = (*(trial.facts for trial in trials), *map(asked.of_study, own_studies))
        earlier = changes.note_on_earlier_rows(
            store.files.display_uri,
            store.unlisted(asked.name, request_rows, {str(fact["changes"]) for fact in facts}, columns),
            request_rows.request,
            asked.changed,
            whole_trials.values(),
            config.defaults,
            records.differences if own_studies else None,
        )
    longer = changes.longer_trials(asked.preset_space, (trial.config for trial in trials), asked.changed)
    plan = Plan(
        *(asked.name, asked.preset, asked.sweep, trials, groups, steps),
        {trial.id: statuses[trial.id] for trial in trials if trial.id in statuses},
        study_runs,
        space=asked.space,
        changes=asked.changed,
        whole=request_rows,
        notes=(*filter(None, [asked.note, earlier, longer, *records.notes]), *checks.stacking_notes(configs, results)),
        unsized=tuple(unsized),
    )
    return _without_unwritten_models(plan, store, asked.request), columns


def _columns(configs: Sequence[TrialConfig], results: Sequence[PreflightResult], facts: dict[str, type]) -> Columns:
    """The columns of the trials' rows; `facts` are those of searches, if there are any. Raises SpecError for a
    hyperparameter or a metric whose name is that of another column."""
    metrics = tuple(dict.fromkeys(metric for result in results for metric in result.metrics))
    try:
        types = config.column_types(configs)
        if taken := [name for name in (*types, *metrics) if name in STUDY_COLUMNS]:
            raise SpecError(
                f"a key or metric must not be named as a column of searches ({', '.join(STUDY_COLUMNS)}), but got "
                f"{taken[0]!r}"
            )
        defaults = {name: config.left_out_defaults(name) for name in dict.fromkeys(each.method for each in configs)}
        return Columns(types | facts, metrics, defaults)
    except ValueError as error:
        raise SpecError(str(error)) from None


def _check_functions(request: Request, configs: Sequence[TrialConfig]) -> None:
    """Raise SpecError for what no function can do, and for a parameter whose name is that of a column of every row."""
    for method in dict.fromkeys(each.method for each in configs):
        if taken := [key for key in config.keys(method) if key in (*FIXED, "sweep")]:
            raise SpecError(
                f"the function {method} must not have a parameter named as a column of every row, but got "
                f"{', '.join(taken)}"
            )
    why = {
        "--compile always": request.compile == "always" and "it has no steps that are known",
        "--stack above 1": (request.stack or 1) > 1 and "its trials train one after the other",
        "--keep best-epoch": request.keep.best_epoch and "it keeps what it gives to trial.keep",
    }
    for option, reason in why.items():
        if reason:
            raise SpecError(f"{option} is for methods of this project and not for a function: {reason}")


def _check_populations(own_studies: Sequence[Study]) -> None:
    """Raise SpecError for a population of a function that saves nothing, so that none of its members can be copied."""
    for study in own_studies:
        method = method_of(str(study.fixed["method"]))
        if study.search.population and issubclass(method, FunctionMethod) and not method.takes_trial:
            raise SpecError(
                f"members of a population copy what others have saved, so its function must have the parameter `trial` "
                f"and call trial.save, but {study.fixed['method']} has none"
            )


def _check_alarm_rate(rate: float | None, results: Sequence[PreflightResult]) -> None:
    """Raise SpecError for a false-alarm rate that no trial has a threshold of, or that the held-out normal images are
    too few for."""
    held_out = [result.held_out for result in results if result.held_out is not None]
    if rate is None or not all(result.size_known for result in results):
        return
    if not held_out:
        raise SpecError("--alarm-rate needs trials on one class, but there are none; add --normal-class NAME")
    try:
        check_alarm_rate(rate, min(held_out))
    except ValueError as error:
        raise SpecError(str(error)) from error


def _check_epochs(rule: str, metric: str, configs: Sequence[TrialConfig], results: Sequence[PreflightResult]) -> None:
    """Raise SpecError for a trial that does not report the metric of a `rule` while it trains, or does so once."""
    law = f"{rule} by {metric}"
    for trial_config, result in zip(configs, results, strict=True):
        training, of_method = trial_config.training, f"trials of {trial_config.method}"
        if training.epochs < 2:
            continue
        if result.lacks(metric):
            if trial_config.flat().get("validation") == 0:
                raise SpecError(f"{law}, but no validation images are held out; add --set validation=0.2")
            raise SpecError(f"{law}, which {of_method} do not report; they report: {', '.join(result.metrics)}")
        if result.lacks(metric, before_the_end=True):
            raise SpecError(f"{law}, which {of_method} report at the end alone")
        if training.report_every >= training.epochs:
            raise SpecError(
                f"{law}, so `report_every < epochs` must hold, but got report_every={training.report_every}, "
                f"epochs={training.epochs}; add --set report_every=1"
            )


def _groups(
    trials: Sequence[Trial], configs: Sequence[TrialConfig], results: Sequence[PreflightResult]
) -> tuple[list[Group], list[int]]:
    """Return the groups of trials that may share a cohort, and the training steps of one trial of each."""
    checked = {trial.id: pair for trial, pair in zip(trials, zip(configs, results, strict=False), strict=True)}
    fusible = {method: config.fusible_keys(method) for method in {trial_config.method for trial_config in configs}}

    def shape(trial: Trial) -> Hashable:
        ignored = fusible[str(trial.config["method"])]
        steps = checked[trial.id][1].steps
        return (steps, *(item for item in trial.config.items() if item[0] not in ignored))

    groups = cohorts.group(trials, shape, lambda trial: stream_key(checked[trial.id][0]))
    first = (checked[group[0][0].id] for group in groups)
    return groups, [trial_config.training.epochs * result.steps for trial_config, result in first]


def _without_unwritten_models(plan: Plan, store: Store, request: Request) -> Plan:
    """The plan without the results of trials of grids whose model is to be kept but could not be written."""
    missing = frozenset() if request.fresh else missing_models(store.files, plan, request.keep)
    if not (missing := missing & plan.grid_statuses.keys()):
        return plan
    statuses = {trial: status for trial, status in plan.grid_statuses.items() if trial not in missing}
    note = f"{len(missing)} trials have a row, but their model could not be written; they are trained again"
    return replace(plan, grid_statuses=statuses, without_model=missing, notes=(*plan.notes, note))


def _changed(space: Space, request: Request, classes: Sequence[str]) -> Space:
    """The preset's space with the changes of `--set`, `--axis` and `--replicates`. `classes` are names that
    `normal_class` can have."""

    def value_of(key: str, value: Value) -> Value:
        if not isinstance(value, Text):
            return config.check(key, value, classes)
        try:
            return config.parse(key, value, classes)
        except config.NumberError as error:
            raise ValueError(f"{error}{advice(value)}") from None

    try:
        fixed = {key: value_of(key, value) for key, value in request.fixed.items()}
        axes, replicates = (
            {key: tuple(value_of(key, value) for value in values) for key, values in asked.items()}
            for asked in (request.axes, request.replicates)
        )
    except ValueError as error:
        raise SpecError(str(error)) from None
    fixed = {key: value for key, value in fixed.items() if not _is_default(key, value, space)}
    changed = _without_repeated(change_space(space, fixed, axes, config.keys)) if fixed or axes else space
    searched = any(part.searched for part in parts_of(changed))
    return replicate_space(changed, replicates, config.keys) if replicates and searched else changed


def _is_default(key: str, value: Value, space: Space) -> bool:
    """Whether a key that no part of a space mentions has its default in all of its methods, so that to set it changes
    nothing, not even the identity of a study."""
    methods = {str(method) for part in parts_of(space) for method in part.values("method")}
    defaults = [config.defaults(method).get(key, ...) for method in methods]
    return (
        bool(defaults)
        and key not in _preset_keys(space)
        and all(default == value and isinstance(default, bool) == isinstance(value, bool) for default in defaults)
    )


def _without_repeated(space: Space) -> Space:
    """The space without the grids all of whose trials other grids have, as where they differed in a key that is the
    same for all of them now."""
    if not isinstance(space, tuple):
        return space
    known, kept = set[Hashable](), list[Part]()
    for part in space:
        with contextlib.suppress(ValueError):  # an illegal trial is refused later
            own = {frozenset(config.resolve(each).flat().items()) for each in part.combinations()}
            if own and own <= known:
                continue
            known |= own
        kept.append(part)
    return tuple(kept)


def _without_narrowing(
    request: Request, preset_space: Space, changed: Changes, classes: Sequence[str], own: Space
) -> Space:
    """The space of a request without its narrowing, of which its `own` space is a part."""
    wider = changed.without_narrowing(request)
    if (wider.fixed, wider.axes) == (request.fixed, request.axes):
        return own
    try:
        return _with_options(_changed(preset_space, wider, classes), request)
    except (SpecError, ValueError):  # what the request changes is legal in its part of the preset alone
        return own


def _legal(space: Space) -> dict[str, Mapping[str, Value]]:
    """Id -> config of the trials of a space's grids, without those that are illegal."""
    trials: dict[str, Mapping[str, Value]] = {}
    for combination in (combination for part in parts_of(space) for combination in part.combinations()):
        with contextlib.suppress(ValueError):
            trial_config = config.resolve(combination)
            trials[trial_id(trial_config)] = trial_config.complete()
    return trials


def _load_own_code(space: Space, request: Request) -> None:
    """Import the methods of the user, whose keys the request may change, and the other code of the user's own that the
    trials name. Raises SpecError for what is none."""

    def names(key: str) -> list[str]:
        values = [value for part in parts_of(space) for value in part.values(key)]
        asked = [request.fixed.get(key), *request.axes.get(key, ()), *request.replicates.get(key, ())]
        return list(dict.fromkeys(map(str, filter(None, [*values, *asked]))))

    methods, others = names("method"), {key: list(filter(is_own, names(key))) for key in KINDS}
    if any(is_own(name) and not is_command(name) for name in methods) or any(others.values()):
        search_folder(Path.cwd())
    try:
        for name in methods:
            import_method(name, _values(space, request) if is_command(name) else {})
        for key, own in others.items():
            for name in own:
                import_own(KINDS[key], name)
    except ValueError as error:
        raise SpecError(str(error)) from error


def _values(space: Space, request: Request) -> dict[str, list[Value]]:
    """Key -> its values in the preset and in the request."""
    values: dict[str, list[Value]] = {}
    for part in parts_of(space):
        for fixed in (part.fixed, request.fixed):
            for key, value in fixed.items():
                values.setdefault(key, []).append(value)
        for axes in (part.axes, part.replicates, request.axes, request.replicates):
            for key, own in axes.items():
                values.setdefault(key, []).extend(own)
        for key, distribution in part.searched.items():
            values.setdefault(key, []).extend(bounds(distribution))
    return values


def _with_options(space: Space, request: Request) -> Space:
    """The space with the requested options of searches, such as `--sampler`."""
    if isinstance(space, tuple):
        return tuple(_part_with_options(part, request) for part in space)
    return _part_with_options(space, request)


def _part_with_options(part: Part, request: Request) -> Part:
    if isinstance(part, Grid):
        return _grid_with_pruner(part, request.pruner)
    values = {"trials": request.trials, "wave": request.wave, "sampler": request.sampler, "seed": request.search_seed}
    changes: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if request.pruner == "none":
        changes["pruner"] = None
    elif request.pruner:
        lowest = next(part.studies()).proposal({})
        epochs = config.resolve(lowest | dict(part.fixed)).training.epochs
        changes["pruner"] = _requested_pruner(part, request.pruner, epochs)
    return replace(part, **changes)


def _grid_with_pruner(grid: Grid, pruner: str | None) -> Grid:
    """The grid with the requested pruner, unless its trials have no two epochs. Raises SpecError for functions without
    epochs."""
    if pruner is None or pruner == "none":
        return replace(grid, pruner=None) if pruner else grid
    try:
        trial = config.resolve(next(grid.combinations()))
    except ValueError as error:
        raise SpecError(str(error)) from None
    if is_function(trial.method) and EPOCHS not in trial.flat():
        raise SpecError(
            f"a pruner compares trials at epochs, so a function needs a parameter `epochs`, but {trial.method} has none"
        )
    epochs = trial.training.epochs
    return replace(grid, pruner=_requested_pruner(grid, pruner, epochs)) if epochs > 1 else grid


def _requested_pruner(part: Part, name: str, epochs: int) -> Pruner:
    """The pruner of this name for trials of so many epochs, with the rungs of the part's own if it has some."""
    own = part.pruner if isinstance(part.pruner, Halving) else Halving(first=max(1, epochs // FIRST_RUNG_DIVISOR))
    return replace(own, brackets=1 if name == "halving" else max(2, own.brackets))


def _check_shown(sweep: Sweep, headline: Metric, metrics: Collection[str] | None, keys: Collection[str]) -> None:
    """Raise SpecError if the trials do not report the headline or a needed figure's metric, or lack its axis.

    Other figures may name metrics that only other trials report, for example of a method with a posterior. An axis or
    a selection may name keys that only other methods have, whose trials a narrowed request leaves out: `keys` are those
    of the trials and of the whole preset. `metrics` is None for functions, whose reports alone tell them.
    """
    if metrics is not None:
        _check_metrics(sweep, headline, metrics)
    for figure in sweep.figures:
        selecting = {key for selection in figure.selections for key in selection.where}
        for axis in figure.hyperparameters if figure.needed else ():
            if axis not in keys and (axis not in selecting or not _of_any_method(axis)):
                raise SpecError(f"a {figure.title} needs the axis {axis}, which these trials lack")


def _check_metrics(sweep: Sweep, headline: Metric, metrics: Collection[str]) -> None:
    for metric in (headline, *(metric for figure in sweep.figures if figure.needed for metric in figure.shown)):
        if metric.name not in metrics:
            raise SpecError(f"these trials do not report {metric.name}; they report: {', '.join(metrics)}")
    for name in (*sweep.axes_by_metric, *(metric for pair in sweep.correlations for metric in pair)):
        if name not in (*metrics, *OF_EVERY_ROW) and name not in (known := methods_by_metric()):
            raise SpecError(
                f"no method reports {name}{nearest(name, known)}; these trials report: {', '.join(metrics)}"
            )


def _of_any_method(key: str) -> bool:
    return any(key in config.keys(method) for method in known_methods())


def explain_preset_keys(error: str, request: Request, preset: str, space: Space) -> str:
    """Add ` (KEY is set by preset 'NAME')` to an error, for the keys it names that the preset alone sets.

    Only the part before the first semicolon counts, because a list of choices may follow it.
    """
    head, semicolon, rest = error.partition("; ")
    statement = re.sub(r"\(did you mean [^)]*\)", "", head)
    words = {part for word in statement.split() if "/" not in word for part in re.findall(r"\w+", word)}  # no paths
    keys = sorted((words & _preset_keys(space)) - {"method"} - {*request.fixed, *request.axes, *request.replicates})
    if not keys:
        return error
    verb = "are" if len(keys) > 1 else "is"
    return f"{head} ({' and '.join(keys)} {verb} set by preset '{preset}'){semicolon}{rest}"


def _preset_keys(space: Space) -> set[str]:
    return {key for part in parts_of(space) for key in (*part.fixed, *part.axes, *part.replicates, *part.searched)}


@dataclass(frozen=True)
class OwnImages:
    """A request and a preset's space that say which images they are about."""

    request: Request
    space: Space
    classes: Sequence[str] = ()
    """Names of the classes of the user's images; empty for a request without them."""
    note: str = ""
    """One line on the images; empty without them."""


def with_own_images(request: Request, space: Space) -> OwnImages:
    """Add what is known of the user's own images to what selects them: the request if it sets such a `dataset`, else
    the parts of the preset that do. It is their digest, and of others than `dataset=folder` their size and channels.
    Raises SpecError, with one line, if they cannot be used."""
    requested = {request.fixed.get("dataset"), *request.axes.get("dataset", ())}
    parts = [part for part in parts_of(space) if any(map(is_of_user, part.values("dataset")))]
    of_request = any(map(is_of_user, requested))
    if not of_request and (not parts or requested != {None}):
        return OwnImages(request, space)
    axes = [request.axes.get("dataset", ())] if of_request else [part.values("dataset") for part in parts]
    named = requested - {None} if of_request else {value for values in axes for value in values}
    name = next(str(value) for value in named if is_of_user(value))
    if len(named) > 1 or any(len(values) > 1 for values in axes):
        raise SpecError(f"dataset={name} must be set for all trials, but is one of several values of an axis")
    try:
        listing, known = listing_of(name, Path(request.data).resolve(), whole=request.data_folder is not None)
    except (DataError, ValueError) as error:
        raise SpecError(str(error)) from error
    names = ", ".join(f"{index} {each}" for index, each in enumerate(listing.classes))
    note = listing.about or (
        f"dataset={FOLDER}: {sum(listing.train)} training and {sum(listing.test)} test images in {request.data}, "
        f"classes {names}"
    )
    note += "".join(f"; {remark}" for remark in listing.remarks)
    if listing.repeated:
        note += (
            f"; warning: {listing.repeated} of the test images are training images, too, so that metrics on "
            "test images are better than on new ones"
        )
    if of_request:
        request = replace(request, fixed={**known, **request.fixed})
    else:
        space = _with(space, known)
    return OwnImages(request, space, listing.classes, note)


def is_of_user(dataset: object) -> bool:
    """Whether images are the user's own."""
    return dataset == FOLDER or is_own_data(str(dataset))


def listing_of(name: str, folder: Path, whole: bool) -> tuple[ImageListing, Mapping[str, Value]]:
    """Return what is known of the user's own images, and the keys of trials that follow from it. Raises DataError."""
    if name == FOLDER:
        listing = list_folder(folder)
        return listing, {DIGEST: listing.digest}
    listing = list_own_data(name, folder, whole)
    channels, height, width = listing.shape
    known: dict[str, Value] = {DIGEST: listing.digest, "image_channels": channels, "image_size": height}
    return listing, known if width == height else {**known, "image_width": width}


def _with(space: Space, known: Mapping[str, Value]) -> Space:
    """The space with what is known fixed in the parts on the user's images that have no digest of their own."""

    def part_with(part: Part) -> Part:
        of_user = any(map(is_of_user, part.values("dataset"))) and not part.values(DIGEST)
        return replace(part, fixed={**part.fixed, **known}) if of_user else part

    return tuple(map(part_with, space)) if isinstance(space, tuple) else part_with(space)
