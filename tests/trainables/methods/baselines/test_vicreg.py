"""VICReg compared with a literal implementation of its loss, and Barlow Twins with Eqs. 1 and 2 of its paper and
numpy's correlations, in float64.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import for_each
from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    Array,
    Constant,
    batch_of,
    built,
    gradient_of_rows,
    loss_of,
    rows_of,
    through,
)
from trainables.methods.baselines.barlow_twins import BarlowTwins, BarlowTwinsConfig
from trainables.methods.baselines.vicreg import VICReg, VICRegConfig

WEIGHTS = {"invariance_weight": "invariance", "variance_weight": "variance", "covariance_weight": "covariance"}
P = 6


def _variance(z: Array) -> float:
    return sum(max(0.0, 1 - math.sqrt(np.var(z[:, d], ddof=1) + 1e-4)) for d in range(z.shape[1])) / z.shape[1]


def _covariance(z: Array) -> float:
    covariance = np.cov(z.T)
    return (np.square(covariance).sum() - np.square(np.diag(covariance)).sum()) / len(covariance)


def _parts(model: VICReg) -> dict[str, float]:
    first, second = (through(model.projector, view) for view in rows_of(model))
    return {
        "invariance": float(((first - second) ** 2).mean()),
        "variance": _variance(first) + _variance(second),
        "covariance": _covariance(first) + _covariance(second),
    }


@for_each("layers", [1, 2, 3])
@for_each("weights", [(25.0, 25.0, 1.0), (1.0, 0.0, 0.0), (0.0, 2.0, 0.0), (0.0, 0.0, 3.0)])
def test_loss_is_the_weighted_sum_of_its_three_parts(layers: int, weights: tuple[float, float, float]) -> None:
    """A weight of 0 turns its part off."""
    model = built(VICReg, VICRegConfig(*weights, projector_layers=layers, projector_width=P))
    total, parts = model.losses(BATCH, NO_NOISE)
    expected = _parts(model)
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, rel=1e-4)
    assert min(expected.values()) > 1e-3
    weighted = [weight * expected[name] for weight, name in zip(weights, WEIGHTS.values(), strict=True)]
    assert total.item() == pytest.approx(sum(weighted), rel=1e-4)


def test_the_conventions_of_the_paper_and_of_its_authors_are_weights() -> None:
    """The paper sums the difference over dimensions, and the code averages the hinges of both views."""

    def loss(invariance: float, variance: float) -> float:
        model = built(VICReg, VICRegConfig(invariance, variance, projector_layers=2, projector_width=P))
        return model.losses(BATCH, NO_NOISE).total.item()

    model = built(VICReg, VICRegConfig(projector_layers=2, projector_width=P))
    first, second = (through(model.projector, view) for view in rows_of(model))
    variance, covariance = _variance(first) + _variance(second), _covariance(first) + _covariance(second)
    of_paper = 25 * np.square(first - second).sum(1).mean() + 25 * variance + covariance
    of_authors = 25 * np.square(first - second).mean() + 25 * variance / 2 + covariance
    assert loss(25.0 * P, 25.0) == pytest.approx(of_paper, rel=1e-4)
    assert loss(25.0, 12.5) == pytest.approx(of_authors, rel=1e-4)


def test_without_a_projector_the_loss_is_of_the_representations() -> None:
    model = built(VICReg, VICRegConfig(projector_width=0))
    with torch.no_grad():
        model.encoder.get_parameter("rows").mul_(0.3)  # so that no dimension varies enough
    _, parts = model.losses(BATCH, NO_NOISE)
    expected = _parts(model)
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, rel=1e-4)
    assert min(expected.values()) > 1e-3


@pytest.mark.parametrize(("field", "part"), WEIGHTS.items())
def test_gradient_of_one_weight_is_that_of_its_part(field: str, part: str) -> None:
    weights: dict[str, Any] = {**dict.fromkeys(WEIGHTS, 0.0), field: 2.0}
    model = built(VICReg, VICRegConfig(**weights, projector_width=P))
    total, parts = model.losses(BATCH, NO_NOISE)
    actual = gradient_of_rows(model, total)
    torch.testing.assert_close(actual, 2 * gradient_of_rows(model, parts[part]))
    assert (actual.abs().amax((1, 2)) > 1e-4).all()


def test_views_are_alike_and_equal_views_agree() -> None:
    model = built(VICReg, VICRegConfig(projector_width=P))
    assert loss_of(model, 1, 0).item() == pytest.approx(loss_of(model, 0, 1).item(), rel=1e-5)
    assert model.losses(batch_of(0, 0), NO_NOISE).parts["invariance"].item() == 0


def test_a_collapsed_encoder_pays_the_whole_hinge() -> None:
    """Nothing else: constants agree and do not covary. The gradient is finite there."""
    model = built(VICReg, VICRegConfig(projector_width=P), encoder=Constant)
    total, parts = model.losses(BATCH, NO_NOISE)
    assert parts["variance"].item() == pytest.approx(2 * (1 - math.sqrt(1e-4)), rel=1e-6)
    assert parts["invariance"].item() == 0 and parts["covariance"].item() == pytest.approx(0, abs=1e-10)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(total, list(model.parameters())))


def test_no_bias_that_the_loss_does_not_see() -> None:
    """Differences and covariances do not: as in the authors' network, the last layer has none."""
    model = built(VICReg, VICRegConfig(projector_layers=3, projector_width=P))
    assert isinstance(model.projector, torch.nn.Sequential)
    assert [type(layer).__name__ for layer in model.projector] == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear"]
    assert all(layer.bias is None for layer in model.projector if isinstance(layer, torch.nn.Linear))


@for_each("layers", [1, 2, 3])
@for_each("weight", [0.0, 5e-3, 1.0])
def test_loss_pulls_correlations_to_the_identity(layers: int, weight: float) -> None:
    model = built(BarlowTwins, BarlowTwinsConfig(weight, projector_layers=layers, projector_width=P))
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
    model = built(BarlowTwins, BarlowTwinsConfig(projector_width=P))
    total, parts = model.losses(batch_of(0, 0), NO_NOISE)
    assert parts["invariance"].item() == pytest.approx(0, abs=1e-8)
    assert total.item() == pytest.approx(5e-3 * parts["redundancy"].item(), rel=1e-4) and total.item() > 1e-3


@pytest.mark.parametrize("scale", [0.024, 3.0])
def test_the_scale_is_of_the_whole_loss_and_not_of_its_parts(scale: float) -> None:
    plain, scaled = (
        built(BarlowTwins, BarlowTwinsConfig(0.5, loss_scale=factor, projector_width=P)) for factor in (1.0, scale)
    )
    (total, parts), (other, others) = (model.losses(BATCH, NO_NOISE) for model in (plain, scaled))
    assert other.item() == pytest.approx(scale * total.item(), rel=1e-5)
    assert {name: part.item() for name, part in parts.items()} == {name: part.item() for name, part in others.items()}


def test_views_are_alike() -> None:
    model = built(BarlowTwins, BarlowTwinsConfig(projector_width=P))
    assert loss_of(model, 1, 0).item() == pytest.approx(loss_of(model, 0, 1).item(), rel=1e-5)


def test_gradients_reach_both_views_and_every_weight() -> None:
    model = built(BarlowTwins, BarlowTwinsConfig(redundancy_weight=0.5, projector_width=P))
    loss = loss_of(model)
    assert (gradient_of_rows(model, loss).abs().amax((1, 2)) > 1e-3).all()
    assert all(gradient.abs().max() > 1e-4 for gradient in torch.autograd.grad(loss, list(model.parameters())))


def test_scale_of_the_projection_does_not_matter() -> None:
    model = built(BarlowTwins, BarlowTwinsConfig(projector_width=P))
    before = loss_of(model).item()
    with torch.no_grad():
        model.projector[-1].get_parameter("weight").mul_(torch.linspace(0.5, 20, P)[:, None])
    assert loss_of(model).item() == pytest.approx(before, rel=1e-5)


def test_a_collapsed_encoder_correlates_with_nothing() -> None:
    """It pays one for each dimension, with finite gradients."""
    model = built(BarlowTwins, BarlowTwinsConfig(projector_width=P), encoder=Constant)
    total, parts = model.losses(BATCH, NO_NOISE)
    assert parts["invariance"].item() == pytest.approx(P, rel=1e-3)
    assert parts["redundancy"].item() == pytest.approx(0, abs=1e-3)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(total, list(model.parameters())))


def test_no_bias_that_the_loss_does_not_see_of_barlow_twins() -> None:
    """Correlations do not: as in the authors' network, no layer has one."""
    model = built(BarlowTwins, BarlowTwinsConfig(projector_layers=3, projector_width=P))
    assert [type(layer).__name__ for layer in model.projector] == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear"]
    assert all(layer.bias is None for layer in model.projector if isinstance(layer, torch.nn.Linear))
