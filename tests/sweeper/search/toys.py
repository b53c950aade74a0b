"""Searches over functions that cost nothing to evaluate, for the tests of samplers and studies."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.definition.metric import Metric
from sweeper.definition.space import Search, Study, Value
from sweeper.search.ask_tell import AskTellStudy, TrialResult

LOSS, AUROC = Metric("loss", "minimize"), Metric("auroc", "maximize")
NUMBERS: Mapping[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-4, 1.0, log=True),
    "depth": IntDistribution(1, 9, step=2),
    "beta": FloatDistribution(0.0, 2.0),
}
MIXED = {
    **NUMBERS,
    "kernel": CategoricalDistribution(("imq", None, 2)),
    "whiten": CategoricalDistribution((True, False)),
    "width": FloatDistribution(0.5, 0.5),
}
WAVE = 6
CUBE: Mapping[str, BaseDistribution] = {key: FloatDistribution(0.0, 1.0) for key in "vwxy"}
SQUARE = {key: CUBE[key] for key in "xy"}

Params = Mapping[str, Any]
Outcome = Callable[[Any], TrialResult]
"""`ProposedTrial` -> its result. The argument is Any because the space defines the types of its parameters."""


def study(sampler: Any, space: Mapping[str, BaseDistribution] | None = None, **rules: Any) -> Study:
    """The only study of a search. Its space defaults to MIXED, or to NUMBERS for CMA-ES and the Gaussian process."""
    space = space or (NUMBERS if sampler in ("cmaes", "gp") else MIXED)
    options: dict[str, Any] = {"metric": LOSS, "wave": WAVE, "trials": 600} | rules
    return next(Search(space, {"method": "vje"}, sampler=sampler, **options).studies())


def loss(params: Params) -> float:
    return math.log10(params["lr"] / 0.01) ** 2 + (params["beta"] - 1.5) ** 2 + params["depth"] / 10


def eventful(trial: Any) -> TrialResult:
    """Most trials finish; some are pruned, some diverge, some fail."""
    value, number = loss(trial.params), trial.number
    if number % 7 == 3:
        return TrialResult(number, "pruned", (None,), {2: value + 1, 4: value + 0.5})
    if number % 7 == 5:
        return TrialResult(number, "diverged", (math.nan,))
    if number % 11 == 6:
        return TrialResult(number, "failed", (None,))
    return TrialResult(number, "finished", (value,), {2: value + 1, 8: value})


def two(trial: Any) -> TrialResult:
    """Two objectives of opposite directions, in the order LOSS, AUROC."""
    if trial.number % 7 == 5:
        return TrialResult(trial.number, "diverged", (None, None))
    return TrialResult(trial.number, "finished", (loss(trial.params), 1 - abs(trial.params["beta"] - 0.5)))


def waves(
    engine: AskTellStudy,
    count: int,
    outcome: Outcome,
    known: Mapping[int, Mapping[str, Value]] | None = None,
    size: int = WAVE,
) -> list[Any]:
    """Ask and tell `count` waves of `size` trials. Returns the asked trials."""
    trials: list[Any] = []
    for _ in range(count):
        proposed = engine.ask(size, known or {})
        engine.tell([outcome(trial) for trial in proposed])
        trials += proposed
    return trials
