"""Keys that are searched on a condition: what is refused, and what a fixed key leaves of the conditions on it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.definition import Metric, Population, Search, When
from sweeper.errors import SpecError
from tests.cases import for_each

SPACE: Mapping[str, BaseDistribution] = {
    "lr_schedule": CategoricalDistribution(("cosine", "one_cycle", "step")),
    "lr": FloatDistribution(1e-3, 1.0, log=True),
}
WARMUP = When("lr_schedule", "cosine", {"warmup_epochs": IntDistribution(0, 5)})
STEP = When("lr_schedule", ("step", "one_cycle"), {"lr_gamma": FloatDistribution(0.1, 0.9)})
NESTED = When("warmup_epochs", (4, 5), {"momentum": FloatDistribution(0.5, 0.9)})


def search(*conditions: When, **changes: Any) -> Search:
    options: dict[str, Any] = {"trials": 8, "wave": 4, "metric": Metric("auroc_joint", "maximize")} | changes
    return Search(SPACE, {"method": "vje"}, conditions=conditions, **options)


@for_each(
    ("make", "message"),
    [
        (
            lambda: When("lr_schedule", (), {"lr_gamma": FloatDistribution(0, 1)}),
            "a condition must have at least one value and one key in its space, but that on lr_schedule lacks one",
        ),
        (
            lambda: search(NESTED, WARMUP),
            "a condition is on a key that is searched before it, or on an axis, but warmup_epochs is neither; "
            "those are: lr_schedule, lr",
        ),
        (
            lambda: search(replace(WARMUP, key="method")),
            "a condition is on a key that is searched before it, or on an axis, but method is neither; those are: ",
        ),
        (
            lambda: search(replace(WARMUP, key="lr", values=0.5)),
            "a condition is on a key with choices or whole numbers, but lr is 0.001 to 1",
        ),
        (
            lambda: search(replace(WARMUP, values="linear")),
            "a condition is on a value that its key has, but lr_schedule is cosine, one_cycle, step, not linear",
        ),
        (
            lambda: search(WARMUP, replace(NESTED, values=6)),
            "a condition is on a value that its key has, but warmup_epochs is 0 to 5, not 6",
        ),
        (
            lambda: search(WARMUP, replace(STEP, space=WARMUP.space)),
            "a key is searched once, in the space or in one condition, but warmup_epochs is twice",
        ),
        (
            lambda: search(WARMUP, axes={"warmup_epochs": (0, 1)}),
            "warmup_epochs must be either searched or fixed or an axis, but it is two of them",
        ),
        (
            lambda: search(WARMUP, sampler="gp"),
            "gp takes no conditions, but got one on lr_schedule; samplers that take conditions: tpe, random",
        ),
        (
            lambda: search(WARMUP, sampler="random", population=Population(2)),
            "a population has no conditions, because its members copy each other's hyperparameters, but got one on ",
        ),
    ],
)
def test_what_is_wrong_is_named_in_one_line(make: Any, message: str) -> None:
    with pytest.raises(SpecError) as raised:
        make()
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


def test_what_is_searched_on_condition_of_a_fixed_key_is_searched_always_or_never() -> None:
    whole = search(WARMUP, STEP, NESTED)
    assert list(whole.searched) == ["lr_schedule", "lr", "warmup_epochs", "lr_gamma", "momentum"]
    cosine = whole.changed({"lr_schedule": "cosine"}, {})
    assert list(cosine.space) == ["lr", "warmup_epochs"] and cosine.conditions == (NESTED,)
    step = whole.changed({"lr_schedule": "step"}, {})
    assert list(step.space) == ["lr", "lr_gamma"] and step.conditions == ()
    warm = whole.changed({"warmup_epochs": 4}, {})
    assert list(warm.space) == ["lr_schedule", "lr", "momentum"] and warm.conditions == (STEP,)


def test_a_condition_on_an_axis_holds_in_its_studies() -> None:
    studies = {
        study.name: study for study in search(WARMUP, STEP).changed({}, {"lr_schedule": ("cosine", "step")}).studies()
    }
    assert list(studies["cosine"].space_of({})) == ["lr", "warmup_epochs"]
    assert list(studies["step"].space_of({})) == ["lr", "lr_gamma"]
    with pytest.raises(SpecError, match="at least one key in its space"):
        search(WARMUP).changed({"lr": 0.1}, {"lr_schedule": ("cosine", "step")})


def test_a_study_has_the_identity_of_before_without_conditions_and_another_with_some() -> None:
    (plain,), (conditional,) = search().studies(), search(WARMUP).studies()
    assert "conditions" not in plain.identity
    condition = ("lr_schedule", ("cosine",), {"warmup_epochs": repr(WARMUP.space["warmup_epochs"])})
    assert conditional.identity == {**plain.identity, "conditions": [condition]}


def test_proposals_are_known_by_what_they_draw() -> None:
    (study,) = search(WARMUP, STEP, NESTED).studies()
    row: dict[str, Any] = {"lr_schedule": "cosine", "lr": 0.1, "warmup_epochs": 4, "lr_gamma": 0.5, "momentum": None}
    assert study.searched_values(row, {"momentum": 0.9}) == {
        "lr_schedule": "cosine", "lr": 0.1, "warmup_epochs": 4, "momentum": 0.9
    }  # fmt: skip
    step = study.searched_values({**row, "lr_schedule": "step"}, {})
    assert step == {"lr_schedule": "step", "lr": 0.1, "lr_gamma": 0.5}, "of nested conditions none holds"
    assert study.contains(step) and not study.contains({**step, "warmup_epochs": 4})
    assert not study.contains({**step, "lr_gamma": 2.0}) and not study.contains({"lr_schedule": "step", "lr": 0.1})
    assert study.proposal({**study.reaching("momentum"), "lr_gamma": 0.5}) == {
        "lr_schedule": "cosine", "lr": 0.001, "warmup_epochs": 4, "momentum": 0.5
    }  # fmt: skip
