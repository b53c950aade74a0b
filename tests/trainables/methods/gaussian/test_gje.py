"""GJE compared with its formulas in numpy, and GPJE with scipy's Gaussian densities, in float64; the balance of
alignment and entropy in a short training.

Shapes: B images, P dimensions of the projection, R random features.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import cdist
from torch import Tensor, nn

from tests.cases import for_each
from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    Array,
    B,
    Constant,
    D,
    batch_of,
    built,
    gradient_of_rows,
    loss_of,
    rows_of,
    through,
    unit,
    unit_projections,
)
from trainables.methods.gaussian.gje import GJE, GJEConfig
from trainables.methods.gaussian.gpje import GPJE, GPJEConfig

P = 3
LOG_2PI = np.log(2 * np.pi)


def _config(**changes: Any) -> GJEConfig:
    return GJEConfig(**{"projector_width": 8, "projection": P, **changes})


def _entropy(moment: Array, epsilon: float) -> float:
    return float(np.log(np.linalg.eigvalsh(moment) + epsilon).sum() / 2)


def _groups(entropy: str, z: Array) -> list[Array]:
    """What has an entropy each."""
    return [np.concatenate(list(z), axis=1)] if entropy == "joint" else list(z)


@for_each("entropy", ["joint", "marginal"])
@for_each("element_mean", [False, True])
@for_each("weight", [0.0, 1.0, 3.0])
def test_loss_is_alignment_minus_weighted_entropy(entropy: str, element_mean: bool, weight: float) -> None:
    model = built(GJE, _config(entropy=entropy, element_mean=element_mean, entropy_weight=weight, epsilon=0.01))
    z = unit_projections(model)
    total, parts = model.losses(BATCH, NO_NOISE)
    distance = ((z[0] - z[1]) ** 2).sum(-1).mean() / (P if element_mean else 1)
    entropies = sum(_entropy(group.T @ group / B, 0.01) for group in _groups(entropy, z))
    assert parts["alignment"].item() == pytest.approx(distance, rel=1e-5)
    assert parts["entropy"].item() == pytest.approx(entropies, rel=1e-4)
    assert total.item() == pytest.approx(distance - weight / (2 * P) * entropies, rel=1e-4)


@for_each("entropy", ["joint", "marginal"])
@for_each("decoupled", [False, True])
@for_each(("ema", "unit_length"), [(0.0, True), (0.9, False)])
def test_the_exact_likelihood_is_that_of_scipy(entropy: str, decoupled: bool, ema: float, unit_length: bool) -> None:
    """Under the moments with the batch's share, without `log(2 pi)`."""
    options = {"objective": "nll", "decoupled": decoupled, "ema": ema, "unit_length": unit_length, "epsilon": 0.01}
    model = built(GJE, _config(entropy=entropy, **options))
    z = np.stack([through(model.projector, view) for view in rows_of(model)])
    expected = 0.0
    for group in _groups(entropy, unit_projections(model) if unit_length else z):
        size = group.shape[1]
        moment = ema * np.eye(size) / P + (1 - ema) * group.T @ group / B + 0.01 * np.eye(size)
        expected -= stats.multivariate_normal(np.zeros(size), moment).logpdf(group).mean() + size / 2 * LOG_2PI
    assert model.losses(BATCH, NO_NOISE).total.item() == pytest.approx(expected, rel=1e-4)


def test_decoupled_moments_have_no_gradient() -> None:
    """The entropy then has none, and that of the likelihood is `Z S^-1 / B`."""
    model = built(GJE, GJEConfig(projector_width=0, decoupled=True, ema=0.5))
    weightless = built(GJE, GJEConfig(projector_width=0, entropy_weight=0.0))
    assert torch.equal(gradient_of_rows(model, loss_of(model)), gradient_of_rows(weightless, loss_of(weightless)))
    model = built(GJE, GJEConfig(projector_width=0, objective="nll", decoupled=True, unit_length=False, epsilon=0.1))
    joint = np.concatenate(list(rows_of(model)), axis=1)
    expected = joint @ np.linalg.inv(joint.T @ joint / B + 0.1 * np.eye(2 * D)) / B
    slope = gradient_of_rows(model, loss_of(model))
    np.testing.assert_allclose(np.concatenate(list(slope.numpy()), axis=1), expected, rtol=1e-3, atol=1e-5)


def test_without_a_projector_the_loss_is_of_the_representations() -> None:
    model = built(GJE, GJEConfig(projector_width=0, entropy="marginal", epsilon=0.01))
    first, second = (unit(view) for view in rows_of(model))
    entropies = sum(_entropy(z.T @ z / B, 0.01) for z in (first, second))
    expected = ((first - second) ** 2).sum(-1).mean() - entropies / (2 * D)
    assert loss_of(model).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("entropy", ["joint", "marginal"])
@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_moments_are_averaged_from_those_of_the_uniform_sphere(entropy: str, ema: float) -> None:
    model = built(GJE, _config(entropy=entropy, ema=ema, epsilon=0.01))
    groups = _groups(entropy, unit_projections(model))
    moments = [np.eye(groups[0].shape[1]) / P for _ in groups]
    for _ in range(3):
        total, parts = model.losses(BATCH, NO_NOISE)
        moments = [
            ema * moment + (1 - ema) * group.T @ group / B for moment, group in zip(moments, groups, strict=True)
        ]
        entropies = sum(_entropy(moment, 0.01) for moment in moments)
        torch.testing.assert_close(model.moments_GEE.double(), torch.tensor(np.stack(moments)), rtol=1e-5, atol=1e-6)
        expected = parts["alignment"].item() - entropies / (2 * P * (1 - ema))
        assert total.item() == pytest.approx(expected, rel=1e-4)


def test_an_average_does_not_weaken_the_entropys_gradient() -> None:
    """At a stationary moment, the gradient is the one without an average."""
    gradients = []
    for ema in (0.0, 0.99):
        model = built(GJE, _config(ema=ema, epsilon=0.1))
        joint = np.concatenate(list(unit_projections(model)), axis=1)
        model.moments_GEE.copy_(torch.tensor(joint.T @ joint / B))
        gradients.append(gradient_of_rows(model, loss_of(model)))
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-5)


def test_views_are_alike_and_equal_views_align() -> None:
    model = built(GJE, _config(epsilon=0.01))
    assert loss_of(model, 1, 0).item() == pytest.approx(loss_of(model, 0, 1).item(), rel=1e-4)
    assert model.losses(batch_of(0, 0), NO_NOISE).parts["alignment"].item() == 0


def test_both_views_have_gradients() -> None:
    model = built(GJE, _config(epsilon=0.01))
    assert (gradient_of_rows(model, loss_of(model)).abs().amax(-1) > 1e-5).all()


def test_a_collapsed_encoder_has_the_least_entropy_and_a_finite_gradient() -> None:
    model = built(GJE, GJEConfig(projector_width=0, epsilon=1e-4), encoder=Constant)
    total, parts = model.losses(BATCH, NO_NOISE)
    eigenvalues = np.array([2.0] + [0.0] * (2 * D - 1)) + 1e-4
    assert parts["alignment"].item() == 0
    assert parts["entropy"].item() == pytest.approx(np.log(eigenvalues).sum() / 2, rel=1e-3)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(total, list(model.parameters())))


def _length(**changes: Any) -> float:
    """Length of the longest embedding after a training, over that at the start."""
    model = built(GJE, GJEConfig(projector_width=0, unit_length=False, epsilon=0.01, **changes))
    rows = model.encoder.get_parameter("rows")
    start, optimiser = rows.detach().norm(dim=-1).max(), torch.optim.Adam([rows], lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        loss_of(model).backward()
        optimiser.step()
    return (rows.detach().norm(dim=-1).max() / start).item()


@pytest.mark.slow
def test_the_exact_likelihood_shrinks_the_embeddings_and_the_entropy_does_not() -> None:
    """Under the batch's own moments (the trace trap) and under moments without a gradient (the cheat)."""
    assert _length(objective="nll") < 0.1 and _length(objective="nll", decoupled=True, ema=0.5) < 0.1
    assert _length() > 1


def _agreement(**changes: Any) -> tuple[float, float]:
    """Mean cosine between the views after a training of the embeddings themselves, and between different images."""
    model = built(GJE, GJEConfig(projector_width=0, **changes))
    rows = model.encoder.get_parameter("rows")
    optimiser = torch.optim.Adam([rows], lr=0.1)
    for _ in range(100):
        optimiser.zero_grad()
        loss_of(model).backward()
        optimiser.step()
    z: Tensor = torch.nn.functional.normalize(rows.detach(), dim=-1).view(2, B, D)
    cosines = z[0] @ z[1].T
    return cosines.diagonal().mean().item(), (cosines.sum() - cosines.diagonal().sum()).item() / (B * (B - 1))


@pytest.mark.slow
def test_entropy_keeps_images_apart_and_alignment_views_together() -> None:
    """Without the entropy nothing keeps images apart. The marginal entropy does not oppose alignment; the joint one
    does, and wins where the squared distance is a mean over dimensions."""
    marginal, apart = _agreement(entropy="marginal", epsilon=0.01)
    aligned, _ = _agreement(entropy_weight=0.0)
    joint, _ = _agreement(entropy="joint", epsilon=0.01)
    mean, _ = _agreement(entropy="joint", epsilon=0.01, element_mean=True)
    assert min(marginal, aligned) > 0.999 and apart < 0.1
    assert mean + 0.05 < joint < marginal - 0.01


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_the_alignment_has_a_weight(weight: float) -> None:
    """At 0 the gradient is that of the entropy alone, which the views share."""
    model, plain = (built(GJE, GJEConfig(projector_width=0, alignment_weight=each)) for each in (weight, 1.0))
    (total, parts), reference = model.losses(BATCH, NO_NOISE), plain.losses(BATCH, NO_NOISE)
    assert total.item() - reference.total.item() == pytest.approx((weight - 1) * parts["alignment"].item(), rel=1e-4)
    if not weight:
        gradient = gradient_of_rows(model, total)
        torch.testing.assert_close(gradient, gradient_of_rows(model, -parts["entropy"] / (2 * D)))


def test_the_exact_likelihood_has_no_weight_of_the_alignment() -> None:
    with pytest.raises(ValueError, match="alignment_weight needs objective=alignment"):
        GJEConfig(objective="nll", alignment_weight=0.5)


def _scattered(**changes: Any) -> GPJE:
    """A model whose target network differs from the online network."""
    model = built(GPJE, GPJEConfig(**{"projector_width": 8, "projection": P, **changes}))
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


@for_each("size", [0, 3, 20])
@for_each(("length", "epsilon", "standardise"), [(0.7, 0.3, True), (0.2, 0.01, True), (0.7, 0.3, False)])
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
    model = built(GPJE, GPJEConfig(projector_width=8, projection=P, symmetric=True))
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
    model = built(GPJE, GPJEConfig(projector_width=0, unit_length=False, length=3.0, epsilon=0.1, **changes))
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
        model = built(GPJE, GPJEConfig(projector_width=0, length=length, random_features=size))
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
        model = built(GPJE, GPJEConfig(projector_width=0, random_features=size, standardise=standardise))
        with torch.no_grad():
            for rows in (model.encoder.get_parameter("rows"), model.target.network.get_buffer("0.rows")):
                rows.copy_(torch.eye(4)[[0, 1, 2, 3, 0] * 2] + 0.4)
            apart = loss_of(model).item()
            model.encoder.get_parameter("rows")[:B] = 1.0
            gains[standardise] = loss_of(model).item() - apart
    assert gains[False] < -0.05 and gains[True] > 0.05


def test_a_collapsed_encoder_has_the_loss_of_a_constant_kernel() -> None:
    """Its covariance is `11' + epsilon I`; the loss and its gradient are finite."""
    model = built(GPJE, GPJEConfig(projector_width=8, projection=P, epsilon=0.3, standardise=False), encoder=Constant)
    loss = loss_of(model)
    with torch.no_grad():
        target = model.target(BATCH["views"][1]).double().numpy()
    process = stats.multivariate_normal(np.zeros(B), np.ones((B, B)) + 0.3 * np.eye(B))
    expected = -process.logpdf(unit(target).T).mean() / B - np.log(2 * np.pi) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, list(model.parameters())))
