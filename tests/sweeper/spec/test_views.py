"""Views of a sweep's rows are checked when they are made."""

from typing import Any

import pytest

from sweeper.errors import SpecError
from sweeper.spec import Metric
from sweeper.spec.views import Heatmap, Selection, Table, Trajectory

KNN, LOSS = Metric("knn_z", "maximize", percent=True), Metric("loss", "minimize")


@pytest.mark.parametrize("empty", [{"rows": ()}, {"metrics": ()}])
def test_a_table_has_rows_and_metrics(empty: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"^table t must have rows and metrics, but lacks one$"):
        Table(**{"name": "t", "rows": ("nu",), "metrics": (KNN,), **empty})


@pytest.mark.parametrize(
    ("columns", "cells", "message"),
    [
        (
            None,
            {(3.0, "a"): {"knn_z": 1.0}},
            r"a published cell of table t must be a tuple of length 1, but got \(3.0, 'a'\)",
        ),
        (None, {3.0: {"knn_z": 1.0}}, "a published cell of table t must be a tuple of length 1, but got 3.0"),
        (None, {"3": {"knn_z": 1.0}}, "a published cell of table t must be a tuple of length 1, but got '3'"),
        (
            "dataset",
            {(3.0,): {"knn_z": 1.0}},
            r"a published cell of table t must be a tuple of length 2, but got \(3.0,\)",
        ),
        (
            None,
            {(3.0,): {"knn_mu": 1.0}},
            r"table t has a published knn_mu for \(3.0,\), but its metrics are: knn_z, loss",
        ),
    ],
)
def test_published_figures_have_a_place(columns: str | None, cells: dict[Any, Any], message: str) -> None:
    with pytest.raises(SpecError, match=f"^{message}$"):
        Table("t", ("nu",), (KNN, LOSS), columns=columns, published={"paper": cells})


def test_published_figures_that_have_a_place() -> None:
    Table("t", ("nu",), (KNN, LOSS), published={"paper": {(3.0,): {"knn_z": 1.0}, (1.0,): {}}})
    Table("t", ("nu", "terms"), (KNN,), columns="dataset", published={"paper": {(3.0, "kl", "a"): {"knn_z": 1.0}}})


def test_axes_and_keys_are_hyperparameters_in_their_order() -> None:
    assert Heatmap(KNN, rows="beta", columns="nu").axes == ("beta", "nu")
    assert Trajectory("t", (KNN,), by=("method", "width")).key == "method, width"


NO_KL, KL = (
    Selection({"terms": name}, {"beta": beta, "method": "vje"}) for name, beta in (("no KL", 0.0), ("KL", 1.0))
)


def test_the_hyperparameters_of_a_view_are_its_axes_or_those_that_select_its_labels() -> None:
    assert Table("t", ("terms",), (KNN,), columns="nu").hyperparameters == ("terms", "nu")
    views = (
        Table("t", ("terms",), (KNN,), columns="nu", selections=(NO_KL, KL)),
        Heatmap(KNN, "terms", "nu", selections=(NO_KL, KL)),
        Trajectory("t", (KNN,), by=("nu", "terms"), selections=(NO_KL, KL)),
    )
    assert {view.hyperparameters for view in views} == {("nu", "beta", "method")}


@pytest.mark.parametrize(
    ("selections", "message"),
    [
        ((Selection({"term": "KL"}, {}),), r"must label some of its axes \(terms, nu\), but one labels term"),
        ((Selection({}, {"beta": 1.0}),), r"must label some of its axes \(terms, nu\), but one labels none"),
        (
            (KL, Selection({"terms": "KL", "nu": "heavy"}, {})),
            r"must label the same axes, but got terms and terms, nu",
        ),
    ],
)
def test_selections_label_the_same_axes_of_their_view(selections: tuple[Selection, ...], message: str) -> None:
    with pytest.raises(SpecError, match=f"^the selections of a table t {message}$"):
        Table("t", ("terms", "nu"), (KNN,), selections=selections)
