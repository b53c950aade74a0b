"""Every corner of the search spaces in `search_spaces` is a trial that can run and reports its objective."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces._protocols import DIGITS as DIGITS_PROTOCOL
from search_spaces._protocols import SMALL_IMAGES
from sweeper.definition import Grid, Search, Value, registry
from sweeper.definition.space import SECONDS, Study, studies_of
from tests.cases import for_each
from tests.trainables.small import image_trial
from trainables.catalog import METHODS
from trainables.config import fusible_keys, resolve
from trainables.image_trial import ImageTrial
from trainables.training.checks import check_trials
from trainables.training.metric_names import metric_names

SIZES = {
    ("j_budget", "paper"): (1, 64),
    ("j_budget", "digits"): (1, 64),
    ("ssl_search", "paper"): (8, 64),
    ("ssl_search", "digits"): (8, 24),
    ("vje_search", "paper"): (1, 128),
    ("vje_search", "digits"): (1, 64),
    ("vje_search", "digits_population"): (1, 32),
    ("vje_search", "digits_front"): (1, 64),
}
"""(sweep, preset) -> (number of studies, trials per study)."""

each_preset = for_each(("name", "preset"), SIZES)
UNPRUNED = "j_budget"
"""The search whose objective is reported at the end of training only."""
each_small_preset = pytest.mark.parametrize(
    ("name", "preset"), [(name, preset) for name, preset in SIZES if preset.startswith("digits")]
)


def studies(name: str, preset: str) -> tuple[Study, ...]:
    return tuple(studies_of(registry.find(name).presets[preset]))


def ends(distribution: BaseDistribution) -> tuple[Value, ...]:
    if isinstance(distribution, CategoricalDistribution):
        return tuple(distribution.choices)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return (distribution.low, distribution.high)


def corners(study: Study) -> Iterator[ImageTrial]:
    space = study.search.space
    for values in itertools.product(*map(ends, space.values())):
        yield image_trial({**study.fixed, **dict(zip(space, values, strict=True))})


@each_preset
def test_studies_and_trials_are_as_many_as_planned(name: str, preset: str) -> None:
    count, trials = SIZES[name, preset]
    preset_studies = studies(name, preset)
    assert len({study.name for study in preset_studies}) == len(preset_studies) == count
    assert {study.search.trials for study in preset_studies} == {trials}
    assert all(trials % study.search.wave == 0 for study in preset_studies)


@pytest.mark.parametrize("name", sorted({name for name, _ in SIZES}))
def test_the_first_preset_is_the_papers(name: str) -> None:
    assert list(registry.find(name).presets) == [preset for search_name, preset in SIZES if search_name == name]
    for study in studies(name, "paper"):
        fixed = study.fixed
        encoder = ("simvae_resnet", None) if name == "j_budget" else ("resnet18", True)
        assert (fixed["dataset"], (fixed["encoder"], fixed.get("small_stem"))) == ("cifar10", encoder)


@each_preset
def test_every_corner_of_a_space_resolves_to_a_trial_of_its_own(name: str, preset: str) -> None:
    for study in studies(name, preset):
        configs = list(corners(study))
        assert len(set(configs)) == len(configs) == math.prod(map(len, map(ends, study.search.space.values())))
        assert all(resolve(config.flat()) == config for config in configs)


@each_preset
def test_the_objective_is_of_validation_images_and_reported_before_the_end(name: str, preset: str) -> None:
    for study in studies(name, preset):
        objective, *others = study.search.objectives
        config = next(corners(study))
        reported = metric_names(config, 10, last=name == UNPRUNED)
        assert objective.name in reported and objective.direction == "maximize"
        assert objective.name.startswith("val_") and objective.name.removeprefix("val_") in reported
        assert config.data.validation == (0.1 if preset == "paper" else 0.2)
        assert [other.name for other in others] == ([SECONDS] if preset == "digits_front" else [])


@each_preset
def test_every_study_has_a_rung_or_moves_before_the_last_epoch(name: str, preset: str) -> None:
    for study in studies(name, preset):
        training, search = next(corners(study)).training, study.search
        if search.population:
            moves = range(search.population.every, training.epochs, search.population.every)
            assert len(moves) >= 2 and all(epoch % training.report_every == 0 for epoch in moves)
        elif len(search.objectives) == 1 and name != UNPRUNED:
            assert search.pruner
            ladders = search.pruner.ladders(training.epochs, training.report_every)
            assert len(ladders[0]) >= 2


@each_small_preset
def test_the_digits_presets_need_no_files(name: str, preset: str) -> None:
    for study in studies(name, preset):
        (data,) = {config.data for config in corners(study)}
        assert data.dataset == "digits"
        (result,) = check_trials([next(corners(study))], Path())
        assert result.steps >= 2


@each_preset
def test_searched_shapes_are_few_so_that_waves_still_stack(name: str, preset: str) -> None:
    """Trials of different shapes train in different cohorts, so a wave has on average at least four per shape."""
    for study in studies(name, preset):
        search = study.search
        shapes = [key for key in search.space if key not in fusible_keys(str(study.fixed["method"]))]
        assert search.wave >= 4 * math.prod(len(ends(search.space[key])) for key in shapes)
        assert not (search.population and shapes)


def test_every_method_of_ssl_cifar10_that_trains_is_searched_by_lr_weight_decay_and_its_own() -> None:
    for preset in ("paper", "digits"):
        study_of = {str(study.fixed["method"]): study for study in studies("ssl_search", preset)}
        methods = {str(grid.fixed["method"]) for grid in registry.find("ssl_cifar10").grids(preset)}
        assert set(study_of) == {method for method in methods if METHODS[method].trains()}
        for study in study_of.values():
            assert {"lr", "weight_decay"} < set(study.search.space)


@pytest.mark.parametrize(("preset", "protocol"), [("paper", SMALL_IMAGES), ("digits", DIGITS_PROTOCOL)])
def test_keys_that_ssl_search_does_not_search_are_as_in_ssl_cifar10(preset: str, protocol: dict[str, Value]) -> None:
    """Exceptions are the epochs, and validation images, which `ssl_cifar10` does not need."""
    shorter = {"epochs", "report_every"}
    grids = registry.find("ssl_cifar10").grids(preset)
    for study in studies("ssl_search", preset):
        fixed = {key for key in study.fixed if key in protocol} - shorter
        assert fixed == set(protocol) - set(study.search.space) - shorter
        alike = [grid.fixed for grid in grids if grid.fixed["method"] == study.fixed["method"]]
        assert any(
            all(grid.get(key, value) == value for key, value in study.fixed.items() if key not in shorter)
            and "validation" not in grid
            for grid in alike
        )


@pytest.mark.parametrize("preset", ["paper", "digits", "digits_population"])
def test_keys_that_vje_search_does_not_search_are_as_in_the_anomaly_grid(preset: str) -> None:
    (study,) = studies("vje_search", preset)
    grid = registry.find("anomaly_grid").presets[preset.split("_")[0]]
    assert isinstance(grid, Grid)
    free = {"report_every", "validation", *study.search.space}
    assert grid.fixed.get("validation") == (None if preset == "paper" else study.fixed["validation"])
    fixed = {key: value for key, value in study.fixed.items() if key not in grid.axes}
    assert {key: value for key, value in fixed.items() if key not in free} == {
        key: value for key, value in grid.fixed.items() if key not in free
    }
    assert study.fixed["normal_class"] in grid.axes["normal_class"]


def test_the_space_of_the_papers_search_contains_the_papers_optimum() -> None:
    (study,) = studies("vje_search", "paper")
    optimum = {"beta": 1.0, "nu": 0.5, "lr": 5e-6, "weight_decay": 5e-6, "bottleneck": 128}
    assert set(optimum) == set(study.search.space)
    for key, value in optimum.items():
        values: Any = ends(study.search.space[key])
        assert value in values or values[0] < value < values[1], key


def test_an_axis_of_classes_gives_each_a_study_of_its_own() -> None:
    _, space = registry.find("vje_search").preset("digits")
    assert isinstance(space, Search)
    class_studies = space.changed({}, {"normal_class": (0, 3, 8)}).studies()
    assert [study.fixed["normal_class"] for study in class_studies] == [0, 3, 8]
