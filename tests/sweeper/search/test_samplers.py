"""Samplers learn from whole waves, from pruned and diverged trials, and from warm starts."""

import functools
import itertools
import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from optuna.trial import TrialState

from sweeper.definition.pruners import Halving
from sweeper.search.ask_tell import AskTellStudy, TrialResult
from tests.sweeper.search.toys import AUROC, CUBE, LOSS, NUMBERS, SQUARE, Params, loss, study, waves

WAVE = 8


def bowl(params: Params) -> float:
    return sum((value - 0.3) ** 2 for value in params.values())


def finished(value: Callable[[Params], float]) -> Callable[[Any], TrialResult]:
    return lambda trial: TrialResult(trial.number, "finished", (value(trial.params),))


@functools.cache
def best(sampler: str, seed: int) -> float:
    """Lowest value of 64 trials, or of 32 with the Gaussian process, whose proposals slow down as trials increase."""
    engine = AskTellStudy(study(sampler, CUBE, wave=WAVE, seed=seed))
    trials = waves(engine, 4 if sampler == "gp" else 8, finished(bowl), size=WAVE)
    lowest = min(trials, key=lambda trial: bowl(trial.params))
    assert engine.optuna_study.best_trial.number == lowest.number
    return bowl(lowest.params)


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "seeds"), [("tpe", 5), ("cmaes", 5), ("gp", 1)])
def test_in_waves_samplers_find_better_trials_than_random_draws(sampler: str, seeds: int) -> None:
    at_random = statistics.median(best("random", seed) for seed in range(7))
    assert statistics.median(best(sampler, seed) for seed in range(seeds)) < at_random / 2


def test_a_wave_of_the_gaussian_process_is_spread() -> None:
    """Each trial sees the earlier ones of its wave as running, so none repeats though all seek the same maximum."""
    engine = AskTellStudy(study("gp", SQUARE, wave=WAVE))
    waves(engine, 2, finished(bowl), size=WAVE)
    points = [(params["x"], params["y"]) for _, params in waves(engine, 1, finished(bowl), size=WAVE)]
    distances = [math.dist(point, other_point) for point, other_point in itertools.combinations(points, 2)]
    assert min(distances) > 1e-3 and statistics.mean(distances) > 0.03


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_proposal_depends_on_those_before_it_in_its_wave(sampler: str) -> None:
    begun = 2 * WAVE
    without = waves(AskTellStudy(study(sampler, SQUARE, wave=WAVE)), 3, finished(bowl), size=WAVE)[begun + 1 :]
    near = {key: value + 0.01 for key, value in without[0].params.items()}
    recorded = waves(AskTellStudy(study(sampler, SQUARE, wave=WAVE)), 3, finished(bowl), {begun: near}, WAVE)[
        begun + 1 :
    ]
    assert [trial.params for trial in recorded] != [trial.params for trial in without]


@functools.cache
def spoilt(sampler: str, status: Any, metric: Any, seeds: int) -> int:
    """Number of trials with x < 0.6 after the first three waves. All such trials end with `status`."""
    count, length = 0, 4 if sampler == "gp" else 8
    for seed in range(seeds):

        def outcome(trial: Any) -> TrialResult:
            x, y = trial.params["x"], (trial.params["y"], 0.5)[: 1 if metric is LOSS else 2]
            return (
                TrialResult(trial.number, "finished", y)
                if x >= 0.6
                else TrialResult(trial.number, status, (None,), {1: 5.0})
            )

        engine = AskTellStudy(study(sampler, SQUARE, wave=WAVE, seed=seed, metric=metric))
        asked_trials = waves(engine, length, outcome, size=WAVE)
        count += sum(trial.params["x"] < 0.6 for trial in asked_trials[3 * WAVE :])
        assert {trial.state.name for trial in engine.optuna_study.trials} == {"COMPLETE", SHOWN[metric, status]}
        assert [trial.number for trial in engine.optuna_study.trials if trial.state == TrialState.COMPLETE] == [
            trial.number for trial in asked_trials if trial.params["x"] >= 0.6
        ]
    return count


SHOWN = {(LOSS, "pruned"): "PRUNED", (LOSS, "diverged"): "PRUNED", (LOSS, "failed"): "FAIL"} | {
    ((LOSS, AUROC), status): "FAIL" for status in ("diverged", "failed")
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "seeds", "status"),
    [
        ("tpe", 4, "diverged"),
        ("tpe", 4, "pruned"),
        ("cmaes", 4, "diverged"),
        ("cmaes", 4, "pruned"),
        ("gp", 1, "diverged"),
    ],
)
def test_samplers_propose_less_where_trials_diverge_or_are_pruned(sampler: str, seeds: int, status: str) -> None:
    """A failed trial carries no information about its parameters, so a model keeps proposing that region. The Gaussian
    process, which takes long, is told the same of a pruned trial as CMA-ES."""
    assert spoilt(sampler, status, LOSS, seeds) < spoilt(sampler, "failed", LOSS, seeds) * 0.7


@pytest.mark.slow
def test_with_several_objectives_samplers_avoid_where_trials_diverge() -> None:
    several = (LOSS, AUROC)
    assert spoilt("tpe", "diverged", several, 4) < spoilt("tpe", "failed", several, 4) * 0.7


def test_a_generation_of_cma_es_is_a_wave_though_members_are_pruned_or_diverge() -> None:
    engine = AskTellStudy(study("cmaes", NUMBERS, wave=WAVE, pruner=Halving(1)))

    def outcome(trial: Any) -> TrialResult:
        statuses: Any = ("finished", "pruned", "diverged", "pruned")
        return TrialResult(trial.number, statuses[trial.number % 4], (loss(trial.params),), {1: 1 + loss(trial.params)})

    waves(engine, 4, outcome, size=WAVE)
    generations = [trial.system_attrs["cma:generation"] for trial in engine.optuna_study.trials]
    assert generations == [n // WAVE for n in range(4 * WAVE)]
    states = {trial.state for trial in engine.optuna_study.trials}
    assert states == {TrialState.COMPLETE, TrialState.PRUNED}


def test_small_waves_make_up_a_generation_of_cma_es_together() -> None:
    engine = AskTellStudy(study("cmaes", NUMBERS, wave=3))
    waves(engine, 7, finished(loss), size=3)
    generations = [trial.system_attrs["cma:generation"] for trial in engine.optuna_study.trials]
    assert generations == [n // 9 for n in range(21)]  # of at least 4 + 3 ln 3


def test_cma_es_begins_where_ten_warm_trials_were_best() -> None:
    warm = [({"x": n / 20, "y": 0.9}, (abs(n - 1.0),)) for n in range(20)]
    engine = AskTellStudy(study("cmaes", SQUARE, wave=WAVE), warm)
    assert all(params["x"] < 0.4 and params["y"] > 0.6 for _, params in waves(engine, 1, finished(bowl), size=WAVE))
    few = waves(AskTellStudy(study("cmaes", SQUARE, wave=WAVE), warm[:9]), 1, finished(bowl), size=WAVE)
    assert any(params["x"] > 0.5 for _, params in few)  # around the middle, as without any


def test_generations_of_nsga2_go_on_though_members_fail_and_near_the_front() -> None:
    """One objective is best at low x, the other at high x, and both at y = 1, which is therefore the front."""

    def outcome(trial: Any) -> TrialResult:
        x, away = trial.params["x"], (1 - trial.params["y"]) ** 2
        values = (None, None) if trial.number % 5 == 2 else (x + away, x - away)
        return TrialResult(trial.number, "failed" if None in values else "finished", values)

    engine = AskTellStudy(study("nsga2", SQUARE, metric=(LOSS, AUROC), wave=WAVE))
    proposed = waves(engine, 12, outcome, size=WAVE)
    values: dict[int, Any] = {trial.number: outcome(trial).values for trial in proposed if trial.number % 5 != 2}
    beaten = {n for n, (a, b) in values.items() for c, d in values.values() if c <= a and d >= b and (c, d) != (a, b)}
    assert len(set(values) - beaten) > 5
    assert {trial.number for trial in engine.optuna_study.best_trials} == set(values) - beaten
    first, second = ({trial.params["x"] for trial in wave} for wave in (proposed[:WAVE], proposed[WAVE : 2 * WAVE]))
    assert first & second  # children, though one of the first wave failed
    away = [1 - params["y"] for _, params in proposed]
    assert statistics.mean(away[-2 * WAVE :]) < statistics.mean(away[: 2 * WAVE]) / 2


def test_nsga2_takes_warm_trials_as_parents() -> None:
    warm = [({"x": n / 64, "y": 0.5}, (float(n),)) for n in range(5)]
    trials = AskTellStudy(study("nsga2", SQUARE, wave=WAVE), warm).ask(WAVE)
    assert sum(params["x"] in [n / 64 for n in range(5)] for _, params in trials) >= 2
    alone = AskTellStudy(study("nsga2", SQUARE, wave=WAVE), warm[:1]).ask(WAVE)
    assert len({params["x"] for _, params in alone} | {0.0}) == WAVE + 1


@pytest.mark.parametrize("known", [{}, {0: {"x": 0.11, "y": 0.22}}])
def test_sobol_points_cover_each_axis_evenly(known: Any) -> None:
    """Each of 2^k equal parts of an axis holds one of 2^k scrambled points. A recorded trial replaces its point."""
    trials = waves(AskTellStudy(study("qmc", SQUARE, wave=16)), 1, finished(bowl), known, size=16)
    points = [trial.params for trial in trials if trial.number not in known]
    for key in SQUARE:
        cells = [int(16 * point[key]) for point in points]
        assert len(set(cells)) == len(points)
