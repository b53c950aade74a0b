"""Against Eqs. 1 and 2 of the paper, with numpy's correlations, in float64."""

import numpy as np
import pytest
import torch

from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    Constant,
    batch_of,
    built,
    gradient_of_rows,
    loss_of,
    rows_of,
    through,
)
from trainables.methods.baselines.barlow_twins import BarlowTwins
from trainables.methods.baselines.barlow_twins import BarlowTwinsConfig as Config

P = 6


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("weight", [0.0, 5e-3, 1.0])
def test_loss_pulls_correlations_to_the_identity(layers: int, weight: float) -> None:
    model = built(BarlowTwins, Config(weight, projector_layers=layers, projector_width=P))
    first, second = (through(model.projector, view) for view in rows_of(model))
    c = np.corrcoef(first.T, second.T)[:P, P:]
    on = sum((1 - c[i, i]) ** 2 for i in range(P))
    off = sum(c[i, j] ** 2 for i in range(P) for j in range(P) if i != j)
    total, parts = model.losses(BATCH, NO_NOISE)
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(
        {"invariance": on, "redundancy": off}, rel=1e-4
    )
    assert total.item() == pytest.approx(on + weight * off, rel=1e-4)


def test_identical_views_correlate_fully() -> None:
    model = built(BarlowTwins, Config(projector_width=P))
    total, parts = model.losses(batch_of(0, 0), NO_NOISE)
    assert parts["invariance"].item() == pytest.approx(0, abs=1e-8)
    assert total.item() == pytest.approx(5e-3 * parts["redundancy"].item(), rel=1e-4) and total.item() > 1e-3


@pytest.mark.parametrize("scale", [0.024, 3.0])
def test_the_scale_is_of_the_whole_loss_and_not_of_its_parts(scale: float) -> None:
    plain, scaled = (built(BarlowTwins, Config(0.5, loss_scale=factor, projector_width=P)) for factor in (1.0, scale))
    (total, parts), (other, others) = (model.losses(BATCH, NO_NOISE) for model in (plain, scaled))
    assert other.item() == pytest.approx(scale * total.item(), rel=1e-5)
    assert {name: part.item() for name, part in parts.items()} == {name: part.item() for name, part in others.items()}


def test_views_are_alike() -> None:
    model = built(BarlowTwins, Config(projector_width=P))
    assert loss_of(model, 1, 0).item() == pytest.approx(loss_of(model, 0, 1).item(), rel=1e-5)


def test_gradients_reach_both_views_and_every_weight() -> None:
    model = built(BarlowTwins, Config(redundancy_weight=0.5, projector_width=P))
    loss = loss_of(model)
    assert (gradient_of_rows(model, loss).abs().amax((1, 2)) > 1e-3).all()
    assert all(gradient.abs().max() > 1e-4 for gradient in torch.autograd.grad(loss, list(model.parameters())))


def test_scale_of_the_projection_does_not_matter() -> None:
    model = built(BarlowTwins, Config(projector_width=P))
    before = loss_of(model).item()
    with torch.no_grad():
        model.projector[-1].get_parameter("weight").mul_(torch.linspace(0.5, 20, P)[:, None])
    assert loss_of(model).item() == pytest.approx(before, rel=1e-5)


def test_a_collapsed_encoder_correlates_with_nothing() -> None:
    """It pays one for each dimension, with finite gradients."""
    model = built(BarlowTwins, Config(projector_width=P), encoder=Constant)
    total, parts = model.losses(BATCH, NO_NOISE)
    assert parts["invariance"].item() == pytest.approx(P, rel=1e-3)
    assert parts["redundancy"].item() == pytest.approx(0, abs=1e-3)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(total, list(model.parameters())))


def test_no_bias_that_the_loss_does_not_see() -> None:
    """Correlations do not: as in the authors' network, no layer has one."""
    model = built(BarlowTwins, Config(projector_layers=3, projector_width=P))
    assert [type(layer).__name__ for layer in model.projector] == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear"]
    assert all(layer.bias is None for layer in model.projector if isinstance(layer, torch.nn.Linear))
