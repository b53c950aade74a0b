"""Metrics on validation images beside those on test images."""

from functools import cache

import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

from sweeper.spec.metric import VALIDATION as SWEEPERS_VALIDATION
from tests.trainables.small import HERE, image_trial, metrics_of
from tests.trainables.tasks.images.evaluated import last_metrics, prepared, scores_of, untrained
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import Dataset
from trainables.data.splits import hold_out_validation
from trainables.image_trial import ImageTrial
from trainables.metrics.meanings import VALIDATION
from trainables.sections import Value
from trainables.training.metric_names import metric_names
from trainables.training.train import train


def _config(**changes: Value) -> ImageTrial:
    defaults: dict[str, Value] = {"method": "vje", "width": 16, "features": 8, "bottleneck": 8, "batch_size": 40}
    return image_trial({**defaults, "epochs": 0, "lr": 0.02, "rotation": 10.0, "validation": 0.2, **changes})


@cache
def _parts() -> tuple[Dataset, Dataset]:
    return hold_out_validation(load("digits", HERE), 0.2)


def test_the_validation_prefix_equals_that_of_the_sweeper() -> None:
    """The sweeper has its own copy, because it reads rows without importing trainables."""
    assert VALIDATION == SWEEPERS_VALIDATION == "val_"


@pytest.mark.parametrize(
    "changes",
    [
        {"normal_class": 3, "epochs": 2},
        {"knn": 5, "probe_epochs": 1, "held_out": "3", "outliers": "held_out+noise", "epochs": 1},
        {},
    ],
)
def test_each_metric_but_the_losses_is_also_reported_on_validation_images(changes: dict[str, Value]) -> None:
    with_parts, without = (metric_names(_config(**changes, validation=share), 10) for share in (0.2, 0.0))
    doubled = [name for name in without if not name.startswith("loss")]
    assert sorted(with_parts) == sorted([*without, *(f"val_{name}" for name in doubled)]) and doubled
    reported = metrics_of(list(train([_config(**changes)], HERE)), 0)[-1]
    assert list(reported) == [name for name in with_parts if "epochs" in changes or not name.startswith("loss")]


def test_validation_metrics_are_reported_before_the_end_too() -> None:
    """Pruners need them."""
    names = metric_names(_config(knn=5, probe_epochs=1, epochs=3), 10, last=False)
    assert "val_knn_z" in names and not any("probe" in name for name in names)


@torch.no_grad()
@pytest.mark.parametrize("normal_class", [1, 8])
def test_auroc_of_validation_images_is_scikit_learns(normal_class: int) -> None:
    config = _config(normal_class=normal_class)
    metrics, model = last_metrics(config), untrained(config)
    for prefix, part in zip(("", "val_"), _parts(), strict=True):
        scores = scores_of(model, part.test_images)
        truth = (part.test_labels != normal_class).numpy()
        for name, values in scores.items():
            assert metrics[f"{prefix}auroc_{name}"] == pytest.approx(roc_auc_score(truth, values.numpy()), abs=1e-4)
        assert metrics[f"{prefix}posterior_variance"] == pytest.approx(scores["variance"].mean().item(), rel=1e-4)


@torch.no_grad()
def test_validation_knn_uses_the_remaining_training_images() -> None:
    config = _config(knn=1)
    metrics, model = last_metrics(config), untrained(config)
    for prefix, part in zip(("", "val_"), _parts(), strict=True):
        nearest = KNeighborsClassifier(1, metric="cosine", algorithm="brute")
        nearest.fit(model.embed(prepared(part.train_images))["z"].numpy(), part.train_labels)
        expected = nearest.score(model.embed(prepared(part.test_images))["z"].numpy(), part.test_labels)
        assert metrics[f"{prefix}knn_z"] == pytest.approx(expected, abs=4e-3)


@torch.no_grad()
def test_held_out_classes_are_outliers_of_both_parts() -> None:
    config = _config(held_out="3", outliers="held_out")
    metrics, model = last_metrics(config), untrained(config)
    for prefix, part in zip(("", "val_"), _parts(), strict=True):
        joint = scores_of(model, part.test_images)["joint"].numpy()
        truth = (part.test_labels == 3).numpy()
        assert metrics[f"{prefix}auroc_joint_held_out"] == pytest.approx(roc_auc_score(truth, joint), abs=1e-4)


def test_members_of_several_classes_have_outliers_of_their_own() -> None:
    """Fused or alone, a member is evaluated by the outliers of its own class."""
    configs = [_config(normal_class=digit, epochs=1) for digit in (1, 8)]
    fused = list(train(configs, HERE))
    aurocs = [metrics_of(fused, member)[-1]["val_auroc_joint"] or 0.0 for member in (0, 1)]
    for config, value in zip(configs, aurocs, strict=True):
        alone = metrics_of(list(train([config], HERE)), 0)[-1]
        assert value == pytest.approx(alone["val_auroc_joint"], abs=5e-3)
    assert abs(aurocs[0] - aurocs[1]) > 0.01
