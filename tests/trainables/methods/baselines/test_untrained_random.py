"""The untrained encoder, evaluated like all others."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.trainables.methods.plain import Builder
from trainables.config import resolve
from trainables.methods.baselines.untrained import RandomEncoder
from trainables.methods.baselines.untrained import UntrainedConfig as Config
from trainables.sections import Value
from trainables.training.stacks import build_models
from trainables.training.train import train

GIVEN: Mapping[str, Value] = {"encoder": "convnet", "width": 8, "features": 16, "knn": 20}
SHAPES = {"views": (1, 8, 8)}
IMAGES = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


class Flat(nn.Flatten):
    """An encoder without weights."""

    features = 64


def test_its_encoder_is_the_one_that_other_methods_start_from() -> None:
    """With equal data and seed; another seed gives another encoder."""
    configs = [
        resolve({"method": "random", "epochs": 0, **GIVEN}),
        resolve({"method": "simclr", "projector_width": 8, **GIVEN}),
        resolve({"method": "random", "epochs": 0, "seed": 1, **GIVEN}),
    ]
    random, simclr, other = (build_models([config], SHAPES)[0].eval()(IMAGES) for config in configs)
    assert torch.equal(random, simclr) and not torch.equal(random, other)


def test_is_reported_once_as_initialised() -> None:
    configs = [resolve({"method": "random", "epochs": 0, "seed": seed, **GIVEN}) for seed in (0, 1)]
    (report,) = train(configs, Path())
    assert report.done and report.epoch == 0
    assert [member.status for member in report.members] == ["finished"] * 2
    accuracies = [member.metrics["knn_z"] for member in report.members]
    assert all(accuracy and 0.5 < accuracy < 0.95 for accuracy in accuracies)  # 0.1 by chance
    assert accuracies[0] != accuracies[1]


def test_is_the_encoder_and_nothing_more() -> None:
    model = RandomEncoder(Config(), Builder(Flat), SHAPES)
    assert not list(model.parameters()) and not list(model.buffers()) and not dataclasses.fields(Config)
    assert not RandomEncoder.trains()
    assert torch.equal(model(IMAGES), IMAGES.flatten(1)) and list(model.embed(IMAGES)) == ["z"]


def test_epochs_are_refused() -> None:
    with pytest.raises(ValueError, match="random does not train, so epochs must be 0, but got epochs=100"):
        resolve({"method": "random", **GIVEN})
