"""Optuna's ask-and-tell interface in waves.

A study is kept in memory only. To continue it, ask for all its waves again with the recorded parameters and tell the
recorded results. The proposals that follow equal those of an uninterrupted study, trial by trial.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweeper.definition.space import WARM, Study, Value, bounds
from sweeper.report.optuna_log import quiet
from sweeper.search.samplers import NEEDS_VALUES, RECORDS_PROPOSALS, NumberedSampler

Status = Literal["finished", "pruned", "diverged", "failed"]
UNKNOWN_VIOLATION = 1.0
"""By how much a trial at least violates a constraint on a column that it has no value of: by the whole bound."""


class ProposedTrial(NamedTuple):
    number: int
    """Number of the trial in its study, from 0."""
    params: dict[str, Value]
    """Value of every key that it draws."""


@dataclass(frozen=True)
class TrialResult:
    number: int
    """Number under which the trial was proposed."""
    status: Status
    values: tuple[float | None, ...]
    """Final value of each objective, in the order of the search's objectives. Used only if the trial finished."""
    reached: Mapping[int, float] = field(default_factory=dict)
    """Epoch -> objective reported at that epoch. Empty for a search with several objectives."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """User attributes shown by Optuna's figures and tables, such as the trial's id."""
    constrained: tuple[float | None, ...] = ()
    """Value of the column of each constraint, in the order of the search's constraints; of a pruned trial that of its
    last report."""


class AskTellStudy:
    """Optuna study that proposes trials in waves and is told their results.

    Trial numbers start at 0 and do not count the warm-start trials, which come first in the Optuna study.
    """

    def __init__(self, study: Study, warm: Sequence[tuple[Mapping[str, Value], tuple[float, ...]]] = ()) -> None:
        """`warm` holds the parameters of finished trials of another sweep, which must be legal here, and their
        objectives, followed by the columns of the constraints."""
        search = study.search
        self._study, self._search = study, search
        self._space = dict(sorted(search.space.items()))
        self._running: dict[int, optuna.Trial] = {}
        self._finished: dict[int, tuple[float, ...]] = {}
        self._imputed: dict[int, TrialState] = {}
        """Number -> true state of the trials that the sampler sees as complete, with an imputed value."""
        warm_trials = [self._complete(params, values) for params, values in warm]
        self._warm_count = len(warm_trials)
        self._known_values = [tuple(trial.values) for trial in warm_trials]
        self._worst_violations = [UNKNOWN_VIOLATION for _ in search.constraints]
        self._know_violations([list(trial.constraints.values()) for trial in warm_trials])
        with quiet():
            self._optuna = self._empty(NumberedSampler(search, warm_trials))
            self._optuna.add_trials(warm_trials)

    def ask(self, count: int, known: Mapping[int, Mapping[str, Value]] = MappingProxyType({})) -> list[ProposedTrial]:
        """Propose the next `count` trials.

        `known` maps a trial number to the parameters it got in an earlier run; these are proposed again unchanged.
        Raises ValueError if known parameters lie outside the search space.
        """
        first = len(self._optuna.get_trials(deepcopy=False)) - self._warm_count
        numbers = range(first, first + count)
        recorded = {number: self._native(known[number]) for number in numbers if number in known}
        with quiet():
            return [ProposedTrial(number, self._ask(number, recorded.get(number))) for number in numbers]

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Tell the results of a wave, in any order.

        Raises ValueError, and tells none, if a trial is not running, appears twice, finished without all its values, or
        has not one value for each constraint, which those that diverged or failed need not have.
        """
        numbers = [result.number for result in results]
        for result in results:
            if result.number not in self._running or numbers.count(result.number) > 1:
                raise ValueError(f"a trial must be told once, after it was asked, but got trial {result.number}")
            if result.status == "finished" and len(result.values) != len(self._search.objectives):
                raise ValueError(
                    f"a finished trial must have a value for each of {len(self._search.objectives)} objectives, but "
                    f"trial {result.number} has {result.values}"
                )
            if result.status in ("finished", "pruned") and len(result.constrained) != len(self._search.constraints):
                raise ValueError(
                    f"a trial must have a value for each of {len(self._search.constraints)} constraints, but trial "
                    f"{result.number} has {result.constrained}"
                )
        finished = {result.number: values for result in results if (values := _finite(result)) is not None}
        self._finished |= finished
        self._known_values += finished.values()
        self._know_violations([self._violations(result) for result in results if result.status == "finished"])
        with quiet():
            for result in sorted(results, key=lambda result: result.number):
                self._tell(result)

    @property
    def optuna_study(self) -> optuna.Study:
        """Optuna study of all trials so far, for figures and storages. Warm-start trials come first."""
        if not self._imputed:
            return self._optuna
        with quiet():
            copy = self._empty(None)
            for trial in self._optuna.get_trials():
                if (state := self._imputed.get(trial.number - self._warm_count)) is not None:
                    last = trial.intermediate_values.get(trial.last_step) if trial.last_step is not None else None
                    trial.values = None if last is None else [last]  # Optuna's convention for pruned trials
                    trial.state = state
                copy.add_trial(trial)
        return copy

    def _ask(self, number: int, recorded: Mapping[str, Value] | None) -> dict[str, Value]:
        if recorded is not None:
            self._optuna.enqueue_trial(dict(recorded))
        trial = self._running[number] = self._optuna.ask(self._space)
        if recorded is not None and self._search.sampler in RECORDS_PROPOSALS:
            _ = trial.relative_params  # makes the sampler count this trial; the recorded parameters stay
        while new := {key: dist for key, dist in self._study.space_of(trial.params).items() if key not in trial.params}:
            for key, distribution in sorted(new.items()):
                _draw(trial, key, distribution)
        return self._native(trial.params)

    def _tell(self, result: TrialResult) -> None:
        """Tell one result to Optuna.

        A sampler that learns from complete trials alone would propose a pruned or diverged trial's region again. It is
        told an imputed value: the last report of a pruned trial, otherwise the worst value so far. So is it of
        constraints: a diverged trial violates them as much as the worst one so far.
        """
        trial = self._running.pop(result.number)
        for key, value in result.attributes.items():
            trial.set_user_attr(key, value)
        one_objective = len(self._search.objectives) == 1
        reached = {epoch: value for epoch, value in result.reached.items() if math.isfinite(value)}
        if result.status != "failed":
            own = self._worst_violations if result.status == "diverged" else self._violations(result)
            for constraint, violation in zip(self._search.constraints, own, strict=True):
                trial.set_constraint(constraint.text, violation)
        if one_objective and result.status in ("finished", "pruned"):
            for epoch, value in sorted(reached.items()):
                trial.report(float(value), int(epoch))
        if result.number in self._finished:
            self._optuna.tell(trial, self._finished[result.number])
            return
        informative = result.status in ("pruned", "diverged")
        state = TrialState.PRUNED if informative and one_objective else TrialState.FAIL
        needs_value = not one_objective or self._search.sampler in NEEDS_VALUES
        if informative and self._known_values and needs_value:
            self._imputed[result.number] = state
            use_last_report = result.status == "pruned" and reached and one_objective
            self._optuna.tell(trial, reached[max(reached)] if use_last_report else self._worst())
        else:
            self._optuna.tell(trial, state=state)

    def _worst(self) -> list[float]:
        columns = zip(self._search.objectives, zip(*self._known_values, strict=True), strict=True)
        return [max(values, key=metric.cost) for metric, values in columns]

    def _violations(self, result: TrialResult) -> list[float]:
        """By how much a trial violates each constraint; as much as the worst one so far where it has no value."""
        pairs = zip(self._search.constraints, result.constrained, self._worst_violations, strict=True)
        return [worst if value is None else constraint.violation(value) for constraint, value, worst in pairs]

    def _know_violations(self, trials: Sequence[Sequence[float]]) -> None:
        """Take the violations of finished trials into the worst of each constraint."""
        self._worst_violations = [max(own) for own in zip(self._worst_violations, *trials, strict=True)]

    def _empty(self, sampler: NumberedSampler | None) -> optuna.Study:
        study = optuna.create_study(
            study_name=self._study.name,
            directions=[metric.ranking_direction for metric in self._search.objectives],
            sampler=sampler,
            pruner=optuna.pruners.NopPruner(),
        )
        study.set_metric_names([metric.name for metric in self._search.objectives])
        return study

    def _complete(self, params: Mapping[str, Value], values: tuple[float, ...]) -> FrozenTrial:
        """Finished Optuna trial. Raises ValueError for parameters outside the space or objectives not finite."""
        objectives, constraints = len(self._search.objectives), self._search.constraints
        if len(values) != objectives + len(constraints) or not all(map(math.isfinite, values)):
            constrained = f" and {len(constraints)} constraints" if constraints else ""
            raise ValueError(
                f"a finished trial must have a finite number for each of {objectives} objectives{constrained}, but got "
                f"{values}"
            )
        pairs = zip(constraints, values[objectives:], strict=True)
        native = self._native(params)
        return create_trial(
            values=values[:objectives],
            params=native,
            distributions=self._study.space_of(native),
            user_attrs={WARM: True},
            constraints={constraint.text: constraint.violation(value) for constraint, value in pairs},
        )

    def _native(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """Convert parameters to the types that the space defines. Raises ValueError for a wrong key or value."""
        space = self._study.space_of(params)
        if params.keys() != space.keys():
            raise ValueError(f"a trial must have a value for each of {', '.join(space)}, but got {dict(params)}")
        return {key: _member(key, distribution, params[key]) for key, distribution in space.items()}


def _draw(trial: optuna.Trial, key: str, distribution: BaseDistribution) -> None:
    """Draw the value of a key that not all trials have."""
    if isinstance(distribution, FloatDistribution):
        trial.suggest_float(key, distribution.low, distribution.high, step=distribution.step, log=distribution.log)
    elif isinstance(distribution, IntDistribution):
        trial.suggest_int(key, distribution.low, distribution.high, step=distribution.step, log=distribution.log)
    else:
        trial.suggest_categorical(key, bounds(distribution))


def _member(key: str, distribution: BaseDistribution, value: Value) -> Value:
    """Value converted to the distribution's type, e.g. 3.0 to 3 or 1 to True. Raises ValueError if outside it."""
    with contextlib.suppress(ValueError):
        internal = distribution.to_internal_repr(value)
        if distribution._contains(internal):
            external: Value = distribution.to_external_repr(internal)
            if not isinstance(value, str) or external == value:
                return float(internal) if isinstance(distribution, FloatDistribution) else external
    raise ValueError(f"{key} must lie in {distribution}, but got {value!r}")


def _finite(result: TrialResult) -> tuple[float, ...] | None:
    """Objectives of a trial that finished with a finite number for each; None for any other trial."""
    values = [float(value) for value in result.values if value is not None and math.isfinite(value)]
    return tuple(values) if result.status == "finished" and len(values) == len(result.values) else None
