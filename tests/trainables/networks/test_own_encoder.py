"""Encoders of the user's own are built by the shape of an image, tried before anything starts, stacked if that is
possible, and saved with their model."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.cases import for_each
from tests.trainables.small import TracingCompiler, metrics_of
from trainables import own_code
from trainables.catalog import method_of, task_of
from trainables.config import resolve
from trainables.learners.data_parallel import draw_noise
from trainables.networks.own_encoder import build_own_encoder, takes_features
from trainables.own_code import NotImportedError
from trainables.sections import TrialConfig, Value
from trainables.training import checks
from trainables.training.checks import check_method, stacking_notes, why_not_stacked
from trainables.training.compiled_steps import StepCompiler
from trainables.training.model_file import pack_model, unpack_model
from trainables.training.stacks import build_models, build_stack
from trainables.training.train import retrain, train

NAME = "my_nets:Tiny"
KEYS: dict[str, Any] = {
    "encoder": NAME, "width": 6, "features": 5, "epochs": 2, "batch_size": 60, "lr": 0.01, "knn": 5,
    "projector_width": 8, "projection": 4,
}  # fmt: skip


class Tiny(nn.Module):
    def __init__(self, image_shape: tuple[int, int, int], features: int, width: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(image_shape[0], width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten(),
            nn.Linear(width * (image_shape[1] - 2) * (image_shape[2] - 2), features),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


class Looking(Tiny):
    """It cannot be stacked: it looks at a value."""

    def forward(self, images: Tensor) -> Tensor:
        features = super().forward(images)
        return features if features.sum().item() < 1e9 else 2 * features


class Sized(nn.Module):
    """Its size is its own."""

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.features = 7
        self.layer = nn.Linear(image_shape[0] * image_shape[1] * image_shape[2], 7)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images.flatten(1))


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(own_code, "_imported", {})
    checks._checked.cache_clear()
    yield
    checks._checked.cache_clear()


def _own(cls: object) -> str:
    own_code._imported[NAME] = cls
    return NAME


def _trained(*seeds: int, compiler: StepCompiler | None = None) -> list[dict[str, float | None]]:
    """The last metrics of each member."""
    configs = [resolve({"method": "simclr", **KEYS, "seed": seed}) for seed in seeds]
    reports = list(train(configs, Path(), compiler=compiler))
    return [metrics_of(reports, member)[-1] for member in range(len(seeds))]


def test_it_is_built_by_the_shape_and_what_it_takes_by_name() -> None:
    network = build_own_encoder(_own(Tiny), (2, 8, 9), width=6, features=5)
    assert network(torch.rand(3, 2, 8, 9)).shape == (3, 5) and network.features == 5 and takes_features(NAME)
    sized = build_own_encoder(_own(Sized), (2, 8, 9), width=6, features=5)
    assert sized.features == 7 and not takes_features(NAME)


@pytest.mark.parametrize("method", ["simclr", "vae", "deep_svdd", "moco_v2"])
def test_methods_that_ship_take_it(method: str) -> None:
    _own(Tiny)
    keys = {key: value for key, value in KEYS.items() if not key.startswith("proj") and key != "knn"}
    assert why_not_stacked(resolve({"method": method, **keys})) == ""


@pytest.mark.slow
def test_a_member_trains_the_same_alone_or_stacked() -> None:
    _own(Tiny)
    stacked, alone = _trained(0, 1), [_trained(0)[0], _trained(1)[0]]
    for member, other in zip(stacked, alone, strict=True):
        assert member["loss"] == pytest.approx(other["loss"], rel=1e-4)
    compiler = TracingCompiler()
    (compiled,) = _trained(0, compiler=compiler)
    assert compiled["loss"] == pytest.approx(stacked[0]["loss"], rel=1e-4) and compiler.traced


def test_one_that_cannot_be_stacked_is_said_and_trains_alone() -> None:
    _own(Looking)
    config = resolve({"method": "simclr", **KEYS})
    results = checks.check_trials([config], None)
    (line,) = stacking_notes([config], results)
    assert line.startswith("simclr with my_nets:Tiny cannot be stacked, so its trials train one by one: ")
    assert len(_trained(0, 1)) == 2


def test_a_saved_model_has_it() -> None:
    _own(Tiny)
    trained = retrain(resolve({"method": "simclr", **KEYS}), Path())
    content = pack_model(trained, {})
    model, images = unpack_model(content).build(), torch.rand(4, 1, 8, 8)
    assert model.embed(images)["z"].shape == (4, 5)
    own_code._imported.clear()
    with pytest.raises(NotImportedError, match="the encoder 'my_nets:Tiny' neither ships nor is installed"):
        unpack_model(content)


class PartlyFrozen(Tiny):
    def __init__(self, image_shape: tuple[int, int, int], features: int, width: int = 3) -> None:
        super().__init__(image_shape, features, width)
        for layer in self.layers[:2]:
            layer.requires_grad_(False)


class Frozen(Tiny):
    def __init__(self, image_shape: tuple[int, int, int], features: int, width: int = 3) -> None:
        super().__init__(image_shape, features, width)
        self.requires_grad_(False)


class FrozenInTrain(Tiny):
    def train(self, mode: bool = True) -> "FrozenInTrain":
        super().train(mode)
        self.layers[:2].requires_grad_(False)
        return self


def _states(configs: Sequence[TrialConfig]) -> list[dict[str, Tensor]]:
    """All tensors of each member after three steps together on random images."""
    method = method_of(configs[0].method)
    tried = task_of(configs[0].method).random_batch(configs[0], method, 8)
    assert tried
    models = build_models(configs, tried.shapes)
    stack = build_stack(models, configs, [0] * len(models), torch.device("cpu"))
    for step in range(3):
        noises = [draw_noise(noise, step) for noise in (models[0].noise(8), models[0].after_step_noise())]
        stack.step([tried.batch], [noises[0]], [noises[1]], 1.0)
    return [stack.tensors_of(slot) for slot in range(len(configs))]


SIZES: dict[str, dict[str, Value]] = {
    "simclr": {"projector_width": 8, "projection": 4},
    "byol": {"projector_width": 8, "projection": 4, "predictor_width": 8},
    "vje": {"bottleneck": 8},
}


@for_each(
    ("made", "method", "optimiser"),
    [
        *itertools.product((PartlyFrozen, FrozenInTrain, Frozen), SIZES, ["sgd"]),
        *((Frozen, "byol", name) for name in ("adamw", "lars")),
    ],
)
def test_frozen_weights_stay_as_they_are_alone_and_stacked(made: type[Tiny], method: str, optimiser: str) -> None:
    """No optimiser steps or decays them and no moving average drifts from them. Others train, stacked as alone."""
    values: dict[str, Value] = {"method": method, "optimiser": optimiser, "adam_epsilon": 0.01, "encoder": _own(made)}
    rates = ((0.0, 0.01), (0.1, 0.3))
    values |= {"width": 6, "features": 5, **SIZES[method]}
    configs = [resolve({**values, "weight_decay": decay, "lr": lr}) for decay, lr in rates]
    assert why_not_stacked(configs[0]) == ""
    (model,) = build_models(configs[:1], {"views": (1, 8, 8)})
    initial = {name: tensor.clone() for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    frozen = [name for name in initial if "layers.0." in name and name.startswith(("encoder", "target"))]
    alone = [_states([config])[0] for config in configs]
    for member, other in zip(_states(configs), alone, strict=True):
        assert all(torch.equal(member[name], initial[name]) for name in frozen)
        for name, tensor in member.items():
            torch.testing.assert_close(tensor, other[name], rtol=1e-3, atol=1e-5)
    trained = {name for name, _ in model.named_parameters() if not torch.equal(alone[1][name], initial[name])}
    assert frozen and trained and not trained & {*frozen}


class InPlace(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.mul_(2))


class Lazy(Tiny):
    def __init__(self, image_shape: tuple[int, int, int], features: int) -> None:
        super().__init__(image_shape, features)
        self.layers[-1] = nn.LazyLinear(features)


class Late(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        features = super().forward(images)
        if not hasattr(self, "head"):
            self.head = nn.Linear(features.shape[1], features.shape[1])
        return self.head(features)


class Clocked(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * np.random.default_rng().random()


class Unused(Tiny):
    def __init__(self, image_shape: tuple[int, int, int], features: int) -> None:
        super().__init__(image_shape, features)
        self.spare = nn.Linear(2, 2)


class Freezing(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        self.layers[0].requires_grad_(False)
        return super().forward(images)


class Dropping(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(images), 0.5, self.training)


class Wide(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([super().forward(images)] * 2, 1)


class Infinite(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) / 0


class Unsized(nn.Module):
    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__()


class Failing(Tiny):
    def forward(self, images: Tensor) -> Tensor:
        raise RuntimeError("no\nway")


REFUSALS: dict[object, str] = {
    3: "the encoder my_nets:Tiny must be a subclass of torch.nn.Module, but is 3",
    Unused: "the encoder my_nets:Tiny must use all parameters (register averaged weights as buffers), but spare.",
    Freezing: "must leave `requires_grad` of all weights as it is (freeze them in __init__ or train), but ",
    Dropping: "must draw no random numbers (set the probability of its dropout to 0), but two calls with the same",
    InPlace: "must leave its inputs as they are, but an operation changes them in place",
    Lazy: "must have all of its weights when it is built, but layers.4.weight is lazy, without a shape",
    Late: "must have all of its weights when it is built, but head.weight is added by its first call",
    Clocked: "must return the same for the same inputs and weights, but two calls with the same inputs differ",
    Wide: "must return features of shape [8, 5] for 8 images, but returns a tensor [8, 10]",
    Infinite: "must return finite features of random images, but does not",
    Unsized: "must take `features`, or have the size of its output as the attribute `features`, but has None",
    Failing: "the encoder my_nets:Tiny fails at a batch of 8 random images: RuntimeError: no way",
}


@pytest.mark.parametrize("made", REFUSALS, ids=str)
def test_what_is_no_encoder_is_refused_in_one_line(made: object) -> None:
    _own(made)
    with pytest.raises(ValueError) as refused:
        check_method(resolve({"method": "simclr", **KEYS}))
    assert REFUSALS[made] in str(refused.value) and "\n" not in str(refused.value)


def test_a_method_with_two_outputs_needs_one_whose_size_can_be_chosen() -> None:
    _own(Sized)
    with pytest.raises(ValueError, match="vae needs an encoder of configurable size, but my_nets:Tiny does not"):
        resolve({"method": "vae", "encoder": NAME})
