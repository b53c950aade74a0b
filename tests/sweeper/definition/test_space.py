"""Grids and searches, and how the command line changes them."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.definition.metric import Metric
from sweeper.definition.pruners import Halving
from sweeper.definition.space import (
    Grid,
    Part,
    Population,
    Search,
    Value,
    bounds,
    change_space,
    check_space,
    parts_of,
    replicate_space,
    studies_of,
    within,
)
from sweeper.errors import SpecError
from tests.cases import for_each

GRID = Grid(fixed={"method": "vje", "epochs": 5}, axes={"beta": (0.0, 1.0), "nu": (0.5, 3.0, math.inf)})

METHODS: Mapping[str, set[str]] = {
    "vje": {"method", "seed", "lr", "beta", "nu"},
    "simclr": {"method", "seed", "lr", "tau"},
    "random": {"method", "seed", "lr"},
}
SEVERAL = (
    Grid({"method": "vje", "lr": 0.1}, {"beta": (0.0, 1.0), "seed": (0, 1)}),
    Grid({"method": "vje", "lr": 0.2, "nu": 9.0}, {"seed": (0, 1)}),
    Grid({"method": "simclr", "lr": 0.1, "tau": 0.5}, {"seed": (0, 1)}),
    Grid({"method": "random", "lr": 0.1}, {"seed": (0, 1)}),
)


@for_each(
    ("values", "native"),
    [
        (np.arange(0.1, 0.5, 0.1), (0.1, 0.2, 0.30000000000000004, 0.4)),
        (np.array([1, 2]), (1, 2)),
        ([np.float32(0.5), np.int64(3), "a", True, None], (0.5, 3, "a", True, None)),
        (torch.tensor([0.5, 1.5]), (0.5, 1.5)),
        (pd.Series([1, 2]), (1, 2)),
        (range(3), (0, 1, 2)),
        ((2.0**-k for k in range(2)), (1.0, 0.5)),
    ],
)
def test_an_axis_takes_any_sequence_and_has_values_of_python(values: Any, native: tuple[Value, ...]) -> None:
    fixed: dict[str, Any] = {"epochs": np.int64(5)}
    grid = Grid(fixed, {"lr": values})
    assert grid.axes["lr"] == native and [*map(type, grid.axes["lr"])] == [*map(type, native)]
    assert type(grid.fixed["epochs"]) is int


@for_each("values", [{1, 2}, {"a": 1}, "1,2", b"12", 0.5, None, np.array(3.0), np.ones((2, 2)), [[1]], [(1, 2)]])
def test_an_axis_is_a_sequence_of_single_values(values: Any) -> None:
    with pytest.raises(SpecError, match="axis lr must"):
        Grid({}, {"lr": values})


def several(
    parts: tuple[Part, ...],
    fixed: Mapping[str, Value] | None,
    axes: Mapping[str, tuple[Value, ...]] | None,
    keys: Callable[[str], Collection[str]],
) -> tuple[Any, ...]:
    """The parts of a preset as the command line changes them."""
    return parts_of(change_space(parts, fixed or {}, axes or {}, keys))


def changed(
    fixed: Mapping[str, Value] | None = None, axes: Mapping[str, tuple[Value, ...]] | None = None
) -> tuple[Grid, ...]:
    return several(SEVERAL, fixed, axes, METHODS.__getitem__)


def combinations(parts: tuple[Part, ...]) -> list[dict[str, Value]]:
    return [combination for part in parts for combination in part.combinations()]


def methods(grids: tuple[Grid, ...]) -> list[Value]:
    return [grid.fixed["method"] for grid in grids]


def test_a_grid_is_the_product_of_its_axes_and_the_last_varies_fastest() -> None:
    trials = list(GRID.combinations())
    assert len(trials) == 6 and len({tuple(trial.items()) for trial in trials}) == 6
    assert [trial["nu"] for trial in trials] == [0.5, 3.0, math.inf] * 2
    assert [trial["beta"] for trial in trials] == [0.0] * 3 + [1.0] * 3
    assert all(trial["epochs"] == 5 and trial["method"] == "vje" for trial in trials)


def test_a_grid_without_axes_is_one_trial() -> None:
    assert list(Grid({"epochs": 5}, {}).combinations()) == [{"epochs": 5}]


def test_a_set_value_replaces_an_axis_and_an_axis_replaces_a_constant() -> None:
    changed = GRID.changed({"nu": 2.0, "lr": 0.1}, {"epochs": (1, 2)})
    assert changed.fixed == {"method": "vje", "nu": 2.0, "lr": 0.1}
    assert changed.axes == {"beta": (0.0, 1.0), "epochs": (1, 2)}
    assert GRID.axes["nu"] == (0.5, 3.0, math.inf) and GRID.fixed["epochs"] == 5


def test_an_axis_keeps_its_place_when_its_values_change() -> None:
    assert list(GRID.changed({}, {"beta": (2.0,)}).axes) == ["beta", "nu"]


@pytest.mark.parametrize(
    ("fixed", "axes", "law"),
    [
        ({}, {"nu": ()}, "axis nu must have at least one value"),
        ({}, {"nu": (1.0, 2.0, 1.0)}, "axis nu must differ, but 1.0 is there twice"),
        ({}, {"nu": (1, 1.0)}, "axis nu must differ"),
        ({"nu": 1.0}, {"nu": (1.0,)}, "nu must be either fixed or an axis"),
    ],
)
def test_an_invalid_grid_is_refused(fixed: dict[str, Value], axes: dict[str, tuple[Value, ...]], law: str) -> None:
    with pytest.raises(SpecError, match=law):
        Grid(fixed, axes)


def test_a_key_cannot_be_set_and_varied() -> None:
    with pytest.raises(SpecError, match="nu must be either set or an axis"):
        GRID.changed({"nu": 1.0}, {"nu": (1.0, 2.0)})


@pytest.mark.parametrize("grid", [Grid({"lr": 0.1}, {}), Grid({}, {"method": ("vje", "simclr")})])
def test_several_grids_are_of_one_method_each(grid: Grid) -> None:
    with pytest.raises(SpecError, match="each of several grids or searches must fix its method"):
        check_space((SEVERAL[0], grid), "paper")


def test_a_grid_without_changes_stays_the_same() -> None:
    assert changed() == SEVERAL


def test_a_key_is_set_where_a_method_has_it() -> None:
    grids = changed({"nu": 3.0})
    assert [grid.fixed.get("nu") for grid in grids] == [3.0, 3.0, None, None]
    grids = changed({"tau": 0.2, "lr": 1.0})
    assert [grid.fixed.get("tau") for grid in grids] == [None, None, 0.2, None]
    assert [grid.fixed["lr"] for grid in grids] == [1.0] * 4
    assert [grid.axes for grid in grids] == [grid.axes for grid in SEVERAL]


def test_a_key_is_varied_where_a_method_has_it() -> None:
    grids = changed({"seed": 7}, {"nu": (1.0, 2.0)})
    assert [grid.axes for grid in grids] == [
        {"beta": (0.0, 1.0), "nu": (1.0, 2.0)}, {"nu": (1.0, 2.0)}, {}, {},
    ]  # fmt: skip
    assert [grid.fixed["seed"] for grid in grids] == [7] * 4 and "nu" not in grids[1].fixed
    assert SEVERAL[1].fixed["nu"] == 9.0


def test_a_method_chooses_its_grids() -> None:
    assert changed({"method": "vje"}) == SEVERAL[:2]
    assert changed({}, {"method": ("random", "simclr")}) == SEVERAL[2:]
    chosen = changed({"method": "simclr", "tau": 0.2})
    assert methods(chosen) == ["simclr"] and chosen[0].fixed["tau"] == 0.2
    assert all("method" not in grid.axes for grid in changed({}, {"method": ("vje", "random")}))


SETS = (
    Grid({"method": "vje"}, {"dataset": ("cifar10", "cifar100"), "seed": (0, 1)}),
    Grid({"method": "vje", "dataset": "stl10", "blur": 0.5}, {"seed": (0, 1)}),
)


@pytest.mark.parametrize(
    ("datasets", "indices"),
    [(("cifar10",), (0,)), (("stl10",), (1,)), (("stl10", "cifar100"), (0, 1)), (("cifar100", "cifar10"), (0,))],
)
def test_a_data_set_chooses_among_grids_that_differ_in_it(datasets: tuple[str, ...], indices: tuple[int, ...]) -> None:
    """Otherwise CIFAR is trained again with the settings for STL-10, and both count as seeds of one cell."""
    keys = {"dataset", "seed", "lr"}
    grids = several(SETS, {"lr": 0.5}, {"dataset": datasets}, lambda _: keys)
    assert [grid.fixed.get("blur") for grid in grids] == [SETS[index].fixed.get("blur") for index in indices]
    assert {trial["dataset"] for trial in combinations(grids)} == set(datasets)
    assert all(trial["lr"] == 0.5 for trial in combinations(grids))
    if len(datasets) == 1:
        assert several(SETS, {"lr": 0.5, "dataset": datasets[0]}, {}, lambda _: keys) == grids


def test_a_data_set_replaces_that_of_grids_that_have_it_in_common() -> None:
    both = tuple(Grid({"method": method, "dataset": "cifar10"}, {}) for method in ("vje", "simclr"))
    grids = several(both, {"dataset": "svhn"}, {}, lambda _: {"dataset"})
    assert [trial["dataset"] for trial in combinations(grids)] == ["svhn", "svhn"]
    with pytest.raises(SpecError, match=r"^no dataset in this sweep 'svhn'; there are: cifar10, cifar100, stl10$"):
        several(SETS, {"dataset": "svhn"}, {}, lambda _: {"dataset"})


def test_a_pinned_value_stays() -> None:
    grids = (Grid({"method": "vje"}, {}), Grid({"method": "random", "lr": 0.0}, {}, pinned=frozenset({"lr"})))
    changed = several(grids, {"lr": 1.0, "seed": 3}, {}, METHODS.__getitem__)
    assert [grid.fixed for grid in changed] == [
        {"method": "vje", "lr": 1.0, "seed": 3}, {"method": "random", "lr": 0.0, "seed": 3},
    ]  # fmt: skip
    with pytest.raises(SpecError, match=r"^lr stays as it is in trials of random, where another value has no meaning$"):
        several(grids, {"lr": 1.0, "method": "random"}, {}, METHODS.__getitem__)


@for_each(
    ("fixed", "axes", "message"),
    [
        ({"method": "vja"}, {}, "no method in this sweep 'vja' (did you mean 'vje'?); there are: vje, simclr, random"),
        ({}, {"method": ("vje", "byol")}, "no method in this sweep 'byol'; there are: vje, simclr, random"),
        ({"gamma": 1.0}, {}, "no method of these trials has the key 'gamma'"),
        ({}, {"gamma": (1.0, 2.0)}, "no method of these trials has the key 'gamma'"),
        ({"tau": 0.2, "method": "vje"}, {}, "no method of these trials has the key 'tau'"),
        ({"tau": 0.2}, {"method": ("vje", "random")}, "no method of these trials has the key 'tau'"),
        ({"lr": 1.0}, {"lr": (1.0, 2.0)}, "lr must be either set or an axis, but it is asked to be both"),
        ({"method": "vje"}, {"method": ("vje", "random")}, "method must be either set or an axis, but it is asked to"),
        ({}, {"method": ("vje", "vje")}, "the values of axis method must differ, but vje is there twice"),
        ({}, {"tau": (0.2, 0.2)}, "the values of axis tau must differ, but 0.2 is there twice"),
    ],
)
def test_a_change_that_applies_to_no_grid_is_refused(
    fixed: dict[str, Value], axes: dict[str, tuple[Value, ...]], message: str
) -> None:
    with pytest.raises(SpecError) as error:
        changed(fixed, axes)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_an_axis_may_be_long():
    assert Grid({}, {"seed": tuple(range(200_000))}).count == 200_000


AUROC, LOSS = Metric("auroc", "maximize"), Metric("loss", "minimize")
SPREAD = Metric("var_mean", "maximize")
SPACE: dict[str, BaseDistribution] = {"beta": FloatDistribution(0.1, 2.0), "width": CategoricalDistribution([64, 128])}
KEYS = {"vje": ("method", "dataset", "beta", "nu", "seed"), "simclr": ("method", "dataset", "tau", "seed")}


def search(**changes: Any) -> Search:
    defaults: dict[str, Any] = {"space": SPACE, "fixed": {"method": "vje"}, "trials": 8, "wave": 4, "metric": AUROC}
    return Search(**(defaults | changes))


@for_each(
    ("changes", "message"),
    [
        ({"space": {}}, "must have at least one key in its space"),
        ({"fixed": {"beta": 1.0}}, "beta must be either searched or fixed or an axis"),
        ({"axes": {"beta": (1.0,)}}, "beta must be either searched or fixed or an axis"),
        ({"wave": 9}, "`wave <= trials` must hold, but got wave=9, trials=8"),
        ({"trials": 0}, "`trials >= 1` must hold"),
        ({"sampler": "tpo"}, "no sampler 'tpo' (did you mean 'tpe'?)"),
        (
            {"replicates": {"beta": (0.5, 1.0)}},
            "need a key that is not searched, but beta is; those searched are: beta",
        ),
        ({"replicates": {"method": ("vje", "byol")}}, "such as seed, but method is no such key"),
        ({"replicates": {"seed": (3,)}}, "at least two values, and different ones, but seed has 3"),
        ({"replicates": {"seed": (3, 3)}}, "at least two values, and different ones, but seed has 3,3"),
        ({"replicates": {"seed": ()}}, "at least two values, and different ones, but seed has none"),
        ({"axes": {"seed": (0,)}, "replicates": {"seed": (0, 1)}}, "either fixed or an axis or replicated, but it is"),
        ({"metric": ()}, "must have an objective"),
        (
            {"metric": Metric("auroc")},
            "metric 'auroc' needs a direction because trials are ranked by it; write Metric(",
        ),
        ({"metric": (SPREAD, replace(SPREAD, direction="minimize"))}, "to be both maximized and minimized"),
        ({"metric": (AUROC, AUROC)}, "objectives must differ, but auroc is there twice"),
        ({"metric": (AUROC, LOSS), "sampler": "cmaes"}, "cmaes takes one objective"),
        ({"metric": (AUROC, LOSS), "pruner": Halving(1)}, "ranks by one objective"),
        ({"metric": Metric("seconds", "minimize"), "pruner": Halving(1)}, "ranks by a reported metric"),
        ({"sampler": "cmaes"}, "cmaes needs a space of at least two numbers"),
        ({"sampler": "random", "pruner": Halving(1), "population": Population(1)}, "either a pruner or a population"),
        ({"space": {"width": CategoricalDistribution([1, 2, True])}}, "the choices of width must differ in value"),
        ({"population": Population(1)}, "its sampler must be random or qmc, but got tpe"),
    ],
)
def test_an_invalid_search_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        search(**changes)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_every_cell_of_the_axes_has_a_study_named_by_its_values() -> None:
    studies = list(search(axes={"dataset": ("digits", "cifar10"), "nu": (1.0, float("inf"))}).studies())
    assert [study.name for study in studies] == ["digits+1.0", "digits+inf", "cifar10+1.0", "cifar10+inf"]
    assert studies[1].fixed == {"method": "vje", "dataset": "digits", "nu": float("inf")}
    assert [study.name for study in search().studies()] == ["all"]


def test_a_longer_study_is_the_same_and_any_other_change_makes_another() -> None:
    (first,) = search().studies()
    same = [search(trials=80)]
    others = [
        search(wave=2),
        search(seed=1),
        search(sampler="random"),
        search(pruner=Halving(2)),
        search(space={"beta": FloatDistribution(0.1, 2.0, log=True)}),
        search(fixed={"method": "vje", "nu": 1.0}),
        search(metric=SPREAD),
        search(metric=replace(SPREAD, direction="minimize")),
    ]
    assert all(study.identity == first.identity for changed in same for study in changed.studies())
    assert all(study.identity != first.identity for changed in others for study in changed.studies())
    maximized, minimized = (next(changed.studies()).identity for changed in others[-2:])
    assert maximized != minimized


def test_a_key_that_the_command_line_sets_is_no_longer_searched() -> None:
    fixed = search().changed({"beta": 1.0}, {"nu": (1.0, 2.0)})
    assert set(fixed.space) == {"width"} and fixed.fixed["beta"] == 1.0 and fixed.count == 16
    with pytest.raises(SpecError, match="its space, but it is empty"):
        fixed.changed({"width": 64}, {})


def test_replicates_are_neither_fixed_nor_an_axis_and_a_change_of_their_key_ends_them() -> None:
    plain = search(fixed={"method": "vje", "seed": 5}, axes={"lr": (0.1, 0.2)})
    seeds = plain.replicated({"seed": (0, 1, 2)})
    assert seeds.fixed == {"method": "vje"} and seeds.values("seed") == (0, 1, 2)
    assert (seeds.repeats, seeds.count) == (3, 3 * plain.count)
    (first, *_), both = seeds.studies(), seeds.replicated({"lr": (0.1, 0.3)})
    assert first.replicates == ({"seed": 0}, {"seed": 1}, {"seed": 2})
    assert first.replicate_of({"seed": None}, {"seed": 0}) == (0,)
    assert both.repeats == 6 and [study.name for study in both.studies()] == ["all"]
    assert seeds.changed({"seed": 5}, {}) == plain
    assert seeds.changed({}, {"seed": (0, 1)}).axes == {"lr": (0.1, 0.2), "seed": (0, 1)}


def test_several_searches_are_replicated_each_where_its_method_has_the_key() -> None:
    simclr = Search({"lr": FloatDistribution(0.1, 1.0)}, {"method": "simclr", "tau": 0.5}, 4, AUROC, wave=2)
    parts = (search(), simclr, Grid({"method": "random"}, {"seed": (0, 1)}))
    changed = replicate_space(parts, {"tau": (0.1, 0.2)}, KEYS.__getitem__)
    assert [part.replicates for part in parts_of(changed)] == [{}, {"tau": (0.1, 0.2)}, {}]
    with pytest.raises(SpecError, match="no method of these searches has the key 'epsilon' to replicate"):
        replicate_space(parts, {"epsilon": (0.1, 0.2)}, KEYS.__getitem__)


def test_several_searches_are_changed_each_where_its_method_has_the_key() -> None:
    simclr = Search({"tau": FloatDistribution(0.1, 1.0)}, {"method": "simclr"}, 4, AUROC, wave=2)
    both = (search(), simclr)
    changed = several(both, {"beta": 1.0}, {"seed": (0, 1)}, KEYS.__getitem__)
    assert [set(search.space) for search in changed] == [{"width"}, {"tau"}]
    assert [study.name for study in studies_of(changed)] == ["vje+0", "vje+1", "simclr+0", "simclr+1"]
    assert sum(part.count for part in changed) == 24
    assert several(both, {}, {"method": ("simclr",)}, KEYS.__getitem__) == (simclr,)


@pytest.mark.parametrize(
    ("searches", "message"),
    [
        ((), "at least one grid or search"),
        ((search(), search()), "a method of its own"),
        ((search(), replace(search(), metric=LOSS, fixed={"method": "simclr"})), "the same objectives"),
        ((search(fixed={}),), "must fix its method"),
    ],
)
def test_several_searches_that_do_not_go_together_are_refused(searches: tuple[Search, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_space(searches, "paper")


def test_a_searched_value_that_is_null_in_a_row_is_the_default() -> None:
    (study,) = search().studies()
    assert set(study.search.space) == {"beta", "width"}
    row = {"beta": 0.5, "width": None, "seed": 3}
    assert study.searched_values(row, {"width": 64, "beta": 1.0}) == {"beta": 0.5, "width": 64}
    assert study.searched_values({"beta": 0.0}, {}) == {"beta": 0.0, "width": None}


def test_bounds_are_the_ends_or_the_choices() -> None:
    assert bounds(IntDistribution(1, 9)) == (1, 9) and bounds(CategoricalDistribution(["a", None])) == ("a", None)
    assert within(FloatDistribution(0.0, 1.0), 1) and not within(FloatDistribution(0.0, 1.0), 1.1)
    assert within(CategoricalDistribution([True]), True) and not within(CategoricalDistribution([True]), 1)
    assert not within(FloatDistribution(0.0, 1.0), None)
