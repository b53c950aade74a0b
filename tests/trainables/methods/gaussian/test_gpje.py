"""GPJE compared with scipy's Gaussian densities, in float64.

Shapes: B images, P dimensions of the projection, R random features.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import cdist
from torch import nn

from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    Array,
    B,
    Constant,
    built,
    gradient_of_rows,
    loss_of,
    rows_of,
    through,
    unit,
)
from trainables.methods.gaussian.gpje import GPJE
from trainables.methods.gaussian.gpje import GPJEConfig as Config

P = 3


def _scattered(**changes: Any) -> GPJE:
    """A model whose target network differs from the online network."""
    model = built(GPJE, Config(**{"projector_width": 8, "projection": P, **changes}))
    with torch.no_grad():
        for buffer in model.target.buffers():
            if buffer.is_floating_point():
                buffer.add_(0.3 * torch.rand(buffer.shape, generator=torch.Generator().manual_seed(1)))
    return model


def _context_and_target(model: GPJE) -> tuple[Array, Array]:
    target = model.target.network
    assert isinstance(target, nn.Sequential)
    rows = target[0].get_buffer("rows").view(2, B, -1)[1].double().numpy()
    output = through(target[1], rows)
    scaled = _standardised(output) if model.config.standardise else unit(output)
    return unit(through(model.projector, rows_of(model)[0])), scaled


def _standardised(z: Array) -> Array:
    return np.asarray((z - z.mean(0)) / np.sqrt(z.var(0) + 1e-5))


def _covariance(model: GPJE, context: Array) -> Array:
    config = model.config
    noise = config.epsilon * np.eye(B)
    if not config.random_features:
        return np.exp(-cdist(context, context, "sqeuclidean") / (2 * config.length**2)) + noise
    frequencies, phases = model.frequencies_PR.double().numpy(), model.phases_R.double().numpy()
    features = np.sqrt(2 / config.random_features) * np.cos(context @ frequencies / config.length + phases)
    return features @ features.T + noise


@pytest.mark.parametrize("size", [0, 3, 20])
@pytest.mark.parametrize(("length", "epsilon", "standardise"), [(0.7, 0.3, True), (0.2, 0.01, True), (0.7, 0.3, False)])
def test_loss_is_the_processs_nll_of_the_targets(size: int, length: float, epsilon: float, standardise: bool) -> None:
    """The dimensions of the target are independent draws of one process over the contexts; left out is `log(2 pi)`."""
    model = _scattered(random_features=size, length=length, epsilon=epsilon, standardise=standardise)
    context, target = _context_and_target(model)
    process = stats.multivariate_normal(np.zeros(B), _covariance(model, context))
    expected = -process.logpdf(target.T).mean() / B - np.log(2 * np.pi) / 2
    total, parts = model.losses(BATCH, NO_NOISE)
    assert total.item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert ((parts["quadratic"] + parts["log_det"]) / 2).item() == pytest.approx(total.item(), rel=1e-5, abs=1e-6)


def test_many_random_features_approach_the_kernel() -> None:
    exact, near, rough = (loss_of(_scattered(random_features=size, standardise=False)).item() for size in (0, 1000, 5))
    assert abs(near - exact) < 0.03 < abs(rough - exact)


def test_features_are_drawn_from_the_kernels_spectrum() -> None:
    """Standard normal frequencies, and phases of a whole turn."""
    model = _scattered(random_features=5000)
    assert stats.kstest(model.frequencies_PR.flatten().numpy(), "norm").pvalue > 0.01
    assert stats.kstest(model.phases_R.numpy(), stats.uniform(0, 2 * np.pi).cdf).pvalue > 0.01
    assert {"frequencies_PR", "phases_R"}.isdisjoint(name for name, _ in model.named_parameters())


@pytest.mark.parametrize("size", [0, 20])
def test_gradients_reach_the_context_alone(size: int) -> None:
    model = _scattered(random_features=size)
    loss = loss_of(model)
    first, second = gradient_of_rows(model, loss)
    assert first.abs().amax(-1).min() > 1e-6 and torch.equal(second, torch.zeros_like(second))
    assert not any(buffer.requires_grad for buffer in model.buffers())


@pytest.mark.parametrize("ema", [0.0, 0.5, 1.0])
def test_target_follows_the_online_network(ema: float) -> None:
    model = _scattered(ema=ema)
    before = {name: buffer.clone() for name, buffer in model.target.network.named_buffers()}
    model.after_step(NO_NOISE)
    after = dict(model.target.network.named_buffers())
    for name, weight in nn.Sequential(model.encoder, model.projector).named_parameters():
        assert torch.equal(after[name], ema * before[name] + (1 - ema) * weight.detach()), name


def test_a_symmetric_process_has_no_target_network_and_gradients_of_both_views() -> None:
    model = built(GPJE, Config(projector_width=8, projection=P, symmetric=True))
    assert not hasattr(model, "target")
    context, target = (unit(through(model.projector, view)) for view in rows_of(model))
    process = stats.multivariate_normal(np.zeros(B), _covariance(model, context))
    expected = -process.logpdf(target.T).mean() / B - np.log(2 * np.pi) / 2
    loss = loss_of(model)
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert (gradient_of_rows(model, loss).abs().amax(-1) > 1e-6).all()
    model.after_step(NO_NOISE)


def _trained_rows(**changes: Any) -> Array:
    """Embeddings `[2, B, D]` after a training of the embeddings themselves."""
    model = built(GPJE, Config(projector_width=0, unit_length=False, length=3.0, epsilon=0.1, **changes))
    optimiser = torch.optim.Adam([model.encoder.get_parameter("rows")], lr=0.2)
    for _ in range(120):
        optimiser.zero_grad()
        loss_of(model).backward()
        optimiser.step()
        model.after_step(NO_NOISE)
    return rows_of(model)


def test_symmetric_targets_vanish_and_those_of_a_target_network_do_not() -> None:
    """Appendix E. Rows of the Table are the views' own, so targets vanish first, and contexts become one."""
    context, target = _trained_rows(symmetric=True)
    assert np.abs(target).max() < 0.02 and context.std(0).max() < 0.02
    context, target = _trained_rows(ema=0.9, standardise=False)
    assert np.abs(target).max() > 1 and context.std(0).min() > 0.3


@pytest.mark.parametrize("size", [0, 200])
def test_a_kernel_longer_than_the_sphere_keeps_no_contexts_apart(size: int) -> None:
    """The likelihood of spread contexts is that of one context; a length of 0.7 tells them apart."""
    gains = []
    for length in (0.7, 50.0):
        model = built(GPJE, Config(projector_width=0, length=length, random_features=size))
        spread = loss_of(model).item()
        with torch.no_grad():
            model.encoder.get_parameter("rows")[:B] = 1.0
        gains.append(abs(loss_of(model).item() - spread))
    assert gains[1] < 0.01 < 0.05 < gains[0]


@pytest.mark.parametrize("size", [0, 200])
def test_targets_with_the_kernels_variance_keep_contexts_apart_which_unit_targets_do_not(size: int) -> None:
    """Even of contexts that tell the targets exactly, the likelihood is larger where all are one, if the variance of
    the targets is below the noise's."""
    gains = {}
    for standardise in (False, True):
        model = built(GPJE, Config(projector_width=0, random_features=size, standardise=standardise))
        with torch.no_grad():
            for rows in (model.encoder.get_parameter("rows"), model.target.network.get_buffer("0.rows")):
                rows.copy_(torch.eye(4)[[0, 1, 2, 3, 0] * 2] + 0.4)
            apart = loss_of(model).item()
            model.encoder.get_parameter("rows")[:B] = 1.0
            gains[standardise] = loss_of(model).item() - apart
    assert gains[False] < -0.05 and gains[True] > 0.05


def test_a_collapsed_encoder_has_the_loss_of_a_constant_kernel() -> None:
    """Its covariance is `11' + epsilon I`; the loss and its gradient are finite."""
    model = built(GPJE, Config(projector_width=8, projection=P, epsilon=0.3, standardise=False), encoder=Constant)
    loss = loss_of(model)
    with torch.no_grad():
        target = model.target(BATCH["views"][1]).double().numpy()
    process = stats.multivariate_normal(np.zeros(B), np.ones((B, B)) + 0.3 * np.eye(B))
    expected = -process.logpdf(unit(target).T).mean() / B - np.log(2 * np.pi) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, list(model.parameters())))
