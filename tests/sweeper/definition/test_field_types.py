"""The law of the definitions: each field refuses a value of another type, in one line that names the field."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution

from sweeper import (
    Assumption,
    Claim,
    Constraint,
    Filter,
    Grid,
    Halving,
    Heatmap,
    Metric,
    Ranking,
    Search,
    Selection,
    Side,
    SpecError,
    Sweep,
    Table,
    Trajectory,
    When,
)
from sweeper.definition.space import Population
from tests.cases import for_each

METRIC = Metric("score", "maximize")
GRID = Grid({"method": "vje"}, {"lr": (0.1, 0.2), "seed": (0, 1)})
SPACE = {"lr": FloatDistribution(0.1, 1.0)}
HEATMAP = Heatmap(METRIC, "lr", "seed")
DEFINITIONS = {
    type(definition).__name__: definition
    for definition in (
        METRIC,
        GRID,
        HEATMAP,
        Table("scores", ("lr",), (METRIC,)),
        Trajectory("curves", (METRIC,), ("lr",)),
        Ranking("rates", ("lr",), METRIC, "seed", "seeds", (0.1,)),
        Selection({"lr": "low"}, {"lr": 0.1}),
        Search(SPACE, {"method": "vje"}, 40, METRIC),
        When("lr_schedule", "cosine", {"warmup_epochs": FloatDistribution(0, 3)}),
        Constraint("seconds", "<=", 60),
        Halving(first=3),
        Population(every=3),
        Assumption("not printed", ("lr",)),
        Sweep("rates", {"small": GRID}, (HEATMAP,)),
        Filter(">", 3),
        Side("score"),
        Claim("X-1", "it learns", "Table 1", Side("score"), ">", 0.5),
    )
}


class Other:
    """A value of a type that no field has."""


@for_each(
    ("name", "field"),
    [(name, field.name) for name, own in DEFINITIONS.items() for field in fields(own)],
)
def test_a_field_refuses_a_value_of_another_type(name: str, field: str) -> None:
    definition: Any = DEFINITIONS[name]
    with pytest.raises(SpecError) as caught:
        replace(definition, **{field: Other()})
    message = str(caught.value)
    assert "\n" not in message
    assert "Other" in message


@for_each(
    ("name", "change", "message"),
    [
        (
            "Table",
            {"rows": "lr"},
            "`Table.rows` must be a tuple of text, but got a text: 'lr'; put it into a tuple: (..., )",
        ),
        (
            "Heatmap",
            {"metric": "score"},
            "`Heatmap.metric` must be a Metric, but got a text: 'score'",
        ),
        (
            "Sweep",
            {"figures": Halving(3)},
            "`Sweep.figures` must be a tuple of Figure, but got a Halving: Halving(first=3, factor=3, brackets=1)",
        ),
        (
            "Search",
            {"space": {"lr": (0.1, 1.0)}},
            "a space maps each key to a distribution of Optuna, such as FloatDistribution(0.001, 0.1), but lr to "
            "(0.1, 1.0)",
        ),
        (
            "Search",
            {"trials": True},
            "`Search.trials` must be a whole number, but got true or false: True",
        ),
    ],
)
def test_the_message_names_field_type_and_value(name: str, change: Mapping[str, Any], message: str) -> None:
    definition: Any = DEFINITIONS[name]
    with pytest.raises(SpecError) as caught:
        replace(definition, **change)
    assert str(caught.value) == message


def test_a_list_becomes_a_tuple_and_a_number_of_numpy_is_a_number() -> None:
    assert Table("scores", ["lr"], [METRIC]) == DEFINITIONS["Table"]  # type: ignore[arg-type]
    assert Halving(np.int64(3)).first == 3  # type: ignore[arg-type]
