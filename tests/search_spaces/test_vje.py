"""The sweeps of the VJE paper have its settings, and those on the digits differ from them on purpose."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from search_spaces._protocols import DIGITS
from sweeper.definition import registry
from tests.cases import for_each
from tests.search_spaces.grids import COUNTS, configs_of, each_preset, metrics_of
from trainables.config import resolve
from trainables.image_trial import Evaluation
from trainables.metrics import probes
from trainables.metrics.evaluator import Floats, ProbeData
from trainables.training.train import train


@pytest.mark.slow
def test_all_digits_presets_have_one_probe() -> None:
    """It standardises the features, without which it would not converge."""
    keys = [key for key in vars(Evaluation()) if key.startswith("probe") and key != "probe_weight_decay"]
    probes = {
        tuple(getattr(config.evaluation, key) for key in keys)
        for name, preset in COUNTS
        if preset == "digits"
        for config in configs_of(name, preset)
        if config.evaluation.probe_epochs
    }
    searched = [search.fixed for search in registry.find("ssl_search").parts("digits")]
    assert len(probes) == 1 and all(fixed["probe_standardize"] is True for fixed in searched)
    assert probes == {tuple(fixed[key] for key in keys) for fixed in searched}


@pytest.mark.slow
@each_preset
def test_choices_on_digits_are_made_on_validation_images(name: str, preset: str) -> None:
    """Only the anomaly grid and the classifier choose a best cell, and one-class methods a score. The paper's presets
    choose on test images, but those of one-class methods and of the classifier, which hold out a tenth."""
    chooses_score = name in ("one_class_benchmark", "normal_images", "contamination")
    held_out = chooses_score or name == "supervised" or (name == "anomaly_grid" and not preset.startswith("paper"))
    share = (0.1 if preset == "paper" else 0.2) if held_out else 0.0
    assert {config.data.validation for config in configs_of(name, preset)} <= {share}
    chosen_by = "val_accuracy" if name == "supervised" else "val_auroc_joint"
    assert (chosen_by in metrics_of(name, preset)) == held_out


def test_the_long_anomaly_grid_is_the_short_one_but_for_size() -> None:
    short, long = (configs_of("anomaly_grid", preset)[0] for preset in ("digits", "digits_long"))
    differing = {key: (value, long.flat()[key]) for key, value in short.flat().items() if long.flat()[key] != value}
    assert differing == {"width": (128, 256), "features": (64, 128), "bottleneck": (64, 128), "epochs": (50, 100)}


def test_barlow_twins_weighs_correlations_by_the_papers_order_and_has_the_authors_scale() -> None:
    """Lambda x P is 41 in its paper, and 10 and 6 here. Unscaled, the loss suits much smaller learning rates."""
    weights = {}
    for preset in ("paper", "digits"):
        configs = [config for config in configs_of("ssl_cifar10", preset) if config.method == "barlow_twins"]
        assert {config.gradient.lr for config in configs} == {0.05 if preset == "paper" else 0.01}
        (options,) = {config.options for config in configs}
        weights[preset] = (options.redundancy_weight * options.projector_width, options.loss_scale)
    assert weights == {"paper": (pytest.approx(10.24), 0.024), "digits": (pytest.approx(6.4), 0.1)}


EPOCHS = {
    "anomaly_grid": 800, "imagenet_linear": 100, "loss_ablation": 200, "nu_ablation": 200, "ood_detection": 800,
    "ssl_cifar10": 800,
}  # fmt: skip


@for_each("name", EPOCHS)
def test_the_papers_protocol(name: str) -> None:
    """The paper's, except that untrained methods have no epochs. Probes do not standardise."""
    for config in configs_of(name, "paper"):
        training, views, small = config.gradient, config.views, config.data.dataset.startswith("cifar")
        one_class = name == "anomaly_grid"
        assert training.epochs == (0 if config.method in ("pixels", "random") else EPOCHS[name])
        assert (training.batch_size, training.lr) == ((64, 5e-6) if one_class else (256, 0.05))
        assert (training.momentum, training.weight_decay) == (0.9, 5e-6)
        assert training.warmup_epochs == (10 if name == "imagenet_linear" else 0)
        assert training.workers == (8 if name == "imagenet_linear" else 1)
        assert (views.crop_scale, views.flip, views.jitter, views.greyscale) == (0.2, 0.5, 0.8, 0.2)
        assert (views.brightness, views.contrast, views.saturation, views.hue) == (0.4, 0.4, 0.4, 0.1)
        assert views.blur == (0.0 if small else 0.5)
        assert config.encoder.small_stem == small
        assert config.encoder.encoder == ("resnet50" if name == "imagenet_linear" else "resnet18")
        assert config.evaluation.probe_epochs == (0 if one_class else 100) and not config.evaluation.probe_standardize
        assert config.evaluation.knn == (0 if name in ("anomaly_grid", "imagenet_linear") else 30)
        if config.method == "vje":
            assert config.options.bottleneck == (512 if name == "imagenet_linear" else 128)
            assert one_class or config.options.beta == 1
            assert name in ("anomaly_grid", "nu_ablation") or config.options.nu == 3


POINT = 0.012
"""About one percentage point."""


@pytest.mark.parametrize("method", ["pixels", "random"])
@pytest.mark.parametrize("spread", [0, 3])
def test_the_probe_agrees_with_logistic_regression(method: str, spread: int) -> None:
    """The features are untrained. With `spread` each is scaled by a factor between 10^-spread and 10^spread."""
    original, recorded = probes.sgd_accuracies, []

    def accuracies(data: ProbeData, schedule: probes.Schedule, **how: Any) -> dict[int, Floats]:
        scale_D = torch.logspace(-spread, spread, data.bank_KND.shape[2])
        scaled = replace(data, bank_KND=data.bank_KND * scale_D, test_KMD=data.test_KMD * scale_D)
        recorded.append(scaled)
        return original(scaled, schedule, **how)

    with patch.object(probes, "sgd_accuracies", accuracies):
        (report,) = train([resolve({**DIGITS, "method": method, "epochs": 0})], Path())
    (data,) = recorded
    regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    regression.fit(data.bank_KND[0].double(), data.bank_labels_N)
    expected = regression.score(data.test_KMD[0].double(), data.test_labels_M)
    assert report.members[0].metrics["probe_z"] == pytest.approx(expected, abs=POINT)
