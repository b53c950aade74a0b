"""A metric's direction is checked when it is made."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.definition.metric import Direction, Metric
from sweeper.errors import SpecError
from tests.cases import for_each

finite = st.floats(allow_nan=False)


@for_each("direction", ["max", "MAXIMIZE", "up", "", 1, True])
def test_an_unknown_direction_is_refused(direction: Any) -> None:
    message = f"the direction of a metric must be 'maximize', 'minimize' or None, but knn_z has {direction!r}"
    with pytest.raises(SpecError, match=f"^{message}$"):
        Metric("knn_z", direction)


@pytest.mark.parametrize(
    ("name", "direction", "higher"),
    [("knn_z", "minimize", True), ("auroc_joint_svhn", "minimize", True), ("fpr95_dir_noise", "maximize", False)],
)
def test_a_direction_against_the_meaning_of_the_metric_is_refused(name: str, direction: Any, higher: bool) -> None:
    right: Direction = "maximize" if higher else "minimize"
    message = (
        f"{name} is better the {'higher' if higher else 'lower'} it is, so its direction must be '{right}', but got "
        f"'{direction}'"
    )
    with pytest.raises(SpecError, match=f"^{message}$"):
        Metric(name, direction)
    assert Metric(name, right).ranking_direction == right


def test_a_metric_without_a_direction_of_its_own_takes_either_or_none() -> None:
    for name in ("var_mean", "loss_kl", "a_metric_of_a_new_method"):
        assert (
            Metric(name, "maximize").ranking_direction == "maximize"
            and Metric(name, "minimize").ranking_direction == "minimize"
        )
        with pytest.raises(SpecError, match=f"metric '{name}' needs a direction because trials are ranked by it"):
            _ = Metric(name).ranking_direction


@given(finite, finite)
def test_of_two_values_the_one_with_the_lower_cost_is_better(first: float, second: float) -> None:
    accuracy, loss = Metric("knn_z", "maximize"), Metric("loss", "minimize")
    assert (accuracy.cost(first) < accuracy.cost(second)) == (first > second)
    assert (loss.cost(first) < loss.cost(second)) == (first < second)
    assert accuracy.cost(accuracy.cost(first)) == first == loss.cost(first)
    assert (accuracy.better, loss.better) == ("higher", "lower")


def test_values_without_a_direction_have_no_cost() -> None:
    with pytest.raises(SpecError, match="metric 'var_mean' needs a direction because trials are ranked by it"):
        Metric("var_mean").cost(1.0)


def test_percent_is_for_shares() -> None:
    assert Metric("auroc_joint", "maximize", percent=True).percent
    with pytest.raises(
        SpecError, match=r"^`percent` is for shares in \[0, 1\], but loss is a real number, in the unit"
    ):
        Metric("loss", "minimize", percent=True)


@pytest.mark.parametrize(
    ("metric", "bounds"),
    [
        (Metric("auroc_joint", "maximize"), (0.0, 1.0)),
        (Metric("knn_z", "maximize", percent=True), (0.0, 100.0)),
        (Metric("a_metric_of_a_new_method", "maximize", percent=True), (0.0, 100.0)),
        (Metric("a_metric_of_a_new_method"), None),
        (Metric("loss", "minimize"), None),
    ],
)
def test_shares_are_bounded_in_the_unit_in_which_they_are_shown(
    metric: Metric, bounds: tuple[float, float] | None
) -> None:
    assert metric.bounds == bounds
