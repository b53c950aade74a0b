"""The head's likelihood against scipy, its bound, and what training does with and without the bottleneck; float64.

Sections are those of GMJE's specification. Shapes: B samples, M components, D dimensions of the target.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import integrate, stats
from scipy.special import logsumexp
from torch import Tensor

from tests.trainables.losses.samples import close, normal
from trainables.losses.linear_algebra import cholesky
from trainables.losses.mixtures import floored_softplus, mixture_density_nll
from trainables.losses.moments import averaged_moment, entropy, gaussian_nll, second_moment

B, M, D, K = 6, 3, 4, 3
TARGET, LOGITS, MEANS = normal(B, D), normal(B, M, seed=1), normal(B, M, D, seed=2)
SIGMA = normal(B, M, D, seed=3).exp()


def test_nll_equals_scipy() -> None:
    weights = np.exp(LOGITS.numpy()) / np.exp(LOGITS.numpy()).sum(1, keepdims=True)
    densities = stats.norm(MEANS.numpy(), SIGMA.numpy()).logpdf(TARGET.numpy()[:, None]).sum(-1)
    close(mixture_density_nll(TARGET, LOGITS, MEANS, SIGMA), -logsumexp(np.log(weights) + densities, axis=1))


def test_it_is_a_density_of_the_target() -> None:
    def density(target: float) -> float:
        return math.exp(-mixture_density_nll(torch.tensor([[target]]), LOGITS[:1], MEANS[:1, :, :1], SIGMA[:1, :, :1]))

    assert integrate.quad(density, -60, 60, points=[-1, 0, 1], limit=400)[0] == pytest.approx(1, abs=1e-7)


def test_its_gradient_by_the_logits_is_weights_less_responsibilities() -> None:
    logits = LOGITS.clone().requires_grad_()
    (slope,) = torch.autograd.grad(mixture_density_nll(TARGET, logits, MEANS, SIGMA).sum(), logits)
    joint = stats.norm(MEANS.numpy(), SIGMA.numpy()).pdf(TARGET.numpy()[:, None]).prod(-1)
    joint = joint * LOGITS.softmax(-1).numpy()
    close(slope, LOGITS.softmax(-1).numpy() - joint / joint.sum(1, keepdims=True))


def test_standard_deviations_stay_above_the_floor() -> None:
    raw = torch.tensor([-1e4, -3.0, 0.0, 5.0, 1e4], dtype=torch.float64)
    close(floored_softplus(raw, 0.01), np.logaddexp(0, raw.numpy()) + 0.01)
    slope = torch.func.vmap(torch.func.grad(lambda value: floored_softplus(value, 0.01)))(raw.float())
    assert torch.isfinite(slope).all()


@pytest.mark.parametrize("floor", [1e-3, 0.1])
def test_the_floor_bounds_it_and_a_leak_reaches_the_bound(floor: float) -> None:
    bound = D * (math.log(floor) + 0.5 * math.log(2 * math.pi))
    sigma = floored_softplus(SIGMA.log(), floor)
    assert (mixture_density_nll(TARGET, LOGITS, MEANS, sigma) > bound).all()
    leaked = TARGET[:, None].expand(B, M, D)
    assert (mixture_density_nll(TARGET, LOGITS, leaked, sigma) > bound).all()
    close(mixture_density_nll(TARGET, LOGITS, leaked, torch.full_like(sigma, floor)), [bound] * B)


def _trained(loss: Callable[..., Tensor], *initial: Tensor) -> list[Tensor]:
    """Weights after 60 steps of Adam."""
    weights = [weight.clone().requires_grad_() for weight in initial]
    optimiser = torch.optim.Adam(weights, 0.1)
    for _ in range(60):
        optimiser.zero_grad()
        loss(*weights).backward()
        optimiser.step()
    return [weight.detach() for weight in weights]


def _head(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, means and standard deviations of two components, linear in x but for the floor of 1e-3."""
    raw = (torch.cat([x, torch.ones_like(x[:, :1])], -1) @ weight).reshape(len(x), 2, -1)
    means, deviations = raw[..., 1:].chunk(2, -1)
    return raw[..., 0], means, floored_softplus(deviations, 1e-3)


def test_a_head_that_sees_the_target_falls_towards_the_bound() -> None:
    """With two branches `y = +-x` and noise of 0.05, whose NLL without a leak is at least -1.6."""
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
    y = (torch.arange(40) % 2 * 2 - 1)[:, None] * x + 0.05 * normal(40, 1)
    values = []
    for seen in (x, torch.cat([x, y], -1)):

        def loss(weight: Tensor, seen: Tensor = seen) -> Tensor:
            return mixture_density_nll(y, *_head(seen, weight)).mean()

        values.append(loss(*_trained(loss, normal(seen.shape[1] + 1, 6, seed=3))).item())
    bottleneck, leaky = values
    assert math.log(1e-3) + 0.919 < leaky < bottleneck - 1.5 and bottleneck > -1.6


def _effective_rank(z: Tensor) -> float:
    spectrum = torch.linalg.eigvalsh(second_moment(z)).clamp_min(0)
    return torch.distributions.Categorical(spectrum / spectrum.sum()).entropy().exp().item()


def test_taken_literally_the_loss_collapses_an_encoder_and_with_entropies_it_does_not() -> None:
    """With a linear encoder of two noisy views of 64 points, to unit vectors of 4 dimensions."""
    views = [normal(64, 8) + 0.3 * normal(64, 8, seed=seed) for seed in (1, 2)]
    initial = normal(8, 4), 0.1 * normal(5, 18, seed=1)

    def embedded(encoder: Tensor) -> tuple[Tensor, Tensor]:
        context, target = (F.normalize(view @ encoder, dim=-1) for view in views)
        return context, target

    def literal(encoder: Tensor, head: Tensor) -> Tensor:
        context, target = embedded(encoder)
        moment = averaged_moment(torch.eye(4, dtype=torch.float64) / 4, context, 0.9)
        marginal_nll = gaussian_nll(context, cholesky(moment, 1e-4))
        return (mixture_density_nll(target, *_head(context, head)) + marginal_nll).mean()

    def with_entropies(encoder: Tensor, head: Tensor) -> Tensor:
        context, target = embedded(encoder)
        entropies = entropy(second_moment(context), 1e-4) + entropy(second_moment(target), 1e-4)
        return mixture_density_nll(target, *_head(context, head)).mean() / 4 - 0.5 * entropies

    ranks = [_effective_rank(embedded(_trained(loss, *initial)[0])[0]) for loss in (literal, with_entropies)]
    assert _effective_rank(embedded(initial[0])[0]) > 2.5
    assert ranks[0] < 1.3 and ranks[1] > 3.5


def _loss(target: Tensor, logits: Tensor, means: Tensor, raw: Tensor, floor: Tensor) -> Tensor:
    return mixture_density_nll(target, logits, means, floored_softplus(raw, floor))


def test_gradients_equal_finite_differences() -> None:
    inputs = [value.clone().requires_grad_() for value in (TARGET, LOGITS, MEANS, SIGMA.log())]
    assert torch.autograd.gradcheck(_loss, (*inputs, torch.tensor(0.1).double().requires_grad_()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_with_their_own_floors_equal_each_alone(dtype: torch.dtype) -> None:
    shapes = ((B, D), (B, M), (B, M, D), (B, M, D))
    inputs = [normal(K, *shape, seed=seed).to(dtype).requires_grad_() for seed, shape in enumerate(shapes)]
    stacked = (*inputs, torch.tensor([1e-3, 0.1, 1.0]))
    fused = torch.vmap(_loss)(*stacked)
    alone = torch.stack([_loss(*(value[k] for value in stacked)) for k in range(K)])
    assert fused.dtype == dtype and fused.shape == (K, B)
    tight = 1e-5 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(fused, alone, rtol=tight, atol=tight)
    got, expected = (torch.autograd.grad(value.sum(), inputs) for value in (fused, alone))
    torch.testing.assert_close(got, expected, rtol=10 * tight, atol=10 * tight)


def test_targets_far_from_all_components_stay_finite_in_float32() -> None:
    means = MEANS.float().requires_grad_()
    value = mixture_density_nll(1e3 + TARGET.float(), LOGITS.float(), means, torch.full_like(means, 1e-3))
    assert torch.isfinite(value).all() and torch.isfinite(torch.autograd.grad(value.sum(), means)[0]).all()
