"""The grids of all sweeps: their sizes, trials, configs and metrics."""

from functools import cache

from sweeper.definition import registry
from sweeper.planning.cohorts import Trial, enumerate_trials
from tests.cases import for_each
from trainables.config import resolve
from trainables.data.datasets.catalog import DATASETS
from trainables.image_trial import ImageTrial
from trainables.sections import TrialConfig, Value
from trainables.training.metric_names import metric_names

COUNTS = {
    ("anomaly_grid", "paper"): 560,
    ("anomaly_grid", "digits"): 560,
    ("anomaly_grid", "digits_long"): 560,
    ("anomaly_grid", "fashion"): 560,
    ("anomaly_grid", "controls"): 40,
    ("anomaly_grid", "paper_gaussian"): 10,
    ("augmentation_ablation", "paper"): 168,
    ("augmentation_ablation", "digits"): 84,
    ("augmentation_ablation", "colours"): 84,
    ("collapse_ablation", "paper"): 51,
    ("collapse_ablation", "digits"): 51,
    ("contamination", "digits"): 480,
    ("contamination", "fashion"): 480,
    ("design_choices", "vje"): 18,
    ("design_choices", "simvae"): 15,
    ("design_choices", "gmje"): 24,
    ("imagenet_linear", "paper"): 3,
    ("imagenet_linear", "digits"): 3,
    ("j_ablation", "paper"): 45,
    ("j_ablation", "digits"): 45,
    ("j_ablation", "digits_images"): 45,
    ("j_ablation", "fashion"): 15,
    ("j_ablation", "authors_code"): 30,
    ("lambda_ablation", "paper"): 72,
    ("lambda_ablation", "digits"): 72,
    ("latent_generation", "paper"): 31,
    ("latent_generation", "digits"): 31,
    ("latent_generation", "controls"): 12,
    ("loss_ablation", "paper"): 54,
    ("loss_ablation", "digits"): 18,
    ("memory_bank", "paper"): 4,
    ("memory_bank", "digits"): 24,
    ("memory_bank", "paper_sizes"): 24,
    ("normal_images", "digits"): 360,
    ("normal_images", "fashion"): 720,
    ("nu_ablation", "paper"): 54,
    ("nu_ablation", "digits"): 18,
    ("one_class_benchmark", "paper"): 300,
    ("one_class_benchmark", "fashion"): 140,
    ("one_class_benchmark", "digits"): 420,
    ("ood_detection", "paper"): 6,
    ("ood_detection", "digits"): 30,
    ("simvae_content", "paper"): 96,
    ("simvae_content", "digits"): 24,
    ("simvae_content", "fashion"): 25,
    ("simvae_content", "authors_code"): 18,
    ("simvae_content", "controls"): 27,
    ("simvae_generation", "paper"): 72,
    ("simvae_generation", "digits"): 18,
    ("simvae_generation", "fashion"): 18,
    ("simvae_style", "paper"): 24,
    ("simvae_style", "digits"): 24,
    ("simvae_style", "digits_tint"): 24,
    ("ssl_benchmark", "paper"): 52,
    ("ssl_benchmark", "digits"): 52,
    ("ssl_benchmark", "controls"): 51,
    ("ssl_cifar10", "paper"): 31,
    ("ssl_cifar10", "digits"): 31,
    ("ssl_cifar10", "fashion"): 31,
    ("ssl_cifar10", "paper_sets"): 18,
    ("ssl_cifar10", "controls"): 6,
    ("supervised", "paper"): 54,
    ("supervised", "digits"): 96,
    ("supervised", "fashion"): 96,
    ("synthetic_alignment", "paper"): 54,
    ("synthetic_alignment", "components"): 30,
    ("variance_ablation", "paper"): 108,
    ("variance_ablation", "digits"): 63,
    ("variance_ablation", "fashion"): 18,
}
GRIDS = list(dict.fromkeys(name for name, _ in COUNTS))
"""Sweeps whose presets are grids; `test_searches` tests the others."""
CLASSES = {name: source.declaration.classes for name, source in DATASETS.items()}

each_preset = for_each(("name", "preset"), COUNTS)


@cache
def trials_of(name: str, preset: str) -> tuple[Trial, ...]:
    grids = registry.find(name).grids(preset)
    combinations = (combination for grid in grids for combination in grid.combinations())
    return enumerate_trials(combinations, resolve)


@cache
def all_configs_of(name: str, preset: str) -> tuple[TrialConfig, ...]:
    return tuple(resolve(trial.config) for trial in trials_of(name, preset))


@cache
def flats_of(name: str, preset: str) -> tuple[dict[str, Value], ...]:
    """All keys of each trial, also those that the preset leaves at a default."""
    return tuple(config.complete() for config in all_configs_of(name, preset))


def configs_of(name: str, preset: str) -> tuple[ImageTrial, ...]:
    """Those of trials on images."""
    return tuple(config for config in all_configs_of(name, preset) if isinstance(config, ImageTrial))


@cache
def metrics_of(name: str, preset: str) -> set[str]:
    configs = all_configs_of(name, preset)
    return {
        metric for config in configs for metric in metric_names(config, CLASSES.get(str(config.flat()["dataset"]), 0))
    }
