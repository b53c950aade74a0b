"""Small studies for the tests of figures and tables of studies."""

import math
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from sweeper.spec.metric import Metric

KNN, NLL, SECONDS = Metric("knn", "maximize", percent=True), Metric("nll", "minimize"), Metric("seconds", "minimize")
SPACE: dict[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "beta": FloatDistribution(0.0, 1.0),
    "width": IntDistribution(32, 512, log=True),
    "act": CategoricalDistribution(["relu", "gelu"]),
    "nu": CategoricalDistribution([None, 1.0, math.inf]),
}
STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


def accuracy(params: dict[str, Any]) -> float:
    return 0.9 - 0.05 * (math.log10(params["lr"]) + 2.5) ** 2 - 0.2 * params["beta"]


def random_study(
    count: int, *objectives: Metric, space: dict[str, BaseDistribution] = SPACE, warm: int = 0
) -> optuna.Study:
    """Return a study of `count` trials, the first `warm` of them from a warm start.

    Every fifth trial fails. With one objective, another fifth is pruned after the second report.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        directions=[metric.ranking_direction for metric in objectives], sampler=optuna.samplers.RandomSampler(seed=3)
    )
    for number in range(count):
        trial = study.ask(space)
        trial.set_user_attr("trial_id", f"t{number}")
        if number < warm:
            trial.set_user_attr("warm", True)
        value = accuracy({"lr": 1e-3, "beta": 0.5, **trial.params})
        values = {"knn": value, "nll": -math.log(value), "seconds": 1 + trial.params.get("width", 50) / 100}
        if number % 5 == 3:
            study.tell(trial, state=TrialState.FAIL)
        elif number % 5 == 4 and len(objectives) == 1:
            trial.report(0.3, 2)
            trial.report(0.4, 6)
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, [values[metric.name] for metric in objectives])
    return study


def study_of(values: list[float], space: dict[str, BaseDistribution], state: str = "complete") -> optuna.Study:
    """Return a study to be maximized, whose trials have these values and this state."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    for value in values:
        trial = study.ask(space)
        study.tell(trial, value if state == "complete" else None, state=STATES[state])
    return study
