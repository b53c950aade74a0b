"""The best trials of cells, whatever the order of the rows."""

import itertools
import math
from typing import Any

import pytest

from sweeper.definition import Constraint, Grid, Heatmap, Metric, Space, Sweep, Table
from sweeper.planning.cohorts import Trial
from sweeper.planning.plan import Plan
from sweeper.results.best_trials import CellRanking, best_of_cells, columns_of, rankings_of, varying_keys

AUROC, ERROR = Metric("auroc_joint", "maximize"), Metric("reconstruction_mse", "minimize")
LOSS = Metric("loss", "minimize")


def row(trial: str, **values: Any) -> dict[str, Any]:
    return {"trial_id": trial, "status": "finished", **values}


def find_best(rows: list[dict[str, Any]], metric: Metric) -> str | None:
    return next(iter(best_of_cells([CellRanking(metric)], rows)), None)


def test_the_best_of_each_cell_are_the_same_in_every_order() -> None:
    rows = [
        row("a", beta=1, auroc_joint=0.7),
        row("b", beta=1, auroc_joint=0.9),
        row("c", beta=2, auroc_joint=0.6),
        row("d", beta=None, auroc_joint=0.2),
        row("e", beta=math.nan, auroc_joint=0.1),
        row("f", beta=1, auroc_joint=0.9),
    ]
    for order in itertools.permutations(rows):
        assert best_of_cells([CellRanking(AUROC, ("beta",))], order) == {"b", "c", "d"}


def test_trials_are_chosen_on_validation_images_where_they_have_some() -> None:
    rows = [
        row("a", auroc_joint=0.9, val_auroc_joint=0.7),
        row("b", auroc_joint=0.8, val_auroc_joint=0.8),
        row("c", auroc_joint=0.99, val_auroc_joint=None),
    ]
    assert find_best(rows, AUROC) == "b" and find_best(rows[2:], AUROC) == "c"


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_trials_without_a_value_or_an_end_are_not_among_them(value: float | None) -> None:
    rows = [row("a", reconstruction_mse=value), row("b", reconstruction_mse=0.1) | {"status": "pruned"}, row("c")]
    assert find_best(rows, ERROR) is None
    assert find_best([*rows, row("d", reconstruction_mse=0.5), row("e", reconstruction_mse=0.4)], ERROR) == "e"


def test_heatmaps_over_the_same_axes_choose_by_the_first() -> None:
    heatmaps = (Heatmap(AUROC, "beta", "nu"), Heatmap(ERROR, "beta", "nu"), Heatmap(LOSS, "nu", "tau"))
    tables = (Table("t", ("method",), (ERROR,), columns="beta"), Table("u", ("nu",), (Metric("var_mean"),)))
    sweep = Sweep(
        "",
        {"p": Grid({"method": "vje"}, {})},
        figures=(
            *heatmaps,
            *tables,
        ),
    )
    rankings = rankings_of(Plan("s", "p", sweep))
    assert rankings == [
        CellRanking(AUROC),
        CellRanking(AUROC, ("beta", "nu")),
        CellRanking(LOSS, ("nu", "tau")),
        CellRanking(ERROR, ("method", "beta")),
    ]
    assert columns_of(rankings[:2]) == ("trial_id", "status", "auroc_joint", "val_auroc_joint", "beta", "nu")


def plan_of(preset: Space, *configs: dict[str, Any]) -> Plan:
    trials = tuple(Trial(f"t{index}", config) for index, config in enumerate(configs))
    return Plan(
        "s",
        "p",
        Sweep("", {"p": preset}, figures=(Table("t", ("beta",), (AUROC,)),)),
        trials,
    )


def test_a_narrowed_plan_varies_what_its_preset_varies() -> None:
    """Else the settings of a run with one value would not be told apart from those of the runs before it."""
    grid = Grid({"method": "vje", "lr": 0.1}, {"beta": (0.5, 1.0), "nu": (3.0,), "seed": (0, 1)})
    one = {"method": "vje", "lr": 0.1, "beta": 0.5, "nu": 3.0, "seed": 0}
    assert varying_keys(plan_of(grid, one)) == ["beta", "seed"]


def test_what_a_request_varies_beyond_its_preset_comes_first() -> None:
    grid = Grid({"method": "vje", "lr": 0.1}, {"beta": (0.5, 1.0)})
    one = {"method": "vje", "lr": 0.1, "beta": 0.5}
    assert varying_keys(plan_of(grid, one, one | {"lr": 0.2})) == ["lr", "beta"]


def test_a_key_that_some_trials_lack_or_that_differs_between_parts_varies() -> None:
    """A key that a later version added is missing in earlier trials."""
    parts = (Grid({"method": "vje", "tau": 0.1}, {}), Grid({"method": "byol"}, {}), Grid({"method": "vae"}, {}))
    first = {"method": "vje", "tau": 0.1, "width": 8}
    assert varying_keys(plan_of(parts, first)) == ["method", "tau"]
    assert varying_keys(plan_of(parts, first, {"method": "vje", "tau": 0.1})) == ["width", "method", "tau"]


def test_infeasible_trials_of_a_study_keep_no_model() -> None:
    rankings = [CellRanking(AUROC, ("study_id",), constraints=(Constraint("seconds", "<=", 60),))]
    rows = [
        row("a", study_id="s", auroc_joint=0.9, seconds=61.0),
        row("b", study_id="s", auroc_joint=0.8, seconds=60.0),
        row("c", study_id="s", auroc_joint=0.85, seconds=math.nan),
        row("d", study_id="t", auroc_joint=0.8, seconds=90.0),
        row("e", auroc_joint=0.7, seconds=90.0),
    ]
    read = [{name: own[name] for name in columns_of(rankings) if name in own} for own in rows]
    assert best_of_cells(rankings, read) == {"b", "e"}, "of study t none, and trials of grids have no constraints"
