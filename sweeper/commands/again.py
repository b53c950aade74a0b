"""`sweeper best NAME --again seed=1..10`: the best settings of a request, trained with fresh seeds.

They are a preset of their own, `PRESET, again`: a grid for each best setting, and a table of these. It runs as any
other preset does, and its rows, figures and request are in the same store, under the same sweep.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from sweeper.definition import Grid, Metric, Sweep, Table, registry
from sweeper.definition.metric import VALIDATION
from sweeper.definition.ranges import as_typed
from sweeper.definition.space import SEED, Axes, Fixed, Value
from sweeper.definition.sweep import Repeats
from sweeper.definition.user_code import own_code
from sweeper.errors import SpecError
from sweeper.models import config_of
from sweeper.option_values import Text
from sweeper.planning.changes import format_value, sorted_values
from sweeper.report.answers import answer_of, figures_ranked, find_request, shown_of, with_names
from sweeper.report.commands import Commands
from sweeper.report.figures import PresetFigures
from sweeper.report.tables import telling_axes
from sweeper.request import Request
from sweeper.results.best import NO_CHOICE, BestSetting
from sweeper.results.sentences import MAX_BEST, chosen, noun_of, sentences
from sweeper.storage.files import Files
from sweeper.storage.requests import StoredRequest, is_again, preset_again
from sweeper.storage.rows import plain_value
from trainables import config
from trainables.validation import unknown

METHODS = "methods"
"""Name of the table."""


@dataclass(frozen=True)
class Again:
    """What `--again` asks for beside the options of a run."""

    key: str
    """A hyperparameter that repeats an experiment, such as the seed."""
    values: tuple[Value, ...]
    """Its fresh values: `Text` as typed."""
    changes: str | None = None
    """What the request that was tuned changes in its preset; None is the latest request."""
    metric: str | None = None
    """By which the settings are best; by default the preset's."""
    methods: Sequence[str] = ()
    """Code of the user's own that may be imported, beside that of the sweep."""


def asked_again(request: Request, again: Again) -> tuple[Request, list[str]]:
    """Return the request that trains the best settings of another with fresh seeds, and the sentences that say which
    settings these are. `request` names the sweep and the preset that were tuned, and has the options of the run.

    Raises StoreError if there are no rows; SpecError for a sweep without a definition, if nothing is best, or if the
    settings were chosen by trials with one of the fresh seeds.
    """
    if request.sweep is None and not registry.is_findable(request.name):
        raise SpecError(
            f"--again trains trials, so it needs the file of the sweep, but got its name {request.name!r}; write "
            "sweeper best FILE.py --again ..."
        )
    if request.preset is not None and is_again(request.preset):
        raise SpecError(f"--again needs the preset that was tuned, but '{request.preset}' is what --again has trained")
    definition, files = request.sweep or registry.find(request.name), Files(request.store)
    tuned, columns = find_request(files, definition.name, request.preset, again.changes, trained_again=False)
    figures, metric = figures_ranked(files, definition.name, tuned, columns, again.metric)
    shown = shown_of(files, definition.name, tuned, figures, list(columns.hyperparameters))
    found = shown.best(shown.rows, metric, figures.naming) if again.metric or figures.ranks else []
    if not found:
        by, commands = metric if again.metric else None, Commands(request.name, definition.name, None, "")
        keys = list(columns.hyperparameters)
        raise SpecError(answer_of(files, definition.name, tuned, figures, keys, commands, metric=by).text)
    code = [*again.methods, *own_code(definition)]
    fresh = _fresh(again, figures.repeats)
    settings = [_setting(tuned, best, code) for best in found]
    if all(fresh.key not in setting.keys for setting in settings):
        raise SpecError(f"--again {fresh.key} needs a method with this key, but none of the best settings has it")
    _check_fresh(fresh, tuned)
    sweep = _sweep(definition, tuned, figures, found, settings, fresh)
    (preset,) = sweep.presets
    said = sentences(found, MAX_BEST, so_far=tuned.so_far, value_text=with_names(shown.value_text))
    return replace(request, sweep=sweep, preset=preset), said


@dataclass(frozen=True)
class _Setting:
    """A best setting, by the configs of its trials."""

    fixed: Fixed
    """What its trials have in common, of defaults those alone that tell it apart from other settings."""
    axes: Axes
    """What they differ in."""
    keys: Mapping[str, Value]
    """All keys of its first trial."""

    def grid(self, fresh: Again) -> Grid:
        """Return its trials with fresh values of the key that repeats them, if its method has that."""
        own = {fresh.key: fresh.values} if fresh.key in self.keys else {}
        fixed = {key: value for key, value in self.fixed.items() if key not in own}
        return Grid(fixed, {key: values for key, values in self.axes.items() if key not in own} | own)


def _setting(tuned: StoredRequest, best: BestSetting, code: Sequence[str]) -> _Setting:
    """Return a best setting, from the rows of its trials."""
    own = tuned.rows[tuned.rows["trial_id"].isin(best.values)]
    if any(key in own and own[key].notna().any() for key in NO_CHOICE):
        raise SpecError(f"trial {next(iter(best.values))} copied others of its population, so no run trains it again")
    configs = [config_of(row, methods=code) for row in own.to_dict("records")]
    flat = [each.flat() for each in configs]
    values = {key: tuple(dict.fromkeys(each.get(key) for each in flat)) for key in flat[0]}
    axes = {key: sorted_values({*tried}) for key, tried in values.items() if len(tried) > 1}
    defaults = config.defaults(configs[0].method)
    fixed = {
        key: value
        for key, (value, *others) in values.items()
        if not others and (key in ("method", *best.at) or key not in defaults or defaults[key] != value)
    }
    return _Setting(fixed, axes, configs[0].complete())


def _fresh(again: Again, repeats: Repeats) -> Again:
    """Return what is asked for with values of the key's type. Raises SpecError."""
    if again.key not in repeats.drawn:
        raise SpecError(unknown("key of --again that repeats an experiment", again.key, repeats.drawn))
    try:
        values = tuple(
            config.parse(again.key, value) if isinstance(value, Text) else config.check(again.key, value)
            for value in again.values
        )
    except ValueError as error:
        raise SpecError(str(error)) from None
    return replace(again, values=values)


def _check_fresh(fresh: Again, tuned: StoredRequest) -> None:
    """Raise SpecError if the settings were chosen by trials with one of the fresh values."""
    used = _used(fresh.key, tuned)
    if not used.intersection(fresh.values):
        return
    numbers = sorted(value for value in used if isinstance(value, int))
    chosen_by = as_typed([*map(format_value, sorted_values(used))])
    choice = ""
    if numbers and all(isinstance(value, int) for value in fresh.values):
        choice = f"; {fresh.key}={numbers[-1] + 1}..{numbers[-1] + len(fresh.values)} has as many"
    raise SpecError(
        f"--again needs values of {fresh.key} that no trial of '{tuned.label}' has, because they chose the setting: "
        f"{fresh.key}={chosen_by}{choice}"
    )


def _used(key: str, tuned: StoredRequest) -> set[Value]:
    """Return the values of a key in the rows of a request; of a row that lacks it the default of its method."""
    column = tuned.rows[key] if key in tuned.rows else pd.Series([None] * len(tuned.rows))
    pairs = {*zip(map(str, tuned.rows["method"]), map(plain_value, column), strict=True)}
    return {config.defaults(method).get(key) if value is None else _whole(value) for method, value in pairs} - {None}


def _whole(value: Value) -> Value:
    """Return a whole number as one: pandas makes floats of those with nulls among them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sweep(
    definition: Sweep,
    tuned: StoredRequest,
    figures: PresetFigures,
    found: Sequence[BestSetting],
    settings: Sequence[_Setting],
    fresh: Again,
) -> Sweep:
    """Return the sweep whose only preset has the best settings with fresh seeds, and their table."""
    grids = tuple(setting.grid(fresh) for setting in settings)
    rows, columns = _axes_of_table(settings, figures.repeats)
    used = as_typed([*map(format_value, sorted_values(_used(fresh.key, tuned)))])
    how = " or ".join(dict.fromkeys(map(chosen, found)))
    note = f"the best setting of each in '{tuned.label}', {how}, by trials with {fresh.key}={used} that are not counted"
    labels = {text: label for table in definition.of_kind(Table) for text, label in table.labels.items()}
    table = Table(METHODS, rows, _metrics(found[0].metric, figures), columns, note=note, labels=labels)
    sets = {key for grid in grids for key in (*grid.fixed, *grid.axes)}
    return Sweep(
        definition.about,
        {preset_again(tuned.label): grids if len(grids) > 1 else grids[0]},
        figures=(table,),
        over=noun_of(fresh.key),
        random=tuple(name for name in figures.repeats.drawn if name != SEED and name in sets),
        name=definition.name,
    )


def _axes_of_table(settings: Sequence[_Setting], repeats: Repeats) -> tuple[tuple[str, ...], str | None]:
    """Return the hyperparameters of the table's rows and of its columns. Columns are classes that were tuned one by
    one, which no mean hides, else data sets."""
    repeated = {key for setting in settings for key in setting.axes}
    keys = dict.fromkeys(key for setting in settings for key in setting.keys if key not in repeated)
    return telling_axes({key: [setting.keys.get(key) for setting in settings] for key in keys}, repeats.fixed)


def _metrics(first: Metric, figures: PresetFigures) -> tuple[Metric, ...]:
    """Return the metrics of the table: that by which the settings are best, on test images, then the others that the
    tuned preset shows or searches for."""
    others: Iterable[Metric] = (replace(each, name=each.name.removeprefix(VALIDATION)) for each in figures.metrics)
    return tuple({metric.name: metric for metric in (first, *others)}.values())
