"""BYOL, SimSiam and JEPA compared with their papers' losses word for word in float64; their target networks."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    VIEWS,
    Array,
    B,
    Constant,
    Normed,
    built,
    cosines,
    gradient_of_rows,
    loss_of,
    rows_of,
    through,
)
from trainables.losses.similarity import negative_cosine
from trainables.methods.baselines.byol import BYOL, BYOLConfig
from trainables.methods.baselines.jepa import JEPA, JEPAConfig
from trainables.methods.baselines.simsiam import SimSiam, SimSiamConfig

SMALL = {"projector_width": 8, "projection": 3, "predictor_width": 8}


def _scatter(model: BYOL) -> None:
    """Make the target network different from the online network."""
    with torch.no_grad():
        for buffer in model.target.buffers():
            if buffer.is_floating_point():
                buffer.add_(0.3 * torch.rand(buffer.shape, generator=torch.Generator().manual_seed(1)))


def test_loss_is_equation_2_both_ways() -> None:
    """`2 - 2 cos` of a view's prediction and the other view's target projection, summed over both ways."""
    model = built(BYOL, BYOLConfig(**SMALL))
    _scatter(model)
    target = model.target.network
    assert isinstance(target, nn.Sequential)
    predicted = [through(model.predictor, through(model.projector, view)) for view in rows_of(model)]
    rows = target[0].get_buffer("rows").view(2, B, -1).double().numpy()
    aims = [through(target[1], view) for view in rows]
    expected = sum((2 - 2 * cosines(predicted[i], aims[1 - i])).mean() for i in (0, 1))
    assert loss_of(model).item() == pytest.approx(expected, rel=1e-5)
    assert loss_of(model, 1, 0).item() == pytest.approx(expected, rel=1e-5)
    assert loss_of(model, 0, 0).item() != pytest.approx(expected, rel=1e-2)


def test_the_loss_is_between_0_and_8() -> None:
    model = built(BYOL, BYOLConfig(**SMALL))
    model.predictor = nn.Sequential(nn.Identity())
    assert loss_of(model, 0, 0).item() == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        model.projector[-1].get_parameter("weight").neg_()
    assert loss_of(model, 0, 0).item() == pytest.approx(8, abs=1e-5)


def test_no_gradient_reaches_the_target() -> None:
    """With a predictor that ignores its input, a gradient could reach the encoder through the target only."""
    model = built(BYOL, BYOLConfig(**SMALL))
    assert gradient_of_rows(model, loss_of(model)).abs().amin(-1).gt(0).all()
    nn.init.zeros_(model.predictor.get_parameter("0.weight"))
    nn.init.ones_(model.predictor.get_parameter("1.bias"))
    loss = loss_of(model)
    assert torch.equal(gradient_of_rows(model, loss), torch.zeros(2, B, 4))
    assert torch.autograd.grad(loss, model.predictor.get_parameter("3.weight"))[0].abs().max() > 1e-3
    assert not any(buffer.requires_grad for buffer in model.buffers())
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"encoder", "projector", "predictor"}


@pytest.mark.parametrize("ema", [0.0, 0.5, 1.0])
def test_target_follows_the_online_network(ema: float) -> None:
    model = built(BYOL, BYOLConfig(ema=ema, **SMALL))
    _scatter(model)
    before = {name: buffer.clone() for name, buffer in model.target.network.named_buffers()}
    model.after_step(NO_NOISE)
    after = dict(model.target.network.named_buffers())
    online = dict(nn.Sequential(model.encoder, model.projector).named_parameters())
    for name, weight in online.items():
        assert torch.equal(after[name], ema * before[name] + (1 - ema) * weight.detach()), name
    statistics = after.keys() - online.keys()
    assert len(statistics) == 3 and all(torch.equal(after[name], before[name]) for name in statistics)


def test_statistics_of_batchnorm_are_the_targets_own() -> None:
    """Both networks have seen both views, each with its own weights."""
    model = built(BYOL, BYOLConfig(**SMALL), encoder=Normed)
    _scatter(model)
    with torch.no_grad():
        for network in (model, model.target):
            for name, buffer in network.named_buffers():
                if name.endswith("running_mean"):
                    buffer.zero_()
    model.losses(BATCH, NO_NOISE)
    for encoder in (model.encoder, model.target.network.get_submodule("0")):
        outputs = [encoder.get_submodule("linear")(view.flatten(1)).detach() for view in VIEWS]
        expected = 0.09 * outputs[0].mean(0) + 0.1 * outputs[1].mean(0)
        torch.testing.assert_close(encoder.get_buffer("norm.running_mean"), expected)


def test_collapse_is_a_fixed_point() -> None:
    """Equal outputs for all images are predicted perfectly, and no gradient leads away: the predictor has to."""
    model = built(BYOL, BYOLConfig(**SMALL), encoder=Constant).eval()
    model.predictor = nn.Sequential(nn.Identity())
    loss = loss_of(model)
    assert loss.item() == pytest.approx(0, abs=1e-6)
    gradients = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
    assert all(gradient.abs().max() < 1e-6 for gradient in gradients)


def test_no_bias_that_the_loss_does_not_see() -> None:
    """As in the authors' networks: neither layer of either head has one."""
    model = built(BYOL, BYOLConfig(**SMALL))
    for head in (model.projector, model.predictor):
        assert [type(layer).__name__ for layer in head] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
        assert head[0].bias is None and head[3].bias is None


SIMSIAM_SMALL = {"projector_width": 6, "predictor_width": 3}


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_loss_is_the_mean_negative_cosine_both_ways(layers: int) -> None:
    model = built(SimSiam, SimSiamConfig(projector_layers=layers, **SIMSIAM_SMALL))
    z = [through(model.projector, view) for view in rows_of(model)]
    p = [through(model.predictor, embedding) for embedding in z]
    expected = -0.5 * (cosines(p[0], z[1]) + cosines(p[1], z[0])).mean()
    assert loss_of(model).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert loss_of(model, 1, 0).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_no_gradient_reaches_what_is_predicted() -> None:
    """With a predictor that ignores its input, a gradient could reach the encoder through the target only."""
    model = built(SimSiam, SimSiamConfig(**SIMSIAM_SMALL))
    nn.init.zeros_(model.predictor.get_parameter("0.weight"))
    nn.init.ones_(model.predictor.get_parameter("1.bias"))
    loss = loss_of(model)
    assert torch.equal(gradient_of_rows(model, loss), torch.zeros(2, B, 4))
    assert torch.autograd.grad(loss, model.predictor.get_parameter("3.bias"))[0].abs().max() > 1e-3


def test_gradient_of_the_encoder_is_that_of_its_own_branch() -> None:
    """Each view moves only to predict the other, which is a constant."""
    model = built(SimSiam, SimSiamConfig(**SIMSIAM_SMALL))
    actual = gradient_of_rows(model, loss_of(model))
    rows = model.encoder.get_parameter("rows").detach().view(2, B, -1)
    for i in (0, 1):
        own = rows[i].clone().requires_grad_()
        predicted, aim = model.predictor(model.projector(own)), model.projector(rows[1 - i]).detach()
        (expected,) = torch.autograd.grad(negative_cosine(predicted, aim).mean() / 2, own)
        torch.testing.assert_close(actual[i], expected, rtol=1e-4, atol=1e-6)
        assert expected.abs().max() > 1e-3


def test_collapse_is_a_fixed_point_of_simsiam() -> None:
    """Equal outputs for all images are predicted perfectly, at the least loss of all, and no gradient leads away."""
    model = built(SimSiam, SimSiamConfig(**SIMSIAM_SMALL), encoder=Constant).eval()
    model.predictor = nn.Sequential(nn.Identity())
    loss = loss_of(model)
    assert loss.item() == pytest.approx(-1, abs=1e-6)
    assert all(gradient.abs().max() < 1e-6 for gradient in torch.autograd.grad(loss, list(model.parameters())))


def test_projector_ends_with_a_norm_without_weights() -> None:
    """As in the authors' network; so a projector that collapses gives zeros in training, not the least loss."""
    model = built(SimSiam, SimSiamConfig(projector_layers=3, **SIMSIAM_SMALL))
    kinds = [type(layer).__name__ for layer in model.projector]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear", "BatchNorm1d"]
    assert not list(model.projector[-1].parameters()) and model.projector[-2].bias is None
    assert [type(layer).__name__ for layer in model.predictor] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert loss_of(built(SimSiam, SimSiamConfig(**SIMSIAM_SMALL), encoder=Constant)).abs() < 1e-2


JEPA_SMALL: dict[str, Any] = {"projector_width": 8, "projection": 3, "predictor_width": 8}


def _scattered(config: JEPAConfig) -> JEPA:
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
    model = _scattered(JEPAConfig(**JEPA_SMALL))
    predicted = through(model.predictor, through(model.projector, rows_of(model)[first]))
    expected = np.square(predicted - _targets(model, 1 - first)).mean()
    assert loss_of(model, first, 1 - first).item() == pytest.approx(expected, rel=1e-5)


def test_gradients_reach_the_context_alone() -> None:
    model = _scattered(JEPAConfig(**JEPA_SMALL))
    loss = loss_of(model)
    first, second = gradient_of_rows(model, loss)
    assert first.abs().amax(-1).min() > 1e-5 and torch.equal(second, torch.zeros_like(second))
    assert all(gradient.abs().max() > 1e-6 for gradient in torch.autograd.grad(loss, list(model.parameters())))
    assert not any(buffer.requires_grad for buffer in model.buffers())
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"encoder", "projector", "predictor"}


@pytest.mark.parametrize("ema", [0.0, 0.5, 1.0])
def test_target_follows_the_online_network_of_jepa(ema: float) -> None:
    model = _scattered(JEPAConfig(ema=ema, **JEPA_SMALL))
    before = {name: buffer.clone() for name, buffer in model.target.network.named_buffers()}
    model.after_step(NO_NOISE)
    after = dict(model.target.network.named_buffers())
    for name, weight in nn.Sequential(model.encoder, model.projector).named_parameters():
        assert torch.equal(after[name], ema * before[name] + (1 - ema) * weight.detach()), name


def test_a_collapsed_encoder_is_predicted_by_the_mean() -> None:
    """Standardised targets are 0 there, and so is a prediction without a bias."""
    model = built(JEPA, JEPAConfig(**JEPA_SMALL), encoder=Constant)
    with torch.no_grad():
        model.predictor[-1].get_parameter("weight").zero_()
        model.predictor[-1].get_parameter("bias").zero_()
    assert loss_of(model).item() == pytest.approx(0, abs=1e-6)


def test_a_symmetric_model_has_no_target_network_and_a_gradient_through_targets() -> None:
    """Its loss is the squared error of the online network's own projection of the other view."""
    model = built(JEPA, JEPAConfig(symmetric=True, **JEPA_SMALL))
    first, second = (through(model.projector, view) for view in rows_of(model))
    loss = loss_of(model)
    assert loss.item() == pytest.approx(np.square(through(model.predictor, first) - second).mean(), rel=1e-5)
    assert all(gradient.abs().amax() > 1e-5 for gradient in gradient_of_rows(model, loss))
    model.after_step(NO_NOISE)
    assert not any(name.startswith("target") for name, _ in model.named_buffers())


def test_projections_that_are_not_standardised_keep_their_mean() -> None:
    model = built(JEPA, JEPAConfig(standardise=False, **JEPA_SMALL))
    projections = through(model.projector, rows_of(model)[0])
    assert np.abs(projections.mean(0)).max() > 0.01
    assert np.abs(through(built(JEPA, JEPAConfig(**JEPA_SMALL)).projector, rows_of(model)[0]).mean(0)).max() < 1e-6
