"""Studies propose trials in waves, and a continued study proposes what an uninterrupted one does."""

import functools
import logging
import math
import warnings
from functools import partial
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from sweeper.definition.space import SAMPLERS, SEVERAL_OBJECTIVES, WARM, Study
from sweeper.search.ask_tell import AskTellStudy, ProposedTrial, TrialResult
from tests.cases import for_each
from tests.sweeper.search.toys import AUROC, LOSS, MIXED, NUMBERS, WAVE, eventful, study, two, waves

BOTH = (LOSS, AUROC)
INSIDE: dict[str, Any] = {"lr": 0.01, "depth": 3, "beta": 1.0, "kernel": None, "whiten": True, "width": 0.5}
OUTCOMES = {1: eventful, 2: two}
RECORDED = {
    "three waves": [*range(18)],
    "half of the third wave": [*range(12), 13, 16, 17],
    "each other trial": [*range(0, 24, 2)],
    "half of the first wave": [0, 3, 4],
}
CASES = [
    pytest.param(sampler, objectives, recorded, id=f"{sampler}-{objectives}-{name}")
    for objectives, samplers in ((1, SAMPLERS), (2, SEVERAL_OBJECTIVES))
    for sampler in samplers
    if sampler != "gp"
    for name, recorded in RECORDED.items()
] + [pytest.param("gp", 1, RECORDED["half of the third wave"], id="gp-1", marks=pytest.mark.slow)]
"""Of the Gaussian process, whose proposals take long, one: it is seeded like the others."""


def states(engine: AskTellStudy) -> list[TrialState]:
    return [trial.state for trial in engine.optuna_study.trials]


@for_each("sampler", SAMPLERS)
def test_equal_seeds_propose_equal_trials_and_other_seeds_do_not(sampler: str) -> None:
    first, again, other = (waves(AskTellStudy(study(sampler, seed=seed)), 2, eventful) for seed in (0, 0, -1))
    assert first == again
    assert all(trial.params["lr"] != changed.params["lr"] for trial, changed in zip(first, other, strict=True))


@functools.cache
def uninterrupted(sampler: str, objectives: int) -> list[ProposedTrial]:
    return waves(AskTellStudy(study_of(sampler, objectives)), 4, OUTCOMES[objectives])


def study_of(sampler: str, objectives: int) -> Study:
    return study(sampler, metric=BOTH if objectives > 1 else LOSS)


@pytest.mark.parametrize(("sampler", "objectives", "recorded"), CASES)
def test_a_continued_study_equals_the_uninterrupted_one(sampler: str, objectives: int, recorded: list[int]) -> None:
    whole = uninterrupted(sampler, objectives)
    assert [trial.number for trial in whole] == list(range(4 * WAVE))
    known = {number: whole[number].params for number in recorded}
    assert waves(AskTellStudy(study_of(sampler, objectives)), 4, OUTCOMES[objectives], known) == whole


@for_each("sampler", SAMPLERS)
def test_recorded_parameters_are_proposed_again_even_if_others_would_be(sampler: str) -> None:
    search = study(sampler)
    keys = search.search.space
    recorded = {
        n: {key: value for key, value in (INSIDE | {"beta": n / 64}).items() if key in keys} for n in (1, 7, 11)
    }
    proposed = waves(AskTellStudy(search), 2, eventful, recorded)
    assert {n: proposed[n].params for n in recorded} == recorded


@for_each("sampler", SAMPLERS)
def test_proposals_are_plain_values_inside_the_space(sampler: str) -> None:
    search = study(sampler, NUMBERS if sampler == "cmaes" else MIXED)
    for _, params in waves(AskTellStudy(search), 2, eventful):
        assert list(params) == list(search.search.space)
        assert type(params["lr"]) is float and 1e-4 <= params["lr"] <= 1
        assert type(params["depth"]) is int and params["depth"] in (1, 3, 5, 7, 9)
        assert params.get("width", 0.5) == 0.5 and type(params.get("whiten", True)) is bool
        assert any(params.get("kernel") is choice for choice in ("imq", None, 2))


def test_recorded_values_take_the_kinds_of_the_space() -> None:
    recorded = INSIDE | {"lr": 1, "depth": 3.0, "beta": True, "kernel": 2.0, "whiten": 0}
    params = AskTellStudy(study("random")).ask(1, {0: recorded})[0].params
    assert params == {"lr": 1.0, "depth": 3, "beta": 1.0, "kernel": 2, "whiten": False, "width": 0.5}
    assert [type(value) for value in params.values()] == [float, int, float, int, bool, float]


@for_each(("key", "value"), [("lr", 2.0), ("lr", "0.1"), ("lr", None), ("depth", 2), ("depth", 3.5), ("kernel", "rbf")])
def test_recorded_values_outside_the_space_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{key} must lie in .*, but got {value!r}"):
        AskTellStudy(study("tpe")).ask(1, {0: {**INSIDE, key: value}})
    with pytest.raises(ValueError, match=f"{key} must lie in"):
        AskTellStudy(study("tpe"), [({**INSIDE, key: value}, (0.0,))])
    with pytest.raises(ValueError, match="a value for each of lr, depth"):
        AskTellStudy(study("tpe")).ask(1, {0: {key: INSIDE[key]}})


@for_each(
    ("result", "state"),
    [
        (TrialResult(0, "finished", (0.5,), {1: 0.7, 2: math.nan}), TrialState.COMPLETE),
        (TrialResult(0, "finished", (math.nan,)), TrialState.FAIL),
        (TrialResult(0, "finished", (None,)), TrialState.FAIL),
        (TrialResult(0, "finished", (math.inf,)), TrialState.FAIL),
        (TrialResult(0, "pruned", (None,), {1: 0.7, 2: 0.6}), TrialState.PRUNED),
        (TrialResult(0, "pruned", (0.6,), {1: math.nan}), TrialState.PRUNED),
        (TrialResult(0, "pruned", (math.nan,)), TrialState.PRUNED),
        (TrialResult(0, "diverged", (math.nan,), {1: 0.7}), TrialState.PRUNED),
        (TrialResult(0, "failed", (0.5,)), TrialState.FAIL),
    ],
)
@for_each("sampler", ["tpe", "gp"])
def test_no_trial_that_was_told_stays_open(sampler: str, result: TrialResult, state: TrialState) -> None:
    engine = AskTellStudy(study(sampler))
    engine.ask(2)
    engine.tell([TrialResult(1, "finished", (0.1,), attributes={"trial_id": "ab"}), result])
    assert states(engine) == [state, TrialState.COMPLETE]
    first, second = engine.optuna_study.trials
    assert second.value == 0.1 and second.user_attrs == {"trial_id": "ab"}
    reached = {epoch: value for epoch, value in result.reached.items() if math.isfinite(value)}
    assert first.intermediate_values == ({} if result.status == "diverged" else reached)
    assert first.value == {"finished": 0.5, "pruned": reached.get(2)}.get(result.status if state.name != "FAIL" else "")


def test_with_several_objectives_only_a_trial_with_all_values_is_complete() -> None:
    engine = AskTellStudy(study("tpe", metric=BOTH))
    engine.ask(4)
    cases: Any = ("finished", (0.1, 0.9)), ("finished", (0.1, None)), ("diverged", (None, None)), ("failed", (1.0, 1.0))
    engine.tell([TrialResult(number, *case) for number, case in enumerate(cases)])
    assert states(engine) == [TrialState.COMPLETE, *3 * [TrialState.FAIL]]
    assert [trial.values for trial in engine.optuna_study.trials] == [[0.1, 0.9], None, None, None]


@pytest.mark.parametrize(("sampler", "count"), [("tpe", 3), ("gp", 2)])
def test_the_order_in_which_a_wave_is_told_does_not_matter(sampler: str, count: int) -> None:
    engines = AskTellStudy(study(sampler)), AskTellStudy(study(sampler))
    for _ in range(count):
        proposals = [engine.ask(WAVE) for engine in engines]
        assert proposals[0] == proposals[1]
        results = [eventful(trial) for trial in proposals[0]]
        engines[0].tell(results)
        engines[1].tell(results[::-1])


def test_a_trial_is_told_once_and_after_it_was_asked() -> None:
    engine = AskTellStudy(study("random"))
    engine.ask(2)
    fine = TrialResult(0, "finished", (0.5,))
    for wrong in (
        [fine, fine],
        [fine, TrialResult(2, "failed", (None,))],
        [fine, TrialResult(1, "finished", (0.5, 0.5))],
    ):
        with pytest.raises(ValueError, match=r"a (finished )?trial must"):
            engine.tell(wrong)
    engine.tell([fine])  # nothing of the above was told
    with pytest.raises(ValueError, match="told once, after it was asked, but got trial 0"):
        engine.tell([fine])


def test_warm_trials_come_first_in_optuna_and_do_not_count_in_ours() -> None:
    warm = [(INSIDE | {"beta": n / 10}, (float(n),)) for n in range(15)]
    cold, engine = AskTellStudy(study("tpe")), AskTellStudy(study("tpe"), warm)
    assert [trial.number for trial in engine.ask(3)] == [0, 1, 2]
    assert [trial.value for trial in engine.optuna_study.trials] == [*map(float, range(15)), None, None, None]
    assert [trial.number for trial in engine.optuna_study.trials] == list(range(18))
    assert [WARM in trial.user_attrs for trial in engine.optuna_study.trials] == [True] * 15 + [False] * 3
    warmed = waves(AskTellStudy(study("tpe"), warm), 1, eventful)
    betas, cold_betas = ([trial.params["beta"] for trial in trials] for trials in (warmed, waves(cold, 1, eventful)))
    assert sum(betas) < sum(cold_betas)
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="a finite number for each of 1 objectives"):
            AskTellStudy(study("tpe"), [(INSIDE, (wrong,))])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_optuna_logs_nothing_here_and_as_before_elsewhere(sampler: str, caplog, request) -> None:
    request.addfinalizer(partial(optuna.logging.set_verbosity, optuna.logging.get_verbosity()))
    optuna.logging.set_verbosity(logging.INFO)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = study(sampler)
        warm = [({key: INSIDE[key] for key in search.search.space}, (1.0,))] * 10
        waves(AskTellStudy(search, warm), 2, eventful)
        assert not caplog.records
        assert optuna.logging.get_verbosity() == logging.INFO
        with pytest.raises(optuna.exceptions.ExperimentalWarning):
            optuna.create_study().set_metric_names(["loss"])
    assert "A new study created" in caplog.text


def test_params_are_in_the_order_of_the_space_which_does_not_affect_them() -> None:
    backwards = dict(reversed(MIXED.items()))
    forward, backward = (AskTellStudy(study("tpe", space)).ask(1)[0] for space in (MIXED, backwards))
    assert forward == backward and list(forward.params) == list(MIXED) and list(backward.params) == list(backwards)
