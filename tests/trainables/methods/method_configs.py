"""A small digits trial of every method, its model and one batch, for the contract suite.

A new method gets the whole suite by its entry in the catalog; OVERRIDES is for one that COMMON does not suit.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from trainables.catalog import METHODS
from trainables.config.trial import resolve
from trainables.config.trial_config import TrialConfig, Value
from trainables.contract import Method
from trainables.data.augmentation.views import normalise, scale_pixels
from trainables.data.datasets.catalog import load
from trainables.tasks.images.stream import Stream, select_classes
from trainables.training.models import build_models

B, EPOCHS = 60, 5
"""The images of one class of the digits make two batches of 60, so this is 10 steps."""
CPU = torch.device("cpu")
HERE = Path()
"""The digits need no folder."""

TRAINED = sorted(name for name, method in METHODS.items() if method.losses is not Method.losses)
UNTRAINED = sorted(set(METHODS) - set(TRAINED))

COMMON: Mapping[str, Value] = {
    "dataset": "digits", "normal_class": 3, "encoder": "convnet", "width": 8, "features": 16,
    "batch_size": B, "epochs": EPOCHS, "lr": 0.02, "rotation": 10.0, "shift": 0.25,
}  # fmt: skip
OVERRIDES: Mapping[str, Mapping[str, Value]] = {
    "barlow_twins": {"projector_width": 16},
    "byol": {"projector_width": 16, "projection": 8, "predictor_width": 16},
    "moco_v2": {"queue": 150, "projector_width": 16, "projection": 8},
    "simclr": {"projector_width": 16, "projection": 8},
    "simsiam": {"projector_width": 16, "predictor_width": 8},
    "swav": {"prototypes": 12, "projector_width": 16, "projection": 8},
    "vicreg": {"projector_width": 16},
    "vje": {"bottleneck": 16},
}
"""Method -> what its small digits trial needs beyond COMMON and its own defaults."""

FACTORS = (1.0, 0.5, 0.8, 0.25)
"""Members of a cohort differ in each fusible hyperparameter by these factors of its default."""


def config_of(name: str, **changes: Value) -> TrialConfig:
    idle: Mapping[str, Value] = {"epochs": 0} if name in UNTRAINED else {}
    return resolve({"method": name, **COMMON, **OVERRIDES.get(name, {}), **idle, **changes})


def members(name: str, **changes: Value) -> list[TrialConfig]:
    """Members that differ in everything in which the members of one cohort may; the last shares the first's stream.

    `changes` are made to all.
    """
    first = config_of(name, **changes)
    own = {key: getattr(first.options, key) or 0.1 for key in METHODS[name].fusible}
    loop = [
        {"lr": 0.02, "weight_decay": 0.0, "seed": 0, "normal_class": 3},
        {"lr": 0.01, "weight_decay": 0.01, "seed": 1, "normal_class": 3},
        {"lr": 0.03, "weight_decay": 0.1, "seed": 0, "normal_class": 8},
        {"lr": 0.015, "weight_decay": 0.05, "seed": 0, "normal_class": 3},
    ]
    return [
        config_of(name, **changes, **{key: value * factor for key, value in own.items()}, **differing)
        for factor, differing in zip(FACTORS, loop, strict=True)
    ]


def model_of(name: str) -> Method:
    """A new model, the same at every call."""
    return build_models([config_of(name)], (1, 8, 8))[0]


def inputs(name: str) -> tuple[list[Tensor], Tensor]:
    """One batch of views and the noise of its shape, as training gives them."""
    config = config_of(name)
    stream = Stream(config, select_classes(load("digits", HERE), config.data), CPU)
    views = stream.views(stream.order(0)[0], 0, 0, METHODS[name].view_count)
    return views, stream.noise(model_of(name).noise_shape(B), 0, 0)


def images_of_tests() -> Tensor:
    """All test images `[N, 1, 8, 8]` as evaluation gives them."""
    digits = load("digits", HERE)
    assert isinstance(digits.test_images, Tensor)
    return normalise(scale_pixels(digits.test_images, digits.levels), digits.mean, digits.std)
