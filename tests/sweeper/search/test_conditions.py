"""Keys that are searched on a condition are drawn in the proposals that have them, again when a study continues."""

import math
import statistics
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.definition.metric import Metric
from sweeper.definition.space import CONDITIONAL, Search, Study, Value, When
from sweeper.search.ask_tell import AskTellStudy, TrialResult
from sweeper.search.studies import corners
from tests.cases import for_each
from tests.sweeper.search.toys import WAVE, study, waves

SPACE = {"kind": CategoricalDistribution(("flat", "bowl")), "depth": IntDistribution(1, 3)}
BOWL = When("kind", "bowl", {key: FloatDistribution(0.0, 1.0) for key in "yx"})
DEEP = When("depth", (2, 3), {"rate": FloatDistribution(1e-3, 1.0, log=True), "one": IntDistribution(4, 4)})
NESTED = When("one", 4, {"act": CategoricalDistribution((None, True, "relu"))})


def conditional(sampler: str, seed: int = 0) -> Study:
    return study(sampler, SPACE, seed=seed, conditions=(BOWL, DEEP, NESTED))


def cost(params: Any) -> float:
    if params["kind"] == "flat":
        return 0.5
    return float((params["x"] - 0.3) ** 2 + (params["y"] - 0.7) ** 2 + params["depth"] / 100)


def outcome(trial: Any) -> TrialResult:
    status: Any = "diverged" if trial.number % 7 == 5 else "finished"
    return TrialResult(trial.number, status, (cost(trial.params),))


@for_each("sampler", CONDITIONAL)
def test_a_proposal_has_the_keys_whose_conditions_hold(sampler: str) -> None:
    trials = waves(AskTellStudy(conditional(sampler)), 5, outcome)
    for _, params in trials:
        bowl = {"x", "y"} if params["kind"] == "bowl" else set()
        deep = {"rate", "one", "act"} if params["depth"] > 1 else set()
        assert params.keys() == {"kind", "depth", *bowl, *deep}
        assert params.get("act") in (None, True, "relu") and params.get("one", 4) == 4
    assert len({len(trial.params) for trial in trials}) > 2


@pytest.mark.slow
@for_each("sampler", CONDITIONAL)
def test_a_continued_study_equals_the_undisturbed_one(sampler: str) -> None:
    whole = waves(AskTellStudy(conditional(sampler)), 5, outcome)
    assert whole != waves(AskTellStudy(conditional(sampler, seed=1)), 5, outcome)
    for recorded in ((*range(2 * WAVE), 13, 16), range(0, 4 * WAVE, 2)):
        known = {number: whole[number].params for number in recorded}
        assert waves(AskTellStudy(conditional(sampler)), 5, outcome, known) == whole


@pytest.mark.slow
def test_tpe_learns_where_to_draw_what_it_draws_on_a_condition() -> None:
    """Of the last proposals with the bowl, those of TPE lie near its bottom."""

    def distance(sampler: str, seed: int) -> float:
        trials = waves(AskTellStudy(conditional(sampler, seed)), 8, outcome)[5 * WAVE :]
        bowls = [trial.params for trial in trials if trial.params["kind"] == "bowl"]
        return statistics.fmean(math.dist((params["x"], params["y"]), (0.3, 0.7)) for params in bowls)

    tpe, random = (statistics.fmean(distance(sampler, seed) for seed in range(3)) for sampler in ("tpe", "random"))
    assert tpe < random / 1.5


def test_a_warm_start_and_a_record_have_the_keys_that_they_draw() -> None:
    flat: dict[str, Any] = {"kind": "flat", "depth": 1}
    (trial,) = AskTellStudy(conditional("tpe"), [(flat, (0.5,))]).optuna_study.trials
    assert trial.params == flat and trial.distributions.keys() == flat.keys()
    with pytest.raises(ValueError, match="must have a value for each of kind, depth, but got"):
        AskTellStudy(conditional("tpe")).ask(1, {0: {**flat, "x": 0.5}})
    with pytest.raises(ValueError, match="must have a value for each of kind, depth, y, x, but got"):
        AskTellStudy(conditional("tpe"), [({**flat, "kind": "bowl"}, (0.5,))])


def test_corners_are_legal_where_a_key_has_a_meaning_in_some_trials_alone() -> None:
    """The one-cycle schedule takes no warm-up: searched in all trials, it would be refused."""
    space = {"lr_schedule": CategoricalDistribution(("cosine", "one_cycle")), "lr": FloatDistribution(0.01, 0.1)}
    warmup = When("lr_schedule", "cosine", {"warmup_epochs": IntDistribution(1, 5)})
    fixed: dict[str, Value] = {"method": "vje", "dataset": "digits", "epochs": 8}
    (only,) = Search(space, fixed, 4, Metric("loss", "minimize"), wave=2, conditions=(warmup,)).studies()
    ends = [config.flat() for config in corners(only)]
    assert [(end.get("lr_schedule", "cosine"), end["lr"], end.get("warmup_epochs", 0)) for end in ends] == [
        ("cosine", 0.01, 1), ("one_cycle", 0.01, 0), ("cosine", 0.1, 1), ("cosine", 0.01, 5)
    ]  # fmt: skip
