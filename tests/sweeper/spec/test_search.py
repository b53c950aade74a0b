from dataclasses import replace
from typing import Any

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.spec import SpecError
from sweeper.spec.metric import Metric
from sweeper.spec.schedulers import Halving, Population
from sweeper.spec.search import Search, Searches, bounds, within

AUROC, LOSS = Metric("auroc", "maximize"), Metric("loss", "minimize")
SPREAD = Metric("var_mean", "maximize")
SPACE: dict[str, BaseDistribution] = {"beta": FloatDistribution(0.1, 2.0), "width": CategoricalDistribution([64, 128])}
KEYS = {"vje": ("method", "dataset", "beta", "nu", "seed"), "simclr": ("method", "dataset", "tau", "seed")}


def search(**changes: Any) -> Search:
    defaults: dict[str, Any] = {"space": SPACE, "fixed": {"method": "vje"}, "trials": 8, "wave": 4, "metric": AUROC}
    return Search(**(defaults | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"space": {}}, "must have at least one key in its space"),
        ({"fixed": {"beta": 1.0}}, "beta must be either searched or fixed or an axis"),
        ({"axes": {"beta": (1.0,)}}, "beta must be either searched or fixed or an axis"),
        ({"wave": 9}, "`wave <= trials` must hold, but got wave=9, trials=8"),
        ({"trials": 0}, "`trials >= 1` must hold"),
        ({"sampler": "tpo"}, "no sampler 'tpo' (did you mean 'tpe'?)"),
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


def test_several_searches_are_changed_each_where_its_method_has_the_key() -> None:
    simclr = Search({"tau": FloatDistribution(0.1, 1.0)}, {"method": "simclr"}, 4, AUROC, wave=2)
    both = Searches((search(), simclr))
    changed = both.changed({"beta": 1.0}, {"seed": (0, 1)}, KEYS.__getitem__)
    assert [set(search.space) for search in changed.searches] == [{"width"}, {"tau"}]
    assert [study.name for study in changed.studies()] == ["vje+0", "vje+1", "simclr+0", "simclr+1"]
    assert changed.count == 24
    assert both.changed({}, {"method": ("simclr",)}, KEYS.__getitem__).searches == (simclr,)


@pytest.mark.parametrize(
    ("searches", "message"),
    [
        ((), "at least one search"),
        ((search(), search()), "a method of its own"),
        ((search(), replace(search(), metric=LOSS, fixed={"method": "simclr"})), "the same objectives"),
        ((search(fixed={}),), "must fix its method"),
    ],
)
def test_several_searches_that_do_not_go_together_are_refused(searches: tuple[Search, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Searches(searches)


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
