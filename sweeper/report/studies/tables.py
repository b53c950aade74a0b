"""A study as data: a table of its trials, and how much each parameter mattered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from sweeper.spec.metric import Metric
from sweeper.spec.search import WARM

STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
DIVERGED = "diverged"
"""The state of a trial whose row says so, which Optuna knows as pruned or failed."""
BEYOND = "beyond"
FAR = 10.0
"""Interquartile ranges from the nearer quartile, beyond which a value is cut."""
LEAST = 20
"""Complete trials below which neither importances nor contours are told: they would be noise."""
TREES = {"n_trees": 32, "max_depth": 6, "seed": 0}
"""Of the forest that importances are read from: 0.2 s for 256 trials. More, or deeper ones, order parameters no better;
PED-ANOVA, Optuna's default, takes 5 ms, but where TPE chose the trials its order has little to do with the truth."""


def tabulate(study: optuna.Study, objectives: Sequence[Metric]) -> pd.DataFrame:
    """One row for each finished trial: number, trial_id, state, warm, step (of its last report), its parameters, the
    objectives, and for each of these the best so far of complete trials. States: complete, pruned, diverged, failed.

    A pruned trial has its last report for the objective. Numbers stay numbers, choices of several types become text.
    """
    trials = study.get_trials(deepcopy=False, states=tuple(STATES))
    columns: dict[str, pd.Series] = {
        "number": pd.Series([trial.number for trial in trials], dtype="int64"),
        "trial_id": pd.Series([trial.user_attrs.get("trial_id") for trial in trials], dtype="str"),
        "state": pd.Series([_state(trial) for trial in trials], dtype="str"),
        "warm": pd.Series([bool(trial.user_attrs.get(WARM)) for trial in trials], dtype="bool"),
        "step": pd.Series([trial.last_step for trial in trials], dtype="Int64"),
    }
    columns |= {key: _typed([trial.params.get(key) for trial in trials]) for key in parameters(study)}
    for place, metric in enumerate(objectives):
        values = pd.Series([_values(trial, len(objectives))[place] for trial in trials], dtype="float64")
        complete = values.where((columns["state"] == "complete") & np.isfinite(values))
        best = complete.cummax() if metric.better == "maximize" else complete.cummin()
        columns |= {metric.name: values, f"best_{metric.name}": best.ffill()}
    return pd.DataFrame(columns)


def parameters(study: optuna.Study) -> list[str]:
    """In the order of their first appearance."""
    return list(dict.fromkeys(key for trial in study.get_trials(deepcopy=False) for key in trial.params))


def read_in(study: optuna.Study, objectives: Sequence[Metric], only: Metric | None = None) -> optuna.Study:
    """The study with all objectives, or only one, and shares in percent; trials are numbered as they were.

    What is not complete, or has a value that is not finite, is failed there. Of only one objective values far off the
    others on the worse side are cut (`beyond`): one diverged trial would hide what the others have to say.
    """
    chosen = [place for place, metric in enumerate(objectives) if only in (None, metric)]
    copy = optuna.create_study(directions=[objectives[place].better for place in chosen])
    trials = study.get_trials(deepcopy=False)
    found = [[_values(trial, len(objectives))[place] for place in chosen] for trial in trials]
    told = [
        trial.state == TrialState.COMPLETE and all(map(math.isfinite, values))
        for trial, values in zip(trials, found, strict=True)
    ]
    low, high = _fence([values[0] for values, ok in zip(found, told, strict=True) if ok], only)
    for trial, values, ok in zip(trials, found, told, strict=True):
        cut = [min(max(value, low), high) for value in values]
        shown = [
            value * (100.0 if objectives[place].percent else 1.0) for value, place in zip(cut, chosen, strict=True)
        ]
        copy.add_trial(
            optuna.trial.create_trial(
                state=TrialState.COMPLETE if ok else TrialState.FAIL,
                values=shown if ok else None,
                params=trial.params if ok else {},
                distributions=trial.distributions if ok else {},
                user_attrs={WARM: bool(trial.user_attrs.get(WARM)), BEYOND: ok and cut != values},
            )
        )
    return copy


def beyond(study: optuna.Study) -> int:
    """How many values `read_in` cut."""
    return sum(bool(trial.user_attrs.get(BEYOND)) for trial in complete(study))


def weigh(study: optuna.Study) -> dict[str, float]:
    """Parameter -> its share of the variance of the one objective (fANOVA), descending; they add to 1.

    Empty where that cannot be said: with fewer than LEAST complete trials, one parameter, or values that are all the
    same. Parameters are taken as they are searched, those of log distributions by their logarithms. Equal studies,
    equal numbers.
    """
    keys = varied(study)
    trials = [trial for trial in complete(study) if set(keys) <= set(trial.params)]
    if len(trials) < LEAST or len(keys) < 2 or len({trial.value for trial in trials}) < 2:
        return {}
    scales = {key: _scale([trial.distributions[key] for trial in trials]) for key in keys}
    even = optuna.create_study()
    for trial in trials:
        values = {key: math.log(trial.params[key]) if scales[key][1] else trial.params[key] for key in keys}
        space = {key: scales[key][0] for key in keys}
        even.add_trial(optuna.trial.create_trial(value=trial.value, params=values, distributions=space))
    evaluator = optuna.importance.FanovaImportanceEvaluator(**TREES)
    try:
        found = optuna.importance.get_param_importances(even, evaluator=evaluator, params=keys)
    except RuntimeError:  # no tree finds a difference
        return {}
    return dict(sorted(((key, float(found[key])) for key in keys), key=lambda one: -one[1]))


def undominated(study: optuna.Study) -> list[int]:
    """The trials that no other is better than in all objectives; of one objective the best trial."""
    if not complete(study):
        return []
    best = study.best_trials if len(study.directions) > 1 else [study.best_trial]
    return [trial.number for trial in best]


def complete(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def varied(study: optuna.Study) -> list[str]:
    """Parameters that have at least two values in complete trials, sorted."""
    values: dict[str, set[object]] = {}
    for trial in complete(study):
        for key, value in trial.params.items():
            values.setdefault(key, set()).add(value)
    return sorted(key for key, found in values.items() if len(found) > 1)


def numeric(study: optuna.Study, key: str) -> bool:
    """Whether a parameter is a number in a range, and no choice."""
    found = [trial.distributions[key] for trial in complete(study) if key in trial.distributions]
    return not any(isinstance(one, CategoricalDistribution) for one in found)


def _fence(values: Sequence[float], metric: Metric | None) -> tuple[float, float]:
    """Lowest and highest value that a picture of the metric shows; shares are bounded already."""
    if metric is None or metric.percent or not values:
        return -math.inf, math.inf
    quarter, three = np.quantile(values, [0.25, 0.75])
    far = FAR * float(three - quarter) or math.inf
    return (-math.inf, float(three) + far) if metric.better == "minimize" else (float(quarter) - far, math.inf)


def _scale(found: Sequence[Any]) -> tuple[BaseDistribution, bool]:
    """One distribution that holds all that these do (trials of an earlier search may have others), and whether it is
    of logarithms."""
    if any(isinstance(one, CategoricalDistribution) for one in found):
        lists = [one.choices if isinstance(one, CategoricalDistribution) else (one.low, one.high) for one in found]
        return CategoricalDistribution(list(dict.fromkeys(choice for choices in lists for choice in choices))), False
    low, high = min(one.low for one in found), max(one.high for one in found)
    logs = all(one.log for one in found)
    return (FloatDistribution(math.log(low), math.log(high)), True) if logs else (FloatDistribution(low, high), False)


def _values(trial: FrozenTrial, objectives: int) -> list[float]:
    """The values of a trial; of a pruned one its last report, NaN where there is none."""
    if trial.state == TrialState.PRUNED and trial.last_step is not None:
        return [trial.intermediate_values[trial.last_step]] * objectives
    return list(trial.values) if trial.values else [math.nan] * objectives


def _state(trial: FrozenTrial) -> str:
    return DIVERGED if trial.user_attrs.get("status") == DIVERGED else STATES[trial.state]


def _typed(values: Sequence[Any]) -> pd.Series:
    """A column of the narrowest type that holds all of them."""
    types = {type(value) for value in values if value is not None}
    whole = None not in values
    if types == {bool}:
        return pd.Series(values, dtype="bool" if whole else "boolean")
    if types == {int}:
        return pd.Series(values, dtype="int64" if whole else "Int64")
    if types <= {int, float}:
        return pd.Series(values, dtype="float64")
    return pd.Series([None if value is None else str(value) for value in values], dtype="str")
