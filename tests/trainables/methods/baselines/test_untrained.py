"""The untrained encoder and the pixels as the representation, evaluated like all others."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from tests.trainables.methods.plain import Builder
from trainables.config import resolve
from trainables.data.datasets.catalog import load
from trainables.methods.baselines.untrained import Pixels, RandomEncoder, UntrainedConfig
from trainables.methods.baselines.untrained import UntrainedConfig as Config
from trainables.networks.trial_networks import Encoder, Layers, Networks
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


def test_its_representation_is_every_value_of_the_image_in_order() -> None:
    """The encoder exists, as the contract requires, but its weights do not matter."""
    images_BCHW = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5).double()
    networks = Networks(Encoder("convnet", width=2, features=7), Layers())
    model = Pixels(UntrainedConfig(), networks, {"views": (3, 4, 5)})
    assert model.features == 60
    assert torch.equal(model.embed(images_BCHW)["z"], images_BCHW.view(2, 60).float())


def test_seeds_stacked_or_alone_have_the_accuracy_of_scikit_learns_neighbours() -> None:
    """On the pixels that encoders get: normalised, not augmented."""
    fixed: Mapping[str, Value] = {
        "method": "pixels",
        "epochs": 0,
        "encoder": "convnet",
        "width": 2,
        "features": 4,
        "knn": 1,
    }
    configs = [resolve({**fixed, "seed": seed, "rotation": 30.0}) for seed in (0, 1)]
    (stacked,), (alone,) = train(configs, Path()), train(configs[:1], Path())
    digits = load("digits", Path())
    bank_ND, test_MD = (
        ((images[:].flatten(1) / 16 - 0.305470) / 0.376049).numpy()
        for images in (digits.train_images, digits.test_images)
    )
    nearest = KNeighborsClassifier(1, metric="cosine", algorithm="brute").fit(bank_ND, digits.train_labels)
    expected = nearest.score(test_MD, digits.test_labels)
    accuracies = {member.metrics["knn_z"] for report in (stacked, alone) for member in report.members}
    assert len(accuracies) == 1 and accuracies.pop() == pytest.approx(expected, abs=4e-3)


def test_epochs_are_refused_with_pixels_too() -> None:
    with pytest.raises(ValueError, match="pixels does not train, so epochs must be 0, but got epochs=100"):
        resolve({"method": "pixels"})
