"""The figures and tables of an Optuna study, as files and as text for the terminal."""

import contextlib
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from sweeper.report.formatting import format_value, text_table
from sweeper.spec.metric import Metric
from sweeper.spec.space import WARM, bounds
from sweeper.storage.files import Files


@contextlib.contextmanager
def quiet(category: type[Warning] = optuna.exceptions.ExperimentalWarning) -> Iterator[None]:
    """Context manager that silences Optuna's log below errors, and warnings of `category`."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
"""Optuna's state of a finished trial -> its name in tables."""
DIVERGED = "diverged"
"""State in tables of a trial whose row is `diverged`. In Optuna it is pruned or failed."""
CUT = "cut"
"""Optuna user attribute of a trial whose value `copy_for_figures` cut."""
CUT_DISTANCE = 10.0
"""Distance from the nearer quartile, in interquartile ranges, beyond which `copy_for_figures` cuts a value."""
MIN_TRIALS = 20
"""Minimum number of complete trials for importances and contours. With fewer they would be noise."""
FOREST = {"n_trees": 32, "max_depth": 6, "seed": 0}
"""Settings of the random forest for importances, which takes 0.2 s for 256 trials.

More or deeper trees do not order the parameters better. PED-ANOVA, Optuna's default, takes 5 ms, but its order has
little to do with the truth if TPE proposed the trials.
"""


def trials_dataframe(study: optuna.Study, objectives: Sequence[Metric]) -> pd.DataFrame:
    """Return a data frame with one row per finished trial.

    The columns are `number`, `trial_id`, `state` (complete, pruned, diverged or failed), `warm` (from a warm start),
    `step` (of the last report), the parameters, the objectives, and for each objective `best_NAME`, the best value so
    far of a complete trial. The objective of a pruned trial is its last report. Numeric parameters stay numbers;
    choices of several types become text.
    """
    trials = study.get_trials(deepcopy=False, states=tuple(STATES))
    columns: dict[str, pd.Series] = {
        "number": pd.Series([trial.number for trial in trials], dtype="int64"),
        "trial_id": pd.Series([trial.user_attrs.get("trial_id") for trial in trials], dtype="str"),
        "state": pd.Series([_state(trial) for trial in trials], dtype="str"),
        "warm": pd.Series([bool(trial.user_attrs.get(WARM)) for trial in trials], dtype="bool"),
        "step": pd.Series([trial.last_step for trial in trials], dtype="Int64"),
    }
    columns |= {key: _narrowest_column([trial.params.get(key) for trial in trials]) for key in parameter_names(study)}
    for index, metric in enumerate(objectives):
        values = pd.Series([_values(trial, len(objectives))[index] for trial in trials], dtype="float64")
        complete = values.where((columns["state"] == "complete") & np.isfinite(values))
        best = metric.cost(metric.cost(complete).cummin())
        columns |= {metric.name: values, f"best_{metric.name}": best.ffill()}
    return pd.DataFrame(columns)


def parameter_names(study: optuna.Study) -> list[str]:
    """Return the names of all parameters in the order of their first appearance."""
    return list(dict.fromkeys(key for trial in study.get_trials(deepcopy=False) for key in trial.params))


def copy_for_figures(study: optuna.Study, objectives: Sequence[Metric], only: Metric | None = None) -> optuna.Study:
    """Return a copy of the study for figures, with all objectives or `only` one. Trials keep their numbers.

    - Metrics with `percent` are in percent.
    - A trial that is not complete, or has a value that is not finite, is failed in the copy.
    - With `only`, values that are much worse than the others are cut (see `CUT_DISTANCE`) and have the attribute
      `CUT`: otherwise a single bad trial would compress the scale of all others.
    """
    chosen = [index for index, metric in enumerate(objectives) if only in (None, metric)]
    copy = optuna.create_study(directions=[objectives[index].ranking_direction for index in chosen])
    trials = study.get_trials(deepcopy=False)
    trial_values = [[_values(trial, len(objectives))[index] for index in chosen] for trial in trials]
    usable = [
        trial.state == TrialState.COMPLETE and all(map(math.isfinite, values))
        for trial, values in zip(trials, trial_values, strict=True)
    ]
    low, high = _value_limits([values[0] for values, ok in zip(trial_values, usable, strict=True) if ok], only)
    for trial, values, ok in zip(trials, trial_values, usable, strict=True):
        cut = [min(max(value, low), high) for value in values]
        shown = [
            value * (100.0 if objectives[index].percent else 1.0) for value, index in zip(cut, chosen, strict=True)
        ]
        copy.add_trial(
            optuna.trial.create_trial(
                state=TrialState.COMPLETE if ok else TrialState.FAIL,
                values=shown if ok else None,
                params=trial.params if ok else {},
                distributions=trial.distributions if ok else {},
                user_attrs={WARM: bool(trial.user_attrs.get(WARM)), CUT: ok and cut != values},
            )
        )
    return copy


def importances(study: optuna.Study) -> dict[str, float]:
    """Return parameter -> importance, its share of the objective's variance (fANOVA), in descending order.

    The importances add up to 1. The result is empty with fewer than `MIN_TRIALS` complete trials, fewer than two varied
    parameters, or an objective that is constant. Parameters with log distributions enter as logarithms. The result is
    deterministic.
    """
    keys = varied_parameters(study)
    trials = [trial for trial in complete_trials(study) if set(keys) <= set(trial.params)]
    if len(trials) < MIN_TRIALS or len(keys) < 2 or len({trial.value for trial in trials}) < 2:
        return {}
    scales = {key: _scale([trial.distributions[key] for trial in trials]) for key in keys}
    transformed = optuna.create_study()  # the same trials with linear distributions
    for trial in trials:
        values = {key: math.log(trial.params[key]) if scales[key][1] else trial.params[key] for key in keys}
        space = {key: scales[key][0] for key in keys}
        transformed.add_trial(optuna.trial.create_trial(value=trial.value, params=values, distributions=space))
    evaluator = optuna.importance.FanovaImportanceEvaluator(**FOREST)
    try:
        shares = optuna.importance.get_param_importances(transformed, evaluator=evaluator, params=keys)
    except RuntimeError:  # the forest finds no variance
        return {}
    return dict(sorted(((key, float(shares[key])) for key in keys), key=lambda item: -item[1]))


def pareto_front(study: optuna.Study) -> list[int]:
    """Return the numbers of the trials on the Pareto front; with one objective, that of the best trial."""
    if not complete_trials(study):
        return []
    return [trial.number for trial in (study.best_trials if len(study.directions) > 1 else [study.best_trial])]


def complete_trials(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def varied_parameters(study: optuna.Study) -> list[str]:
    """Return the sorted names of the parameters with at least two values in complete trials."""
    pairs = {pair for trial in complete_trials(study) for pair in trial.params.items()}
    return sorted(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)


def is_numeric(study: optuna.Study, key: str) -> bool:
    """Return whether the parameter is a number from a range in all complete trials, as opposed to a choice."""
    distributions = (trial.distributions.get(key) for trial in complete_trials(study))
    return not any(isinstance(distribution, CategoricalDistribution) for distribution in distributions)


def _value_limits(values: Sequence[float], metric: Metric | None) -> tuple[float, float]:
    """Return the lowest and the highest value that a figure of the metric shows. Shares are not cut."""
    if metric is None or metric.percent or not values:
        return -math.inf, math.inf
    lower_quartile, upper_quartile = (float(quartile) for quartile in np.quantile(values, [0.25, 0.75]))
    distance = CUT_DISTANCE * (upper_quartile - lower_quartile) or math.inf
    if metric.better == "lower":
        return -math.inf, upper_quartile + distance
    return lower_quartile - distance, math.inf


def _scale(distributions: Sequence[Any]) -> tuple[BaseDistribution, bool]:
    """Return one distribution that contains all of these, and whether it is that of the parameter's logarithm.

    The distributions of a parameter can differ because trials of a warm start come from another search.
    """
    if any(isinstance(dist, CategoricalDistribution) for dist in distributions):
        return CategoricalDistribution(list(dict.fromkeys(itertools.chain(*map(bounds, distributions))))), False
    low, high = min(dist.low for dist in distributions), max(dist.high for dist in distributions)
    logs = all(dist.log for dist in distributions)
    return (FloatDistribution(math.log(low), math.log(high)), True) if logs else (FloatDistribution(low, high), False)


def _values(trial: FrozenTrial, objectives: int) -> list[float]:
    """Return the values of a trial's objectives. A pruned trial has its last report; missing values are NaN."""
    if trial.state == TrialState.PRUNED and trial.last_step is not None:
        return [trial.intermediate_values[trial.last_step]] * objectives
    return list(trial.values) if trial.values else [math.nan] * objectives


def _state(trial: FrozenTrial) -> str:
    return DIVERGED if trial.user_attrs.get("status") == DIVERGED else STATES[trial.state]


def _narrowest_column(values: Sequence[Any]) -> pd.Series:
    """Return a column of the narrowest type that holds all values: bool, int, float or text."""
    types = {type(value) for value in values if value is not None}
    if types == {bool}:
        return pd.Series(values, dtype="boolean" if None in values else "bool")
    if types == {int}:
        return pd.Series(values, dtype="Int64" if None in values else "int64")
    if types <= {int, float}:
        return pd.Series(values, dtype="float64")
    return pd.Series([None if value is None else str(value) for value in values], dtype="str")


PREFIXES = ("importance", "parallel", "history", "contour", "pareto")
"""Prefixes of the names of figures."""
STATE_ORDER = (*STATES.values(), DIVERGED)
"""States of trials in the order in which `count` lists them."""
MAX_FRONT_ROWS = 7
"""Maximum number of trials of a front in the text."""
Importances = Mapping[str, Mapping[str, float]]
"""Objective -> parameter -> importance, descending."""
NamedFigure = tuple[str, optuna.Study, Callable[[], Any]]
"""Name of a figure, the study that it shows, and a function that draws it."""


def write(
    files: Files,
    folder: str,
    title: str,
    study: optuna.Study,
    objectives: Sequence[Metric],
    contours: Sequence[tuple[str, str]] = (),
) -> str:
    """Write trials.parquet, front.parquet, importance.parquet and the figures. Returns a few lines for the terminal.

    With several objectives each has its own figures, whose names end with the metric. A figure that needs more trials
    is left out, and an older one of that name is deleted: importances and contours need `MIN_TRIALS` complete trials.
    `contours` are pairs of parameters; if the study has none of the pairs, the two most important numeric parameters
    are drawn. A figure that cannot be drawn becomes a line of the text. Raises StoreError if writing fails.
    """
    from sweeper.report import study_charts  # here: it takes its tables from this module

    trials = trials_dataframe(study, objectives)
    pictures: dict[str, bytes] = {}
    failures = []
    with study_charts.drawing():
        shown = copy_for_figures(study, objectives)
        single = {metric: copy_for_figures(study, objectives, metric) for metric in objectives}
        shares = {metric.name: importances(one_objective) for metric, one_objective in single.items()}
        for name, drawn, draw in _figures(shown, single, shares, contours):
            cut_count = sum(bool(trial.user_attrs.get(CUT)) for trial in complete_trials(drawn))
            cut = f"; {cut_count} worse than shown" if cut_count else ""
            try:  # Optuna's figures are experimental, and a failure must not end the search
                pictures[f"{name}.png"] = study_charts.png(draw(), title, drawn_from(drawn, trials) + cut)
            except Exception as error:
                failures.append(f"no {name}.png: {type(error).__name__}: {' '.join(str(error).split())[:100]}")

    front = trials[trials["number"].isin(pareto_front(shown))]
    importance = pd.DataFrame(
        [(name, key, share) for name, parameters in shares.items() for key, share in parameters.items()],
        columns=["objective", "parameter", "importance"],
    ).astype({"objective": "str", "parameter": "str", "importance": "float64"})
    for name, table in (("trials", trials), ("front", front), ("importance", importance)):
        files.write(f"{folder}/{name}.parquet", table.to_parquet(index=False))
    for name, picture in pictures.items():
        files.write(f"{folder}/{name}", picture)
    for name in files.list(folder):
        if name.endswith(".png") and name.startswith(PREFIXES) and name not in pictures:
            files.delete(f"{folder}/{name}")
    best = _best_lines(front, trials, objectives, parameter_names(study))
    return "\n".join(
        [f"{title}, {count(trials)}", *best, *_importance_lines(shares), *_too_few_lines(single), *failures]
    )


def count(trials: pd.DataFrame) -> str:
    """Return the number of trials by state, e.g. `64 trials (8 earlier): 40 complete, 24 pruned`."""
    states, earlier = trials["state"].value_counts(), int(trials["warm"].sum())
    parts = ", ".join(f"{states[state]} {state}" for state in STATE_ORDER if state in states)
    total = f"{len(trials)} trial{'s' if len(trials) != 1 else ''}{f' ({earlier} earlier)' if earlier else ''}"
    return f"{total}: {parts}" if parts else total


def drawn_from(drawn: optuna.Study, trials: pd.DataFrame) -> str:
    """Return which trials a figure shows, e.g. `40 complete trials; left out: 24 pruned`."""
    number, states = len(complete_trials(drawn)), trials["state"].value_counts()
    others = ", ".join(f"{states[state]} {state}" for state in STATE_ORDER[1:] if state in states)
    return f"{number} complete trial{'s' if number != 1 else ''}" + (f"; left out: {others}" if others else "")


def _figures(
    study: optuna.Study, single: Mapping[Metric, optuna.Study], shares: Importances, contours: Sequence[tuple[str, str]]
) -> Iterator[NamedFigure]:
    """Yield each figure with enough trials. `study` has all objectives, and `single` has a study for each of them."""
    from sweeper.report import study_charts  # here: it takes its tables from this module

    for metric, one_objective in single.items():
        suffix = f"_{metric.name}" if len(single) > 1 else ""
        for name, draw in _figures_of_objective(one_objective, metric, shares[metric.name], contours):
            yield f"{name}{suffix}", one_objective, draw
    if len(single) == 2 and len(complete_trials(study)) > 1:
        yield "pareto", study, partial(study_charts.pareto, study, [metric.label for metric in single])


def _figures_of_objective(
    study: optuna.Study, metric: Metric, shares: Mapping[str, float], contours: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each figure of a study with one objective, and a function that draws it."""
    from sweeper.report import study_charts  # here: it takes its tables from this module

    label, keys, trials = metric.label, varied_parameters(study), complete_trials(study)
    if shares:
        yield "importance", partial(study_charts.importance, study, shares, label)
    if len(trials) < 2:
        return
    yield "history", partial(study_charts.history, study, label)
    if keys:
        yield "parallel", partial(study_charts.parallel, study, keys, label)
    if len(trials) >= MIN_TRIALS and len({trial.value for trial in trials}) > 1:
        pairs = [pair for pair in contours if set(pair) <= set(keys) and len(set(pair)) == 2]
        most_important = [key for key in shares if is_numeric(study, key)][:2]
        if not pairs and len(most_important) == 2:
            pairs = [(most_important[0], most_important[1])]
        for pair in pairs:
            yield f"contour_{'_'.join(pair)}", partial(study_charts.contour, study, pair, label)


def _best_lines(
    front: pd.DataFrame, trials: pd.DataFrame, objectives: Sequence[Metric], keys: Sequence[str]
) -> list[str]:
    """Return the front of several objectives as a table of few trials, or a line if no trial is complete."""
    if front.empty:
        all_diverged = len(trials) > 0 and (trials["state"] == DIVERGED).all()
        return [f"all {len(trials)} trials diverged, so none is best" if all_diverged else "no trial is complete yet"]
    front = front.sort_values(objectives[0].name, key=objectives[0].cost)
    numbers = zip(front["number"], front["warm"], strict=True)
    cells = {"trial": [f"{number}{' (earlier)' if warm else ''}" for number, warm in numbers]}
    cells |= {metric.name: [_text(value, metric.percent) for value in front[metric.name]] for metric in objectives}
    cells |= {key: [_text(value) for value in front[key]] for key in keys}
    if len(objectives) == 1:
        return []  # the best setting of a study is named as that of every sweep
    shown = np.unique(np.linspace(0, len(front) - 1, min(len(front), MAX_FRONT_ROWS)).round().astype(int))
    table = text_table({name: [texts[index] for index in shown] for name, texts in cells.items()})
    rest = len(front) - len(shown)
    return [*table.splitlines(), *([f"and {rest} more on the front"] if rest else [])]


def _importance_lines(shares: Importances) -> list[str]:
    texts = {
        name: ", ".join(f"{key} {100 * share:.0f}%" for key, share in parameters.items())
        for name, parameters in shares.items()
        if parameters
    }
    parts = texts.values() if len(shares) == 1 else [f"for {name} {text}" for name, text in texts.items()]
    return [f"importance: {'; '.join(parts)}"] if texts else []


def _too_few_lines(single: Mapping[Metric, optuna.Study]) -> list[str]:
    counts = [len(complete_trials(study)) for study in single.values()]
    if not 0 < min(counts) < MIN_TRIALS:
        return []
    are = "is" if min(counts) == 1 else "are"
    return [f"no importance and no contours: they need {MIN_TRIALS} complete trials, but there {are} {min(counts)}"]


def _text(value: Any, percent: bool = False) -> str:
    """Return a value with four significant figures; a share as a percentage if `percent`."""
    if percent and math.isfinite(value):
        return f"{100 * value:.4g}%"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}".replace("e-0", "e-")
    return format_value(value)
