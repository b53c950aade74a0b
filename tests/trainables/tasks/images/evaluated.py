"""Small trials on all classes that are evaluated in several ways, and their untrained models."""

import torch
from torch import Tensor

from tests.trainables.small import HERE, image_trial, metrics_of
from trainables.image_trial import ImageTrial
from trainables.methods.variational.vje import VJE
from trainables.sections import TrialConfig, Value
from trainables.training.stacks import build_models
from trainables.training.train import train

SMALL: dict[str, dict[str, Value]] = {
    "vje": {"bottleneck": 8}, "random": {"epochs": 0}, "simsiam": {"projector_width": 8, "predictor_width": 4},
}  # fmt: skip
EVERYTHING: dict[str, Value] = {"knn": 5, "probe_epochs": 3, "outliers": "inverted+noise"}


def eval_config(method: str = "vje", /, **changes: Value) -> ImageTrial:
    defaults: dict[str, Value] = {
        "method": method, "width": 16, "features": 8, "batch_size": 60, "epochs": 2, "lr": 0.02, "rotation": 10.0,
    }  # fmt: skip
    return image_trial({**defaults, **SMALL.get(method, {}), **changes})


def last_metrics(config: TrialConfig) -> dict[str, float]:
    """The final metrics of a trial that are defined."""
    metrics = metrics_of(list(train([config], HERE)), 0)[-1]
    return {name: value for name, value in metrics.items() if value is not None}


def untrained(config: TrialConfig) -> VJE:
    """The model of a trial on the digits as it is initialised, in evaluation mode."""
    (model,) = build_models([config], {"views": (1, 8, 8)})
    assert isinstance(model, VJE)
    return model.eval()


def prepared(images: object) -> Tensor:
    """Digits as encoders take them."""
    assert isinstance(images, Tensor)
    return (images / 16 - 0.305470) / 0.376049


def scores_of(model: VJE, images: object) -> dict[str, Tensor]:
    """Anomaly scores of digits, of the posterior's mean."""
    return model.score(prepared(images), {"posterior": torch.empty(0)})
