"""A study's trials, proposed by Optuna in waves: ask for a wave, tell how each of it went, ask for the next.

The store of rows is the truth, this only memory: a continued study asks for all its waves again, gives the values that
were recorded, and tells what was recorded. What then follows equals an uninterrupted study's, number by number.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweeper.search.samplers import KEEPS_COUNT, LEARNS_FROM_VALUES_ALONE, NumberedSampler
from sweeper.spec.grid import Value
from sweeper.spec.search import WARM, Study


class Asked(NamedTuple):
    """A proposal: the number of a trial in its study, and key -> value for all of the search's space."""

    number: int
    params: dict[str, Value]


@dataclass(frozen=True)
class TrialResult:
    """How a trial went."""

    number: int
    """That it was asked with."""
    status: Literal["finished", "pruned", "diverged", "failed"]
    values: tuple[float | None, ...]
    """One an objective, in their order; they count if the trial finished."""
    reached: Mapping[int, float] = field(default_factory=dict)
    """Epoch -> value of the objective at its reports; not where there are several objectives."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """What Optuna's figures and tables show beside it: its id, say."""


class AskTellStudy:
    """A study that is asked for waves of trials and told of them; numbers are its own, from 0, without warm trials."""

    def __init__(self, study: Study, warm: Sequence[tuple[Mapping[str, Value], tuple[float, ...]]] = ()) -> None:
        """`warm`: values and objectives of finished trials of other studies. ValueError for one outside the space."""
        search = study.search
        self._name, self._search = study.name, search
        self._space = dict(sorted(search.space.items()))
        self._running: dict[int, optuna.Trial] = {}
        self._finished: dict[int, tuple[float, ...]] = {}
        self._stand_ins: dict[int, TrialState] = {}
        """Number of a trial that only the sampler sees as complete -> its state."""
        before = [self._complete(params, values) for params, values in warm]
        self._warm = len(before)
        self._known_values = [tuple(trial.values) for trial in before]
        with quiet():
            self._optuna = self._empty(NumberedSampler(search, before))
            self._optuna.add_trials(before)

    def ask(self, count: int, known: Mapping[int, Mapping[str, Value]] = MappingProxyType({})) -> list[Asked]:
        """The next `count` trials; `known`: number -> what it was proposed before, if it was, which it is again."""
        begin = len(self._optuna.get_trials(deepcopy=False)) - self._warm
        recorded = {n: self._native(known[n]) for n in range(begin, begin + count) if n in known}
        with quiet():
            return [Asked(n, self._ask(n, recorded.get(n))) for n in range(begin, begin + count)]

    def tell(self, told: Sequence[TrialResult]) -> None:
        """How the trials of a wave went. ValueError for one that is not running, before any is told."""
        numbers = [one.number for one in told]
        for one in told:
            if one.number not in self._running or numbers.count(one.number) > 1:
                raise ValueError(f"a trial is told once, after it was asked, but got {one.number}")
            if one.status == "finished" and len(one.values) != len(self._search.objectives):
                raise ValueError(
                    f"a trial has a value for each of {len(self._search.objectives)} objectives, but {one.number} "
                    f"has {one.values}"
                )
        finished = {one.number: values for one in told if (values := _finite(one)) is not None}
        self._finished |= finished
        self._known_values += finished.values()
        with quiet():
            for one in sorted(told, key=lambda one: one.number):
                self._tell(one)

    @property
    def optuna_study(self) -> optuna.Study:
        """What was told, as Optuna's figures and storages take it; the warm trials come first."""
        if not self._stand_ins:
            return self._optuna
        with quiet():
            shown = self._empty(None)
            for trial in self._optuna.get_trials():
                if (state := self._stand_ins.get(trial.number - self._warm)) is not None:
                    last = trial.intermediate_values.get(trial.last_step) if trial.last_step is not None else None
                    trial.values = None if last is None else [last]  # as Optuna has it of a pruned one
                    trial.state = state
                shown.add_trial(trial)
        return shown

    @property
    def front(self) -> tuple[int, ...]:
        """Numbers of the finished trials that no other one beats; of one objective the best one and its equals."""
        losses = {number: self._losses(values) for number, values in self._finished.items()}
        kept: list[int] = []
        for number in sorted(losses, key=lambda number: (losses[number], number)):  # none is beaten by a later one
            if not any(_beats(losses[other], losses[number]) for other in kept):
                kept.append(number)
        return tuple(sorted(kept))

    @property
    def best(self) -> int | None:
        """Number of the best trial, the first among equals; None before one has finished. For one objective."""
        if len(self._search.objectives) > 1:
            raise ValueError(f"only of one objective there is a best, but got {len(self._search.objectives)}")
        return min(self.front, default=None)

    def _ask(self, number: int, recorded: Mapping[str, Value] | None) -> dict[str, Value]:
        if recorded is not None:
            self._optuna.enqueue_trial(dict(recorded))
        trial = self._running[number] = self._optuna.ask(self._space)
        if recorded is not None and self._search.sampler in KEEPS_COUNT:
            _ = trial.relative_params  # proposes and keeps count, to no other effect
        return self._native(trial.params)

    def _tell(self, told: TrialResult) -> None:
        trial = self._running.pop(told.number)
        for key, text in told.attributes.items():
            trial.set_user_attr(key, text)
        one_objective = len(self._search.objectives) == 1
        reached = {epoch: value for epoch, value in told.reached.items() if math.isfinite(value)}
        if one_objective and told.status in ("finished", "pruned"):
            for epoch, value in sorted(reached.items()):
                trial.report(float(value), int(epoch))
        if told.number in self._finished:
            self._optuna.tell(trial, self._finished[told.number])
            return
        learns = told.status in ("pruned", "diverged")
        state = TrialState.PRUNED if learns and one_objective else TrialState.FAIL
        if learns and self._known_values and (not one_objective or self._search.sampler in LEARNS_FROM_VALUES_ALONE):
            self._stand_ins[told.number] = state
            early = told.status == "pruned" and reached and one_objective
            self._optuna.tell(trial, reached[max(reached)] if early else self._worst())
        else:
            self._optuna.tell(trial, state=state)

    def _worst(self) -> list[float]:
        """Of each objective the worst value so far."""
        columns = zip(*self._known_values, strict=True)
        return [
            max(column) if metric.better == "minimize" else min(column)
            for metric, column in zip(self._search.objectives, columns, strict=True)
        ]

    def _losses(self, values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(
            value if metric.better == "minimize" else -value
            for metric, value in zip(self._search.objectives, values, strict=True)
        )

    def _empty(self, sampler: NumberedSampler | None) -> optuna.Study:
        study = optuna.create_study(
            study_name=self._name,
            directions=[metric.better for metric in self._search.objectives],
            sampler=sampler,
            pruner=optuna.pruners.NopPruner(),
        )
        study.set_metric_names([metric.name for metric in self._search.objectives])
        return study

    def _complete(self, params: Mapping[str, Value], values: tuple[float, ...]) -> FrozenTrial:
        """A finished trial. ValueError for parameters outside the space or objectives that are not numbers."""
        if len(values) != len(self._search.objectives) or not all(map(math.isfinite, values)):
            raise ValueError(
                f"a finished trial has a number for each of {len(self._search.objectives)} objectives, but got {values}"
            )
        return create_trial(
            values=values, params=self._native(params), distributions=self._space, user_attrs={WARM: True}
        )

    def _native(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """The parameters as plain Python values of the kinds that the space says. ValueError for one outside it."""
        space = self._search.space
        if params.keys() != space.keys():
            raise ValueError(f"a trial has a value for each of {', '.join(space)}, but got {dict(params)}")
        return {key: _member(key, one, params[key]) for key, one in space.items()}


def _member(key: str, distribution: BaseDistribution, value: Value) -> Value:
    """The value as the distribution has it: 3.0 as 3, 1 as True. ValueError for one that it does not have."""
    with contextlib.suppress(ValueError):
        inside = distribution.to_internal_repr(value)
        if distribution._contains(inside):
            found: Value = distribution.to_external_repr(inside)
            if not isinstance(value, str) or found == value:
                return float(inside) if isinstance(distribution, FloatDistribution) else found
    raise ValueError(f"{key} must lie in {distribution}, but got {value!r}")


def _finite(told: TrialResult) -> tuple[float, ...] | None:
    """Its objectives, if it finished with a number for each."""
    values = [float(value) for value in told.values if value is not None and math.isfinite(value)]
    return tuple(values) if told.status == "finished" and len(values) == len(told.values) else None


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether these losses are nowhere higher, and somewhere lower."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what Optuna says of new studies and of experimental functions; elsewhere it speaks as before."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
