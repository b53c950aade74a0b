"""Every grid in `search_spaces` expands into trials that can run, as many as the paper has."""

from pathlib import Path

import pytest

from sweeper.plan.cohorts import content_hash
from sweeper.spec import registry
from tests.search_spaces.grids import CLASSES, COUNTS, all_configs_of, configs_of, each_preset, trials_of
from trainables.config import column_types, resolve
from trainables.data.datasets.catalog import DATASETS
from trainables.training.checks import check_trials

CHANNELS = {name: source.declaration.shape[0] for name, source in DATASETS.items()}
WITHOUT_FILES = {"digits", "digits_tint"}
"""Data sets that need no files."""


def test_these_are_all_the_sweeps_and_the_first_preset_is_the_papers() -> None:
    grids = [
        (name, preset)
        for name in registry.names()
        for preset in registry.find(name).presets
        if registry.find(name).grids(preset)
    ]
    assert grids == list(COUNTS)


@each_preset
def test_every_trial_resolves_and_no_two_are_equal(name: str, preset: str) -> None:
    configs = all_configs_of(name, preset)
    assert len(configs) == len(set(configs)) == COUNTS[name, preset]
    assert all(resolve(config.flat()) == config for config in configs)


@pytest.mark.parametrize(
    ("name", "trial", "of_all"),
    [("anomaly_grid", "e8ffd53057604310", "8b544c0d73c06ee0"), ("ssl_cifar10", "9fdbc580ea39ad2b", "2b8eed09c9f3009c")],
)
def test_trials_keep_their_ids(name: str, trial: str, of_all: str) -> None:
    """Stores are continued by them, so a key that is added later must not be part of these trials."""
    ids = [trial.id for trial in trials_of(name, "digits")]
    assert (ids[0], content_hash(sorted(ids))) == (trial, of_all)


def test_the_columns_of_a_grid_that_uses_sgd_are_those_of_before_there_was_another_optimiser() -> None:
    assert set(column_types(configs_of("anomaly_grid", "digits"))) == {
        "method", "dataset", "normal_class", "held_out", "validation", "encoder", "width", "features", "small_stem",
        "seed", "epochs", "batch_size", "lr", "momentum", "weight_decay", "warmup_epochs", "precision",
        "channels_last", "workers", "report_every", "crop_scale", "crop_ratio", "flip", "brightness", "contrast",
        "saturation", "hue", "jitter", "greyscale", "blur", "rotation", "shift", "knn", "knn_temperature",
        "probe_epochs", "probe_lr", "probe_batch_size", "probe_standardize", "outliers", "beta", "nu", "terms",
        "bottleneck", "projector_width", "score_samples",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "preset"), [key for key in COUNTS if key[1].startswith("digits")])
def test_the_digits_can_serve_every_trial(name: str, preset: str) -> None:
    configs = configs_of(name, preset)
    assert {config.data.dataset for config in configs} <= WITHOUT_FILES
    assert all(result.steps >= 2 for result in check_trials(configs, Path()))


@each_preset
def test_outliers_are_of_other_sets_of_as_many_channels(name: str, preset: str) -> None:
    for config in configs_of(name, preset):
        inside = config.data.dataset
        assert inside not in config.evaluation.outlier_sets
        for outside in set(config.evaluation.outlier_sets) & {"svhn", *CLASSES}:
            assert CHANNELS[outside] == CHANNELS[inside]
