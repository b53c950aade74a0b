"""SimSiam compared with a literal implementation of the paper's Eqs. 1 and 2, in float64."""

import pytest
import torch
from torch import nn

from tests.trainables.methods.plain import B, Constant, built, cosines, gradient_of_rows, loss_of, rows_of, through
from trainables.losses.similarity import negative_cosine
from trainables.methods.baselines.simsiam import SimSiam
from trainables.methods.baselines.simsiam import SimSiamConfig as Config

SMALL = {"projector_width": 6, "predictor_width": 3}


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_loss_is_the_mean_negative_cosine_both_ways(layers: int) -> None:
    model = built(SimSiam, Config(projector_layers=layers, **SMALL))
    z = [through(model.projector, view) for view in rows_of(model)]
    p = [through(model.predictor, embedding) for embedding in z]
    expected = -0.5 * (cosines(p[0], z[1]) + cosines(p[1], z[0])).mean()
    assert loss_of(model).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert loss_of(model, 1, 0).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_no_gradient_reaches_what_is_predicted() -> None:
    """With a predictor that ignores its input, a gradient could reach the encoder through the target only."""
    model = built(SimSiam, Config(**SMALL))
    nn.init.zeros_(model.predictor.get_parameter("0.weight"))
    nn.init.ones_(model.predictor.get_parameter("1.bias"))
    loss = loss_of(model)
    assert torch.equal(gradient_of_rows(model, loss), torch.zeros(2, B, 4))
    assert torch.autograd.grad(loss, model.predictor.get_parameter("3.bias"))[0].abs().max() > 1e-3


def test_gradient_of_the_encoder_is_that_of_its_own_branch() -> None:
    """Each view moves only to predict the other, which is a constant."""
    model = built(SimSiam, Config(**SMALL))
    actual = gradient_of_rows(model, loss_of(model))
    rows = model.encoder.get_parameter("rows").detach().view(2, B, -1)
    for i in (0, 1):
        own = rows[i].clone().requires_grad_()
        predicted, aim = model.predictor(model.projector(own)), model.projector(rows[1 - i]).detach()
        (expected,) = torch.autograd.grad(negative_cosine(predicted, aim).mean() / 2, own)
        torch.testing.assert_close(actual[i], expected, rtol=1e-4, atol=1e-6)
        assert expected.abs().max() > 1e-3


def test_collapse_is_a_fixed_point() -> None:
    """Equal outputs for all images are predicted perfectly, at the least loss of all, and no gradient leads away."""
    model = built(SimSiam, Config(**SMALL), encoder=Constant).eval()
    model.predictor = nn.Sequential(nn.Identity())
    loss = loss_of(model)
    assert loss.item() == pytest.approx(-1, abs=1e-6)
    assert all(gradient.abs().max() < 1e-6 for gradient in torch.autograd.grad(loss, list(model.parameters())))


def test_projector_ends_with_a_norm_without_weights() -> None:
    """As in the authors' network; so a projector that collapses gives zeros in training, not the least loss."""
    model = built(SimSiam, Config(projector_layers=3, **SMALL))
    kinds = [type(layer).__name__ for layer in model.projector]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear", "BatchNorm1d"]
    assert not list(model.projector[-1].parameters()) and model.projector[-2].bias is None
    assert [type(layer).__name__ for layer in model.predictor] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert loss_of(built(SimSiam, Config(**SMALL), encoder=Constant)).abs() < 1e-2
