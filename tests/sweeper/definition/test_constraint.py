"""Bounds on what a search finds: how far a value is beyond one, and what is refused."""

import math
from typing import Any

import pytest
from optuna.distributions import FloatDistribution

from sweeper.definition import Constraint, Halving, Metric, Search, Sweep
from sweeper.definition.space import check_space
from sweeper.errors import SpecError
from tests.cases import for_each

SLOW, KNN = Constraint("seconds", "<=", 60), Constraint("val_knn_z", ">=", 0.8)


def search(**changes: Any) -> Search:
    options: dict[str, Any] = {"trials": 8, "wave": 4, "metric": Metric("val_auroc_joint", "maximize")} | changes
    return Search({"lr": FloatDistribution(0.1, 1.0)}, {"method": "vje"}, **options)


@for_each(
    ("constraint", "value", "violation"),
    [
        (SLOW, 90.0, 0.5),
        (SLOW, 60.0, 0.0),
        (SLOW, 30.0, -0.5),
        (KNN, 0.6, 0.25),
        (Constraint("loss", "<=", 0), 3.0, 3.0),
    ],
)
def test_a_violation_is_a_share_of_the_bound(constraint: Constraint, value: float, violation: float) -> None:
    assert constraint.violation(value) == pytest.approx(violation)


@for_each(
    ("make", "message"),
    [
        (lambda: Constraint("seconds", "<", 60), "the sign of a constraint must be '<=' or '>=', but seconds has '<'"),  # type: ignore[arg-type]
        (
            lambda: Constraint("loss", "<=", math.inf),
            "the bound of a constraint must be a finite number, but loss has inf",
        ),
        (
            lambda: search(constraints=(SLOW, KNN), sampler="cmaes"),
            "cmaes takes no constraints, but got seconds <= 60, val_knn_z >= 0.8; samplers that take constraints: "
            "tpe, gp, nsga2",
        ),
        (
            lambda: search(constraints=(SLOW, Constraint("seconds", "<=", 30))),
            "constraints must differ in column or sign, but seconds <= is there twice",
        ),
        (
            lambda: search(constraints=(SLOW,), pruner=Halving(first=1)),
            "a pruner needs constraints on metrics, because seconds of a trial that it stops says nothing; search "
            "without one (--pruner none)",
        ),
        (
            lambda: check_space((search(constraints=(KNN,)), search(constraints=(SLOW,))), "all"),
            "several searches must have the same constraints, but theirs differ",
        ),
        (
            lambda: Sweep("one", {"digits": search(constraints=(Constraint("parameters", "<=", 1e6),))}),
            "no metric or column of a constraint of preset digits 'parameters'; there are: ",
        ),
    ],
)
def test_what_is_wrong_is_named_in_one_line(make: Any, message: str) -> None:
    with pytest.raises(SpecError) as raised:
        make()
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


def test_a_study_has_the_identity_of_before_without_constraints_and_another_with_some() -> None:
    (plain,), (bounded,) = search().studies(), search(constraints=(SLOW,)).studies()
    assert "constraints" not in plain.identity
    assert bounded.identity == {**plain.identity, "constraints": [("seconds", "<=", 60.0)]}
