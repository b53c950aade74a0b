"""The best trials of a plan, and the models that a store keeps."""

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.plan.best_trials import BestTrials, KeptModels, Ranking, rankings_of, remove_displaced, varying_keys
from sweeper.plan.changes import Change, Changes
from sweeper.plan.cohorts import Trial
from sweeper.plan.plan import GridPlan
from sweeper.spec import Grid, Grids, Heatmap, Metric, Sweep, Table
from sweeper.storage.files import Files
from sweeper.storage.layout import model_path
from sweeper.storage.models import trials_with_models
from tests.sweeper.tiny_sweep import TINY

AUROC, ERROR = Metric("auroc_joint", "maximize"), Metric("reconstruction_mse", "minimize")
LOSS = Metric("loss", "minimize")


def row(trial: str, **values: Any) -> dict[str, Any]:
    return {"trial_id": trial, "status": "finished", **values}


def find_best(rows: list[dict[str, Any]], metric: Metric) -> str | None:
    best = BestTrials([Ranking(metric)])
    best.add(rows)
    return next(iter(best.ids), None)


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
        best = BestTrials([Ranking(AUROC, ("beta",))])
        best.add(order)
        assert best.ids == {"b", "c", "d"}


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
    sweep = Sweep("", {"p": Grid({"method": "vje"}, {})}, heatmaps=heatmaps, tables=tables)
    rankings = rankings_of(GridPlan("s", "p", sweep, trials=(), groups=(), steps=(), statuses={}))
    assert rankings == [
        Ranking(AUROC),
        Ranking(AUROC, ("beta", "nu")),
        Ranking(LOSS, ("nu", "tau")),
        Ranking(ERROR, ("method", "beta")),
    ]
    assert BestTrials(rankings[:2]).columns == ("trial_id", "status", "auroc_joint", "val_auroc_joint", "beta", "nu")


def plan_of(preset: Grid | Grids, *configs: dict[str, Any]) -> GridPlan:
    trials = tuple(Trial(f"t{index}", config) for index, config in enumerate(configs))
    return GridPlan(
        "s",
        "p",
        Sweep("", {"p": preset}, tables=(Table("t", ("beta",), (AUROC,)),)),
        trials=trials,
        groups=(),
        steps=(),
        statuses={},
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
    parts = Grids((Grid({"method": "vje", "tau": 0.1}, {}), Grid({"method": "byol"}, {}), Grid({"method": "vae"}, {})))
    first = {"method": "vje", "tau": 0.1, "width": 8}
    assert varying_keys(plan_of(parts, first)) == ["method", "tau"]
    assert varying_keys(plan_of(parts, first, {"method": "vje", "tau": 0.1})) == ["width", "method", "tau"]


PLAN = GridPlan("tiny", "digits", TINY, trials=(), groups=(), steps=(), statuses={})


def kept_row(trial: str, beta: float, value: float) -> dict[str, Any]:
    return {"trial_id": trial, "status": "finished", "beta": beta, "auroc_joint": value}


def write(files: Files, *trials: str, kept: str = "best") -> None:
    """The beginning of a model's file of each trial."""
    for trial in trials:
        metadata = {"format": 1, "kept": kept, "config": {}, "shapes": {}, "inputs": {}, "digest": ""}
        header = json.dumps({"__metadata__": {"sweeper": json.dumps(metadata)}}).encode()
        files.write(model_path("tiny", trial), len(header).to_bytes(8, "little") + header + b"weights")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def models(files: Files) -> list[str]:
    return trials_with_models(files, "tiny")


def test_worse_ones_go_before_the_rows_are_written_and_displaced_ones_afterwards(files: Files) -> None:
    kept, first = KeptModels(files, PLAN), [kept_row("a", 0.5, 0.7), kept_row("b", 1.5, 0.6), kept_row("c", 1.5, 0.5)]
    write(files, "a", "b", "c")
    kept.delete_worse(first)
    assert models(files) == ["a", "b"]
    kept.delete_displaced()
    write(files, "d", "e")
    kept.delete_worse([kept_row("d", 0.5, 0.8), kept_row("e", 0.5, 0.75)])
    assert models(files) == ["a", "b", "d"], "until the rows are written, a is the best that has one"
    kept.delete_displaced()
    assert models(files) == ["b", "d"]


def test_a_run_that_continues_knows_the_best_from_their_rows(files: Files) -> None:
    kept = KeptModels(files, PLAN)
    write(files, "a", "b")
    kept.begin([kept_row("a", 0.5, 0.7)])
    kept.delete_worse([kept_row("b", 0.5, 0.6)])
    kept.delete_displaced()
    assert models(files) == ["a"]


@pytest.mark.parametrize(("keep", "left"), [("best", ["b", "new"]), ("all", ["a", "b", "new"])])
def test_what_a_killed_driver_has_left_goes_at_the_end_but_not_what_was_kept_on_request(
    keep: str, left: list[str], files: Files
) -> None:
    write(files, "a", kept=keep)
    write(files, "b", "new")  # `new` has no row yet: another driver is about to write it
    remove_displaced(files, PLAN, [kept_row("a", 0.5, 0.7), kept_row("b", 0.5, 0.8)])
    assert models(files) == left


def test_the_best_of_another_request_stay_whichever_comes_first(files: Files) -> None:
    more_seeds = replace(PLAN, changes=Changes("digits", {"seed": Change((0, 1), (0,))}))
    first, later = KeptModels(files, PLAN), KeptModels(files, more_seeds)
    write(files, "a")
    first.delete_worse([kept_row("a", 0.5, 0.7)])
    later.begin([kept_row("a", 0.5, 0.7)])
    write(files, "b")
    later.delete_worse([kept_row("b", 0.5, 0.8)])
    later.delete_displaced()
    remove_displaced(files, more_seeds, [kept_row("a", 0.5, 0.7), kept_row("b", 0.5, 0.8)])
    assert models(files) == ["a", "b"]
    write(files, "c")
    first.delete_worse([kept_row("c", 0.5, 0.75)])
    first.delete_displaced()
    assert models(files) == ["b", "c"], "a is the best of neither any more"


@pytest.mark.parametrize("damage", [b"", b"\xff" * 20, b"\2\0\0\0\0\0\0\0{}", b"\2\0\0\0\0\0\0\0[]"])
def test_a_damaged_file_is_left_alone(damage: bytes, files: Files) -> None:
    files.write(model_path("tiny", "a"), damage)
    rows: list[Mapping[str, Any]] = [kept_row("a", 0.5, 0.7), kept_row("b", 0.5, 0.8)]
    remove_displaced(files, PLAN, rows)
    assert models(files) == ["a"]
