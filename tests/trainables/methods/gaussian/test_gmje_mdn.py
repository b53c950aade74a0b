"""GMJE-MDN compared with scipy's densities, in float64, and the two collapses of its specification.

Shapes: B images, P dimensions of the projection, M components.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax, logsumexp, softmax
from torch import nn

from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    Array,
    B,
    built,
    gradient_of_rows,
    loss_of,
    through,
    unit_projections,
)
from trainables.methods.gaussian.gmje_mdn import MDNGMJE
from trainables.methods.gaussian.gmje_mdn import MDNGMJEConfig as Config

M, P = 2, 3


def _model(**changes: Any) -> MDNGMJE:
    small = {"projector_width": 8, "projection": P, "components": M, "parameter_width": 8}
    return built(MDNGMJE, Config(**{**small, **changes}))


def _nll(model: MDNGMJE, context: Array, target: Array) -> float:
    seen = np.concatenate([context, target], axis=1) if model.config.leaky else context
    raw = through(model.parameter_network, seen)
    logits, means, scales = raw[:, :M], raw[:, M : M + M * P], raw[:, M + M * P :]
    sigma = np.log1p(np.exp(scales)) + model.config.sigma_floor
    total = 0.0
    for b in range(B):
        densities = [
            stats.multivariate_normal(means[b, m * P : (m + 1) * P], np.diag(sigma[b, m * P : (m + 1) * P] ** 2))
            for m in range(M)
        ]
        total -= float(logsumexp(log_softmax(logits[b]) + [density.logpdf(target[b]) for density in densities]))
    return total / B


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("weight", [0.0, 3.0])
def test_entropy_form_is_nll_over_dimensions_minus_entropies(leaky: bool, weight: float) -> None:
    model = _model(leaky=leaky, entropy_weight=weight, epsilon=0.01)
    context, target = unit_projections(model)
    total, parts = model.losses(BATCH, NO_NOISE)
    nll = _nll(model, context, target)
    entropies = sum(np.log(np.linalg.eigvalsh(z.T @ z / B) + 0.01).sum() / 2 for z in (context, target))
    assert parts["nll"].item() == pytest.approx(nll, rel=1e-4)
    assert parts["entropy"].item() == pytest.approx(entropies, rel=1e-4)
    seen = np.concatenate([context, target], -1) if leaky else context
    weights = softmax(through(model.parameter_network, seen)[:, :M], axis=1)
    routing = stats.entropy(weights, axis=1).mean() / np.log(M)
    assert parts["routing_entropy"].item() == pytest.approx(routing, rel=1e-4)
    assert not parts["routing_entropy"].requires_grad
    assert total.item() == pytest.approx(nll / P - weight / (2 * P) * entropies, rel=1e-4)


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_literal_form_is_the_joint_nll(leaky: bool, ema: float) -> None:
    """Eq. 23: that of the context under its averaged moment, without `log(2 pi)`, and that of the target given it."""
    model = _model(objective="literal", leaky=leaky, ema=ema, epsilon=0.01)
    context, target = unit_projections(model)
    moment, nll = np.eye(P) / P, _nll(model, context, target)
    for _ in range(2):
        total, parts = model.losses(BATCH, NO_NOISE)
        moment = ema * moment + (1 - ema) * context.T @ context / B
        density = stats.multivariate_normal(np.zeros(P), moment + 0.01 * np.eye(P))
        context_nll = float(-density.logpdf(context).mean() - P / 2 * np.log(2 * np.pi))
        assert parts["context_nll"].item() == pytest.approx(context_nll, rel=1e-4)
        assert total.item() == pytest.approx(nll + context_nll, rel=1e-4)


def test_both_views_have_gradients() -> None:
    for objective in ("entropy", "literal"):
        model = _model(objective=objective)
        assert (gradient_of_rows(model, loss_of(model)).abs().amax(-1) > 1e-5).all()


def test_deviations_stay_above_the_floor() -> None:
    model = _model(sigma_floor=0.2)
    _, _, sigma = model.mixture(-1e4 * torch.ones(B, P))
    assert sigma.shape == (B, M, P) and sigma.min() >= 0.2


def _minimise(model: MDNGMJE, part: str | None, parameters: list[nn.Parameter]) -> float:
    """Train for 150 steps of Adam, on one part or on the total; returns its last value."""
    optimiser = torch.optim.Adam(parameters, lr=0.03)
    for _ in range(150):
        optimiser.zero_grad()
        losses = model.losses(BATCH, NO_NOISE)
        loss = losses.parts[part] if part else losses.total
        loss.backward()
        optimiser.step()
    return loss.item()


def _trained_rank(**changes: Any) -> float:
    """Effective rank of the contexts after a training of everything: the exponential of the entropy of their moment's
    eigenvalues, which sum to 1."""
    model = _model(**changes)
    _minimise(model, None, list(model.parameters()))
    context, _ = unit_projections(model)
    return float(np.exp(stats.entropy(np.linalg.eigvalsh(context.T @ context / B).clip(1e-12))))


@pytest.mark.slow
def test_literal_form_collapses_and_the_entropy_form_does_not() -> None:
    """To rank 1 of P = 3: the marginal term is no barrier (specification, 4.6)."""
    assert _trained_rank(objective="literal", ema=0.9) < 1.02
    assert _trained_rank() > 2.5


def _nll_of_unpredictable_targets(leaky: bool) -> float:
    """What a network reaches where all contexts are equal."""
    model = _model(leaky=leaky)
    with torch.no_grad():
        model.encoder.get_parameter("rows")[:B] = 1.0
    return _minimise(model, "nll", list(model.parameter_network.parameters()))


@pytest.mark.slow
def test_a_network_that_sees_the_target_explains_what_no_context_can() -> None:
    """Towards its bound, `P (log(floor) + log(2 pi) / 2)`, which is -11."""
    assert _nll_of_unpredictable_targets(leaky=True) < -5
    assert _nll_of_unpredictable_targets(leaky=False) > -2
