"""JEPA's target network, and its squared error in numpy, float64."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainables.methods.plain import (
    NO_NOISE,
    Array,
    B,
    Constant,
    built,
    gradient_of_rows,
    loss_of,
    rows_of,
    through,
)
from trainables.methods.baselines.jepa import JEPA
from trainables.methods.baselines.jepa import JEPAConfig as Config

SMALL: dict[str, Any] = {"projector_width": 8, "projection": 3, "predictor_width": 8}


def _scattered(config: Config) -> JEPA:
    """A model whose target network differs from the online network."""
    model = built(JEPA, config)
    with torch.no_grad():
        for buffer in model.target.buffers():
            if buffer.is_floating_point():
                buffer.add_(0.3 * torch.rand(buffer.shape, generator=torch.Generator().manual_seed(1)))
    return model


def _targets(model: JEPA, view: int) -> Array:
    target = model.target.network
    assert isinstance(target, nn.Sequential)
    return through(target[1], target[0].get_buffer("rows").view(2, B, -1)[view].double().numpy())


@pytest.mark.parametrize("first", [0, 1])
def test_loss_is_the_squared_error_of_predicted_targets(first: int) -> None:
    """A mean over images and dimensions, of one direction, and not of unit vectors."""
    model = _scattered(Config(**SMALL))
    predicted = through(model.predictor, through(model.projector, rows_of(model)[first]))
    expected = np.square(predicted - _targets(model, 1 - first)).mean()
    assert loss_of(model, first, 1 - first).item() == pytest.approx(expected, rel=1e-5)


def test_gradients_reach_the_context_alone() -> None:
    model = _scattered(Config(**SMALL))
    loss = loss_of(model)
    first, second = gradient_of_rows(model, loss)
    assert first.abs().amax(-1).min() > 1e-5 and torch.equal(second, torch.zeros_like(second))
    assert all(gradient.abs().max() > 1e-6 for gradient in torch.autograd.grad(loss, list(model.parameters())))
    assert not any(buffer.requires_grad for buffer in model.buffers())
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"encoder", "projector", "predictor"}


@pytest.mark.parametrize("ema", [0.0, 0.5, 1.0])
def test_target_follows_the_online_network(ema: float) -> None:
    model = _scattered(Config(ema=ema, **SMALL))
    before = {name: buffer.clone() for name, buffer in model.target.network.named_buffers()}
    model.after_step(NO_NOISE)
    after = dict(model.target.network.named_buffers())
    for name, weight in nn.Sequential(model.encoder, model.projector).named_parameters():
        assert torch.equal(after[name], ema * before[name] + (1 - ema) * weight.detach()), name


def test_a_collapsed_encoder_is_predicted_by_the_mean() -> None:
    """Standardised targets are 0 there, and so is a prediction without a bias."""
    model = built(JEPA, Config(**SMALL), encoder=Constant)
    with torch.no_grad():
        model.predictor[-1].get_parameter("weight").zero_()
        model.predictor[-1].get_parameter("bias").zero_()
    assert loss_of(model).item() == pytest.approx(0, abs=1e-6)


def test_a_symmetric_model_has_no_target_network_and_a_gradient_through_targets() -> None:
    """Its loss is the squared error of the online network's own projection of the other view."""
    model = built(JEPA, Config(symmetric=True, **SMALL))
    first, second = (through(model.projector, view) for view in rows_of(model))
    loss = loss_of(model)
    assert loss.item() == pytest.approx(np.square(through(model.predictor, first) - second).mean(), rel=1e-5)
    assert all(gradient.abs().amax() > 1e-5 for gradient in gradient_of_rows(model, loss))
    model.after_step(NO_NOISE)
    assert not any(name.startswith("target") for name, _ in model.named_buffers())


def test_projections_that_are_not_standardised_keep_their_mean() -> None:
    model = built(JEPA, Config(standardise=False, **SMALL))
    projections = through(model.projector, rows_of(model)[0])
    assert np.abs(projections.mean(0)).max() > 0.01
    assert np.abs(through(built(JEPA, Config(**SMALL)).projector, rows_of(model)[0]).mean(0)).max() < 1e-6
