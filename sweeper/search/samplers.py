"""Optuna's samplers, made anew for each trial: a proposal depends on what was told and on the trial's number alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import (
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweeper.plan.trials import content_hash
from sweeper.spec.search import Search

KEEPS_COUNT = ("cmaes", "qmc")
"""Samplers that write into the study what they proposed: they must be asked even for a trial whose values are known."""
LEARNS_FROM_VALUES_ALONE = ("gp", "cmaes")
"""Samplers to which a trial without a value is no trial: they would propose again what was pruned or diverged."""
STARTUP = 10
"""Trials before a model is fitted to them."""


class NumberedSampler(BaseSampler):
    """The search's sampler, seeded by the search and the number of each trial.

    The space is known from the start, not found out from the first trials as Optuna would.
    """

    def __init__(self, search: Search, warm: Sequence[FrozenTrial]) -> None:
        """`warm`: trials before the search's own number 0."""
        self._search = search
        self._warm = tuple(warm)
        self._space = {key: one for key, one in sorted(search.space.items()) if not one.single()}

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._sampler = _make(self._search, trial.number - len(self._warm), self._warm)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)


class WaveNSGAIISampler(NSGAIISampler):
    """A generation is a wave, of which those that finished may be parents; warm trials are generation 0.

    Optuna's own begins a generation only when the one before has all its members, and draws at random until the
    first has: a wave with one failure would cost another wave.
    """

    def __init__(self, wave: int, warm: int, seed: int) -> None:
        super().__init__(population_size=max(2, wave), seed=seed)
        self._wave = wave
        self._warm = warm

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
        return max(0, 1 + (trial.number - self._warm) // self._wave)

    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return [trial for trial in finished if self.get_trial_generation(study, trial) == generation]

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        parents = super().get_parent_population(study, generation)  # best first, but in order when asked again
        return sorted(parents, key=lambda trial: trial.number) if len(parents) > 1 else []  # a crossover needs two


def _make(search: Search, number: int, warm: Sequence[FrozenTrial]) -> BaseSampler:
    """The sampler for one trial; what does not depend on `number` is what continues a sequence."""
    own, common = _seed(search.seed, number), _seed(search.seed)
    match search.sampler:
        case "tpe":
            startup = max(STARTUP, search.wave)
            return TPESampler(multivariate=True, constant_liar=True, n_startup_trials=startup, seed=own)
        case "gp":
            return GPSampler(n_startup_trials=STARTUP, seed=own, warn_independent_sampling=False)
        case "cmaes":
            return CmaEsSampler(
                n_startup_trials=0,
                popsize=_generation(search),
                source_trials=_source(search, warm),
                independent_sampler=RandomSampler(seed=own),
                warn_independent_sampling=False,
                seed=common,  # Optuna adds the trial's number
            )
        case "nsga2":
            return WaveNSGAIISampler(search.wave, len(warm), seed=own)
        case "qmc":
            return QMCSampler(
                scramble=True,
                independent_sampler=RandomSampler(seed=own),
                warn_independent_sampling=False,
                seed=common,
            )
        case "random":
            return RandomSampler(seed=own)


def _generation(search: Search) -> int:
    """Trials of a generation of CMA-ES: the least number of whole waves that its author's rule asks for."""
    least = 4 + math.floor(3 * math.log(len(search.space)))
    return math.ceil(least / search.wave) * search.wave


def _source(search: Search, warm: Sequence[FrozenTrial]) -> list[FrozenTrial] | None:
    """The warm trials as CMA-ES begins from them (the best tenth, so ten at least), without constants."""
    if len(warm) < 10:
        return None
    keys = [key for key, one in search.space.items() if not one.single()]
    return [
        create_trial(
            values=trial.values,
            params={key: trial.params[key] for key in keys},
            distributions={key: search.space[key] for key in keys},
        )
        for trial in warm
    ]


def _seed(*content: int) -> int:
    """32 bits that depend on the content alone."""
    return int(content_hash(content)[:8], 16)
