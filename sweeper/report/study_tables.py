"""A study as data: a table of its trials, its Pareto front, and the importance of each parameter."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from sweeper.definition.metric import Metric
from sweeper.definition.space import MEAN_OF, WARM, bounds

STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
"""Optuna's state of a finished trial -> its name in tables."""
DIVERGED = "diverged"
"""State in tables of a trial whose row is `diverged`. In Optuna it is pruned or failed."""
INFEASIBLE = "infeasible"
"""State in tables of a trial that is complete, but does not meet a constraint."""
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

    The columns are `number`, `trial_id`, `state` (complete, infeasible, pruned, diverged or failed), `warm` (from a
    warm start), `step` (of the last report), the parameters, the objectives, and for each objective `best_NAME`, the
    best value so far of a complete trial. The objective of a pruned trial is its last report. Numeric parameters stay
    numbers; choices of several types become text.

    A trial that is the mean over several has their ids in `trial_id`, joined by commas. Then there are `replicates`,
    the number of seeds, each with the mean over what else repeats, and for each objective `low_NAME` and `high_NAME`,
    the mean's 95 % interval over seeds (`estimates.intervals`).
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
    samples = [trial.user_attrs.get(MEAN_OF) for trial in trials]
    if any(samples):
        counts = [len(sample[0][0]) if sample else 1 for sample in samples]
        columns["replicates"] = pd.Series(counts, dtype="int64")
        for index, metric in enumerate(objectives):
            ends = [_interval(sample[index], metric) if sample else (math.nan, math.nan) for sample in samples]
            for name, end in zip(("low", "high"), zip(*ends, strict=True), strict=True):
                columns[f"{name}_{metric.name}"] = pd.Series(end, dtype="float64")
    return pd.DataFrame(columns)


def _interval(runs: Sequence[Sequence[float | None]], metric: Metric) -> tuple[float, float]:
    """Return the 95 % interval of a mean over runs `[fixed values, seeds]`; NaN if it is not known, or a value is
    missing."""
    from sweeper.results.replicates import interval_of_runs  # here: SciPy takes long to import, few commands need it

    runs_CN = np.array([[math.nan if value is None else value for value in own] for own in runs])
    return interval_of_runs(runs_CN, metric.bounds is not None) if not np.isnan(runs_CN).any() else (math.nan, math.nan)


def parameter_names(study: optuna.Study) -> list[str]:
    """Return the names of all parameters in the order of their first appearance."""
    return list(dict.fromkeys(key for trial in study.get_trials(deepcopy=False) for key in trial.params))


def copy_for_figures(study: optuna.Study, objectives: Sequence[Metric], only: Metric | None = None) -> optuna.Study:
    """Return a copy of the study for figures, with all objectives or `only` one. Trials keep their numbers.

    - Metrics with `percent` are in percent.
    - A trial that is not complete, still runs, is infeasible, or has a value that is not finite, is failed in the copy.
    - With `only`, values that are much worse than the others are cut (see `CUT_DISTANCE`) and have the attribute
      `CUT`: otherwise a single bad trial would compress the scale of all others.
    """
    chosen = [index for index, metric in enumerate(objectives) if only in (None, metric)]
    copy = optuna.create_study(directions=[objectives[index].ranking_direction for index in chosen])
    trials = study.get_trials(deepcopy=False)
    trial_values = [[_values(trial, len(objectives))[index] for index in chosen] for trial in trials]
    usable = [
        trial.state in STATES and _state(trial) == STATES[TrialState.COMPLETE] and all(map(math.isfinite, values))
        for trial, values in zip(trials, trial_values, strict=True)
    ]
    low, high = value_limits([values[0] for values, ok in zip(trial_values, usable, strict=True) if ok], only)
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

    The importances add up to 1. They are of parameters that every complete trial has. The result is empty with fewer
    than `MIN_TRIALS` complete trials, fewer than two varied parameters, or an objective that is constant. Parameters
    with log distributions enter as logarithms. The result is deterministic.
    """
    keys, trials = common_parameters(study), complete_trials(study)
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


def common_parameters(study: optuna.Study) -> list[str]:
    """Return those of `varied_parameters` that every complete trial has: all but those drawn on a condition."""
    trials = complete_trials(study)
    return [key for key in varied_parameters(study) if all(key in trial.params for trial in trials)]


def is_numeric(study: optuna.Study, key: str) -> bool:
    """Return whether the parameter is a number from a range in all complete trials, as opposed to a choice."""
    distributions = (trial.distributions.get(key) for trial in complete_trials(study))
    return not any(isinstance(distribution, CategoricalDistribution) for distribution in distributions)


def value_limits(values: Sequence[float], metric: Metric | None) -> tuple[float, float]:
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
    """Return the name in tables of a finished trial's state."""
    if trial.user_attrs.get("status") == DIVERGED:
        return DIVERGED
    is_beyond = any(violation > 0 for violation in trial.constraints.values())
    return INFEASIBLE if trial.state == TrialState.COMPLETE and is_beyond else STATES[trial.state]


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


def is_log(study: optuna.Study, key: str) -> bool:
    """Whether all complete trials sampled a parameter on a logarithmic scale."""
    kinds = (trial.distributions.get(key) for trial in complete_trials(study))
    return all(getattr(kind, "log", False) for kind in kinds if kind is not None)
