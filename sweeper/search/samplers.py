"""Optuna's samplers, created anew for each trial.

A proposal therefore depends only on the results told so far and on the trial's number, not on the history of a process.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweeper.definition.space import Search
from sweeper.planning.cohorts import content_hash

RECORDS_PROPOSALS = ("cmaes", "qmc")
"""Samplers that record their proposals in the study. They must be asked even for a trial whose parameters are known."""
NEEDS_VALUES = ("gp", "cmaes")
"""Samplers that ignore trials without a value, and would propose the region of a pruned or diverged trial again."""
STARTUP_TRIALS = 10
"""Number of random trials before TPE or a Gaussian process fits a model."""


class NumberedSampler(BaseSampler):
    """Sampler of a search, seeded anew for each trial by the search's seed and the trial's number.

    The search space is fixed from the first trial on, whereas Optuna infers it from completed trials: all keys that
    every trial draws are drawn together, and so are those that a trial draws on one condition.
    """

    def __init__(self, search: Search, warm: Sequence[FrozenTrial]) -> None:
        """`warm` holds the warm-start trials, which precede the search's trial 0 in the Optuna study."""
        self._search, self._warm = search, tuple(warm)
        self._space = dict(sorted(_varied(search.space).items()))
        self._spaces = [dict(sorted(_varied(condition.space).items())) for condition in search.conditions]
        self._drawn: dict[str, Any] = {}
        """Values of keys on a condition that the trial has drawn together with the first one."""

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._sampler, self._drawn = _make(self._search, trial.number - len(self._warm), self._warm), {}

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._space

    def sample_relative(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self._sampler.sample_relative(*args, **kwargs)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        space = next((space for space in self._spaces if param_name in space), None)
        if space and not space.keys() & self._drawn.keys():
            self._drawn |= self._sampler.sample_relative(study, trial, space)
        if param_name in self._drawn:
            return self._drawn[param_name]
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)


class WaveNSGAIISampler(NSGAIISampler):
    """NSGA-II in which each wave is a generation; warm-start trials are generation 0.

    Optuna's own sampler starts a generation only when the previous one has `population_size` finished trials, so one
    failed trial would cost a whole wave.
    """

    def __init__(self, wave: int, warm: int, seed: int) -> None:
        super().__init__(population_size=max(2, wave), seed=seed)
        self._wave, self._warm = wave, warm

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
        return max(0, 1 + (trial.number - self._warm) // self._wave)

    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return [trial for trial in finished if self.get_trial_generation(study, trial) == generation]

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        parents = super().get_parent_population(study, generation)  # order differs between the first and later calls
        return sorted(parents, key=lambda trial: trial.number) if len(parents) > 1 else []  # crossover needs two


def _make(search: Search, number: int, warm: Sequence[FrozenTrial]) -> BaseSampler:
    """Sampler for the trial `number`. CMA-ES and quasi-Monte Carlo share the search's seed."""
    trial_seed, search_seed = _seed(search.seed, number), _seed(search.seed)
    independent: dict[str, Any] = {
        "independent_sampler": RandomSampler(seed=trial_seed),
        "warn_independent_sampling": False,
    }
    match search.sampler:
        case "tpe":
            startup = max(STARTUP_TRIALS, search.wave)
            return TPESampler(multivariate=True, constant_liar=True, n_startup_trials=startup, seed=trial_seed)
        case "gp":
            return GPSampler(n_startup_trials=STARTUP_TRIALS, seed=trial_seed, warn_independent_sampling=False)
        case "cmaes":
            return CmaEsSampler(
                n_startup_trials=0,
                popsize=_generation_size(search),
                source_trials=_source_trials(search, warm),
                seed=search_seed,  # Optuna adds the trial's number
                **independent,
            )
        case "nsga2":
            return WaveNSGAIISampler(search.wave, len(warm), seed=trial_seed)
        case "qmc":
            return QMCSampler(scramble=True, seed=search_seed, **independent)
        case "random":
            return RandomSampler(seed=trial_seed)


def _generation_size(search: Search) -> int:
    """Trials in a generation of CMA-ES: `4 + floor(3 ln d)` for d hyperparameters, rounded up to whole waves."""
    least = 4 + math.floor(3 * math.log(len(search.space)))
    return math.ceil(least / search.wave) * search.wave


def _source_trials(search: Search, warm: Sequence[FrozenTrial]) -> list[FrozenTrial] | None:
    """Warm-start trials for CMA-ES, which starts from the best tenth of them; None for fewer than ten."""
    if len(warm) < 10:
        return None
    space = _varied(search.space)
    return [
        create_trial(values=trial.values, params={key: trial.params[key] for key in space}, distributions=space)
        for trial in warm
    ]


def _varied(space: Mapping[str, BaseDistribution]) -> dict[str, BaseDistribution]:
    return {key: distribution for key, distribution in space.items() if not distribution.single()}


def _seed(*content: int) -> int:
    return int(content_hash(content)[:8], 16)
