"""What every method promises (`trainables.contract`), once, over every entry of METHODS.

A new method gets all of this by its entry in the catalog; OVERRIDES is for one that the defaults below do not suit.
Shapes: K members, B images, N test images.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from trainables.catalog import METHODS
from trainables.cohort import Cohort
from trainables.config import TrialConfig, Value, fusible, keys, resolve
from trainables.contract import Losses, Method
from trainables.data.datasets import load
from trainables.data.views import normalise, scale_pixels
from trainables.streams import Stream, models, split

B, EPOCHS = 60, 10
"""The images of one class of the digits make two batches of 60, so this is 20 steps."""
CPU = torch.device("cpu")

COMMON: Mapping[str, Value] = {
    "dataset": "digits", "normal_class": 3, "encoder": "mlp", "width": 32, "features": 16,
    "batch_size": B, "epochs": EPOCHS, "lr": 0.02, "rotation": 10.0, "shift": 0.25,
}  # fmt: skip
OVERRIDES: Mapping[str, Mapping[str, Value]] = {"vje": {"bottleneck": 16}}
"""Method -> what its small digits trial needs beyond COMMON and its own defaults."""

FACTORS = (1.0, 0.5, 0.8, 0.25)
"""Members of a cohort differ in each fusible hyperparameter by these factors of its default."""


def _config(name: str, **changes: Value) -> TrialConfig:
    return resolve({"method": name, **COMMON, **OVERRIDES.get(name, {}), **changes})


def _members(name: str) -> list[TrialConfig]:
    """Members that differ in everything in which the members of one cohort may; the last shares the first's stream."""
    first = _config(name)
    own = {key: getattr(first.options, key) or 0.1 for key in METHODS[name].fusible}
    loop = [
        {"lr": 0.02, "weight_decay": 0.0, "seed": 0, "normal_class": 3},
        {"lr": 0.01, "weight_decay": 0.01, "seed": 1, "normal_class": 3},
        {"lr": 0.03, "weight_decay": 0.1, "seed": 0, "normal_class": 8},
        {"lr": 0.015, "weight_decay": 0.05, "seed": 0, "normal_class": 3},
    ]
    return [
        _config(name, **{key: value * factor for key, value in own.items()}, **changes)
        for factor, changes in zip(FACTORS, loop, strict=True)
    ]


@pytest.fixture(params=sorted(METHODS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _model(name: str) -> Method:
    return models([_config(name)], (1, 8, 8))[0]


def _inputs(name: str) -> tuple[list[Tensor], Tensor]:
    """One batch of views and the noise of its shape, as training gives them."""
    config = _config(name)
    stream = Stream(config, split(load("digits", Path()), 3), CPU)
    views = stream.views(stream.order(0)[0], 0, 0, METHODS[name].view_count)
    return views, stream.noise(_model(name).noise_shape(B), 0, 0)


def _losses(name: str, noise: Tensor | None = None) -> Losses:
    views, drawn = _inputs(name)
    losses: Losses = _model(name).losses(*views, noise=drawn if noise is None else noise)
    return losses


def _test_images() -> Tensor:
    digits = load("digits", Path())
    return normalise(scale_pixels(digits.test_images, digits.levels), digits.mean, digits.std)


def test_loss_falls_on_all_digits_and_everything_stays_finite(name: str) -> None:
    cohort = Cohort([_config(name, normal_class=None)], Path(), CPU, None)
    history = [cohort.epoch(epoch)["loss"].item() for epoch in range(EPOCHS)]
    assert history[-1] < history[0] - 0.05 * abs(history[0])
    for tensors in cohort.state()[0].values():
        assert all(tensor.isfinite().all() for tensor in tensors.values() if tensor.is_floating_point())


def test_training_moves_every_parameter(name: str) -> None:
    cohort = Cohort([_config(name)], Path(), CPU, None)
    before = cohort.state()[0]["parameters"]
    cohort.epoch(0)
    after = cohort.state()[0]["parameters"]
    assert [key for key in before if torch.equal(before[key], after[key])] == []


def test_fusible_hyperparameters_are_scalar_buffers_and_fields(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(METHODS[name].Config)}
    model = _model(name)
    for hyperparameter in METHODS[name].fusible:
        buffer = model.get_buffer(hyperparameter)
        assert hyperparameter in fields and buffer.shape == () and buffer.is_floating_point()
        assert buffer.item() == pytest.approx(getattr(model.config, hyperparameter))
    assert fusible(name) >= METHODS[name].fusible and fusible(name) <= set(keys(name))


def test_config_is_frozen_and_documents_every_field(name: str) -> None:
    config = METHODS[name].Config()
    field = dataclasses.fields(config)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, field, getattr(config, field))


def test_losses_are_scalars_with_declared_parts(name: str) -> None:
    losses = _losses(name)
    assert losses.total.shape == () and losses.total.dtype == torch.float32 and losses.total.isfinite()
    assert set(losses.parts) <= set(METHODS[name].loss_parts)
    assert all(part.shape == () and part.isfinite() for part in losses.parts.values())


def test_representation_is_float32_of_the_declared_size(name: str) -> None:
    model = _model(name).eval()
    z_BD = model(_test_images()[:B])
    assert z_BD.shape == (B, model.features) and z_BD.dtype == torch.float32


def test_noise_is_the_only_source_of_chance(name: str) -> None:
    _, noise = _inputs(name)
    assert noise.shape == _model(name).noise_shape(B)
    first = _losses(name, noise).total
    assert torch.equal(first, _losses(name, noise).total)
    if noise.numel():
        assert not torch.equal(first, _losses(name, noise.flip(-1)).total)


def test_nothing_draws_random_numbers(name: str) -> None:
    views, noise = _inputs(name)
    model, images = _model(name), _test_images()[:B]
    before = (torch.get_rng_state(), random.getstate(), repr(np.random.get_state()))
    model.losses(*views, noise=noise)
    model.after_step()
    if model.scores:
        model.eval().score(images, torch.zeros(model.score_noise_shape(B)))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), repr(np.random.get_state()))


def test_losses_leave_parameters_and_inputs_alone(name: str) -> None:
    views, noise = _inputs(name)
    model = _model(name)
    given = [tensor.clone() for tensor in (*views, noise, *model.parameters())]
    model.losses(*views, noise=noise)
    assert all(torch.equal(a, b) for a, b in zip(given, (*views, noise, *model.parameters()), strict=True))


def test_score_gives_exactly_the_declared_scores_one_an_image(name: str) -> None:
    model, images = _model(name).eval(), _test_images()[:7]
    assert set(model.score_means.values()) <= set(model.scores)
    if not model.scores:
        return
    with torch.no_grad():
        scores = model.score(images, torch.zeros(model.score_noise_shape(7)))
        alone = model.score(images[2:3], torch.zeros(model.score_noise_shape(1)))
    assert tuple(scores) == METHODS[name].scores
    assert all(score.shape == (7,) and score.isfinite().all() for score in scores.values())
    for key, score in scores.items():  # an image's score does not depend on its neighbours in the batch
        torch.testing.assert_close(alone[key], score[2:3], rtol=1e-4, atol=1e-5)


@dataclass(frozen=True)
class Outcome:
    """What training left: losses `[epochs, K]` by name, and weights, buffers, momenta and scores `[K, ...]`."""

    losses: dict[str, Tensor]
    tensors: dict[str, Tensor]


def _train(configs: list[TrialConfig], width: int | None) -> Outcome:
    cohort = Cohort(configs, Path(), CPU, width)
    epochs = [cohort.epoch(epoch) for epoch in range(EPOCHS)]
    losses = {name: torch.stack([torch.from_numpy(epoch[name]) for epoch in epochs]) for name in epochs[0]}
    states = cohort.state()
    tensors = {
        f"{kind}.{key}": torch.cat([state[kind][key] for state in states])
        for kind in states[0]
        for key in states[0][kind]
    }
    scores = cohort._scores() if cohort.method.scores else {}
    return Outcome(losses, tensors | {f"score.{key}": torch.from_numpy(value) for key, value in scores.items()})


@cache
def _alone(name: str) -> Outcome:
    """Each member trained in a cohort of one, side by side."""
    outcomes = [_train([config], None) for config in _members(name)]
    return Outcome(
        {key: torch.cat([one.losses[key] for one in outcomes], dim=1) for key in outcomes[0].losses},
        {key: torch.cat([one.tensors[key] for one in outcomes]) for key in outcomes[0].tensors},
    )


@pytest.mark.parametrize("width", [None, 3, 2, 1])
def test_fused_equals_solo(name: str, width: int | None) -> None:
    """Members that differ in all that is fusible, 20 steps in float32: losses, weights, buffers, momenta, scores."""
    fused, alone = _train(_members(name), width), _alone(name)
    for got, expected in ((fused.losses, alone.losses), (fused.tensors, alone.tensors)):
        assert got.keys() == expected.keys()
        for key, value in got.items():
            difference = (value - expected[key]).abs().max().item()
            assert torch.allclose(value, expected[key], rtol=1e-4, atol=1e-4), f"{key} differs by {difference}"


def test_members_of_that_cohort_truly_differ(name: str) -> None:
    """Else the test above would compare equal things with equal things."""
    losses_K = _alone(name).losses["loss"][-1]
    assert len({round(loss, 3) for loss in losses_K.tolist()}) == len(FACTORS)


def test_every_fusible_hyperparameter_matters(name: str) -> None:
    """Members that differ in it alone part within the training."""
    default = _config(name)
    for hyperparameter in METHODS[name].fusible:
        value = getattr(default.options, hyperparameter) or 0.1
        pair = _train([default, _config(name, **{hyperparameter: 0.5 * value})], None)
        weights = [tensor for key, tensor in pair.tensors.items() if key.startswith("parameters.")]
        assert any(not torch.allclose(tensor[0], tensor[1], rtol=1e-3, atol=1e-4) for tensor in weights), hyperparameter
