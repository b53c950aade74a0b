"""SimCLR compared with a literal implementation of SimVAE's Eq. 8, in float64."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainables.methods.plain import B, built, gradient_of_rows, loss_of, rows_of, through, unit
from trainables.methods.baselines.simclr import SimCLR
from trainables.methods.baselines.simclr import SimCLRConfig as Config

SMALL: dict[str, Any] = {"projector_width": 8, "projection": 3}


def _expected(model: SimCLR, tau: float) -> float:
    """Each of the 2B projections finds the other view among the 2B - 1 others; BatchNorm sees one view at a time."""
    u = unit(np.concatenate([through(model.projector, view) for view in rows_of(model)]))
    total = 0.0
    for i in range(2 * B):
        others = sum(math.exp(u[i] @ u[k] / tau) for k in range(2 * B) if k != i)
        total -= math.log(math.exp(u[i] @ u[(i + B) % (2 * B)] / tau) / others)
    return total / (2 * B)


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("width", [8, 0])
def test_loss_is_nt_xent_of_the_projections(tau: float, width: int) -> None:
    """Without a projector, of the representations."""
    model = built(SimCLR, Config(tau=tau, projector_width=width, projection=3))
    assert loss_of(model).item() == pytest.approx(_expected(model, tau), rel=1e-5)


def test_views_are_alike() -> None:
    model = built(SimCLR, Config(**SMALL))
    assert loss_of(model, 1, 0).item() == pytest.approx(loss_of(model, 0, 1).item(), rel=1e-6)
    assert loss_of(model, 0, 0).item() < loss_of(model, 0, 1).item() - 0.1


def test_gradients_reach_both_views_and_every_weight() -> None:
    model = built(SimCLR, Config(**SMALL))
    loss = loss_of(model)
    assert (gradient_of_rows(model, loss).abs().amax((1, 2)) > 1e-3).all()
    assert all(gradient.abs().max() > 1e-4 for gradient in torch.autograd.grad(loss, list(model.parameters())))


def test_a_hot_softmax_sees_no_difference() -> None:
    model = built(SimCLR, Config(tau=1e6, **SMALL))
    assert loss_of(model).item() == pytest.approx(math.log(2 * B - 1), abs=1e-5)


def test_the_representation_is_before_the_projector() -> None:
    model = built(SimCLR, Config(**SMALL))
    assert isinstance(model.projector, nn.Sequential)
    assert model.features == 4 and model.projector[0].in_features == 4 and model.projector[-1].out_features == 3


@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_the_dot_product_keeps_lengths(tau: float) -> None:
    """Softmax over the other vectors of plain products; equal to the cosine for unit vectors alone."""
    model = built(SimCLR, Config(tau=tau, projector_width=0, similarity="dot"))
    u = np.concatenate(rows_of(model))
    logits = u @ u.T / tau
    np.fill_diagonal(logits, -np.inf)
    positive = np.roll(np.arange(2 * B), -B)
    expected = (np.log(np.exp(logits).sum(1)) - logits[np.arange(2 * B), positive]).mean()
    assert loss_of(model).item() == pytest.approx(expected, rel=1e-5)
    cosine = built(SimCLR, Config(tau=tau, projector_width=0))
    assert loss_of(cosine).item() != pytest.approx(expected, rel=1e-3)
    for each in (model, cosine):
        with torch.no_grad():
            each.encoder.get_parameter("rows").copy_(torch.from_numpy(unit(u)))
    assert loss_of(model).item() == pytest.approx(loss_of(cosine).item(), rel=1e-5)
