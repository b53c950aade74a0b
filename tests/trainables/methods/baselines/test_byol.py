"""BYOL's target network, and its loss compared with a literal implementation of the paper's Eq. 2, in float64."""

import pytest
import torch
from torch import nn

from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    VIEWS,
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
from trainables.methods.baselines.byol import BYOL
from trainables.methods.baselines.byol import BYOLConfig as Config

SMALL = {"projector_width": 8, "projection": 3, "predictor_width": 8}


def _scatter(model: BYOL) -> None:
    """Make the target network different from the online network."""
    with torch.no_grad():
        for buffer in model.target.buffers():
            if buffer.is_floating_point():
                buffer.add_(0.3 * torch.rand(buffer.shape, generator=torch.Generator().manual_seed(1)))


def test_loss_is_equation_2_both_ways() -> None:
    """`2 - 2 cos` of a view's prediction and the other view's target projection, summed over both ways."""
    model = built(BYOL, Config(**SMALL))
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
    model = built(BYOL, Config(**SMALL))
    model.predictor = nn.Sequential(nn.Identity())
    assert loss_of(model, 0, 0).item() == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        model.projector[-1].get_parameter("weight").neg_()
    assert loss_of(model, 0, 0).item() == pytest.approx(8, abs=1e-5)


def test_no_gradient_reaches_the_target() -> None:
    """With a predictor that ignores its input, a gradient could reach the encoder through the target only."""
    model = built(BYOL, Config(**SMALL))
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
    model = built(BYOL, Config(ema=ema, **SMALL))
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
    model = built(BYOL, Config(**SMALL), encoder=Normed)
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
    model = built(BYOL, Config(**SMALL), encoder=Constant).eval()
    model.predictor = nn.Sequential(nn.Identity())
    loss = loss_of(model)
    assert loss.item() == pytest.approx(0, abs=1e-6)
    gradients = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
    assert all(gradient.abs().max() < 1e-6 for gradient in gradients)


def test_no_bias_that_the_loss_does_not_see() -> None:
    """As in the authors' networks: neither layer of either head has one."""
    model = built(BYOL, Config(**SMALL))
    for head in (model.projector, model.predictor):
        assert [type(layer).__name__ for layer in head] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
        assert head[0].bias is None and head[3].bias is None
