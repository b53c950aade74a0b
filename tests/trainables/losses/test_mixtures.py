"""Prototypes and data as modes against scipy, softmax and InfoNCE; float64 unless a test is about less.

Sections are those of GMJE's specification.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor

from tests.trainables.losses.samples import close, covariance, normal, unit_normal
from trainables.losses.linear_algebra import cholesky, log_det
from trainables.losses.mixtures import (
    component_exponents,
    data_as_mode_nll,
    isotropic_exponents,
    matching_mode_nll,
    prototype_nll,
    shared_exponents,
)
from trainables.losses.similarity import info_nce

B, D, M, K = 7, 4, 5, 3
LOG_2PI = math.log(2 * math.pi)
Z, MEANS, LOGITS = normal(B, D), normal(M, D, seed=1), normal(M, seed=2)


def _log_densities(covariances: np.ndarray) -> np.ndarray:
    """`log pi_m + log N(z; mu_m, S_m)`, `[B, M]`."""
    weights = np.exp(LOGITS.numpy()) / np.exp(LOGITS.numpy()).sum()
    parameters = zip(weights, MEANS.numpy(), covariances, strict=True)
    return np.stack([math.log(w) + stats.multivariate_normal(mean, S).logpdf(Z) for w, mean, S in parameters], -1)


def test_with_a_shared_covariance_half_its_log_determinant_is_added_outside() -> None:
    matrix = covariance(D)
    factor = cholesky(matrix)
    got = prototype_nll(shared_exponents(Z, MEANS, factor), LOGITS) + log_det(factor) / 2 + D / 2 * LOG_2PI
    close(got, -logsumexp(_log_densities(np.stack([matrix.numpy()] * M)), axis=1))


def test_with_a_covariance_of_each_component_it_is_inside() -> None:
    matrices = covariance(M, D)
    exponents = component_exponents(Z, MEANS, cholesky(matrices))
    expected = _log_densities(matrices.numpy())
    close(prototype_nll(exponents, LOGITS) + D / 2 * LOG_2PI, -logsumexp(expected, axis=1))


def test_a_temperature_is_an_isotropic_covariance() -> None:
    tau = 0.3
    got = prototype_nll(isotropic_exponents(Z, MEANS, tau), LOGITS) + D / 2 * (LOG_2PI + math.log(tau))
    close(got, -logsumexp(_log_densities(np.stack([tau * np.eye(D)] * M)), axis=1))


def test_the_three_kinds_of_covariance_agree_where_they_are_equal() -> None:
    factor = cholesky(0.3 * torch.eye(D, dtype=torch.float64))
    isotropic = isotropic_exponents(Z, MEANS, 0.3)
    close(shared_exponents(Z, MEANS, factor), isotropic)
    close(component_exponents(Z, MEANS, factor.expand(M, D, D)) + log_det(factor) / 2, isotropic)


def test_responsibilities_are_minus_the_gradient_by_the_exponents() -> None:
    exponents = normal(B, M).requires_grad_()
    (slope,) = torch.autograd.grad(prototype_nll(exponents, LOGITS).sum(), exponents)
    weighted = np.exp(LOGITS.numpy()) * np.exp(exponents.detach().numpy())
    close(-slope, weighted / weighted.sum(1, keepdims=True))
    close((LOGITS + exponents.detach()).softmax(-1), -slope)


def test_prototypes_move_to_samples_by_responsibility_and_weights_to_their_mean() -> None:
    """The gradients by means and logits: `sum_b r (mu - z) / tau` and `sum_b (pi - r)`."""
    means, logits = MEANS.clone().requires_grad_(), LOGITS.clone().requires_grad_()
    exponents = isotropic_exponents(Z, means, 0.3)
    slopes = torch.autograd.grad(prototype_nll(exponents, logits).sum(), (means, logits))
    r = (logits + exponents).softmax(-1).detach().numpy()
    close(slopes[0], np.einsum("bm,bmd->md", r, MEANS.numpy() - Z.numpy()[:, None]) / 0.3)
    close(slopes[1], (np.exp(LOGITS.numpy()) / np.exp(LOGITS.numpy()).sum() - r).sum(0))


def test_logits_are_those_of_one_sample_or_of_all_and_lack_a_constant() -> None:
    exponents, logits = normal(B, M), normal(B, M, seed=3)
    for b in range(B):
        close(prototype_nll(exponents, logits)[b], prototype_nll(exponents[b : b + 1], logits[b] + 7)[0])


def test_one_component_leaves_its_exponent_and_equal_ones_count_once() -> None:
    exponents = normal(B, 1)
    close(prototype_nll(exponents, torch.zeros(1)), -exponents[:, 0])
    close(prototype_nll(exponents.expand(B, M), LOGITS), -exponents[:, 0])


def _conditional_density(z_c: np.ndarray, z_t: np.ndarray, modes: list[tuple[np.ndarray, np.ndarray]], tau: float):
    near = [stats.multivariate_normal(mode_c, tau).pdf(z_c) for mode_c, _ in modes]
    joint = [p * stats.multivariate_normal(mode_t, tau).pdf(z_t) for p, (_, mode_t) in zip(near, modes, strict=True)]
    return sum(joint) / sum(near)


def test_data_as_modes_are_a_conditional_density() -> None:
    context, target, tau = normal(B, D, seed=5), normal(B, D, seed=6), 0.4
    modes = list(zip(MEANS.numpy(), MEANS.numpy()[::-1], strict=True))
    densities = [_conditional_density(c, t, modes, tau) for c, t in zip(context.numpy(), target.numpy(), strict=True)]
    got = data_as_mode_nll(context, target, MEANS, MEANS.flip(0), tau) + D / 2 * (LOG_2PI + math.log(tau))
    close(got, -np.log(densities))


CODES = 1e3 * torch.eye(32, dtype=torch.float64)
"""Targets so far apart that each sees its own mode alone: they cut the numerator to the matching mode."""


def _aligned(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Contexts and targets with cosines of about 0.9."""
    target = unit_normal(32, D, seed=seed)
    return torch.nn.functional.normalize(target + 0.25 * normal(32, D, seed=seed + 1), dim=-1), target


def _info_nce(context: Tensor, target: Tensor, tau: float) -> Tensor:
    """Of each context against its target and the other targets."""
    count = len(target)
    rest = [target[torch.arange(count) != b] for b in range(count)]
    return torch.cat([info_nce(context[b : b + 1], target[b : b + 1], rest[b], tau) for b in range(count)])


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_data_as_modes_are_info_nce_under_four_conditions(tau: float) -> None:
    """The modes' contexts are their targets; each target is a mode; the numerator has that mode alone; the
    denominator has no others."""
    context, target = _aligned()
    close(data_as_mode_nll(context, CODES, target, CODES, tau), _info_nce(context, target, tau), rtol=1e-10)


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_the_matching_mode_alone_is_info_nce(tau: float) -> None:
    context, target = _aligned()
    close(matching_mode_nll(context, target, tau), _info_nce(context, target, tau), rtol=1e-10)
    inputs = [value[:5].clone().requires_grad_() for value in (context, target)]
    assert torch.autograd.gradcheck(matching_mode_nll, (*inputs, torch.tensor(0.5).double().requires_grad_()))


def test_the_exact_density_is_best_where_all_images_are_one() -> None:
    """It is 0 there and nowhere less; that of the matching mode is log B there, which is chance."""
    (context, target), one = _aligned(), unit_normal(1, D).expand(32, D)
    assert (data_as_mode_nll(context, target, target, target, 0.5) > 0.01).all()
    close(data_as_mode_nll(one, one, one, one, 0.5), torch.zeros(32))
    close(matching_mode_nll(one, one, 0.5), [math.log(32)] * 32)


def test_each_of_the_four_conditions_is_needed() -> None:
    (context, target), tau = _aligned(), 0.5
    expected = _info_nce(context, target, tau)
    for broken in (
        data_as_mode_nll(context, CODES, context, CODES, tau),
        data_as_mode_nll(context, CODES + 0.1, target, CODES, tau),
        data_as_mode_nll(context, target, target, target, tau),
        data_as_mode_nll(context, CODES, torch.cat([target, context]), torch.cat([CODES, 9 + CODES]), tau),
    ):
        assert (broken - expected).abs().mean() > 0.1


def test_all_modes_in_the_numerator_agree_with_info_nce_where_tau_is_small() -> None:
    target = unit_normal(64, 32)
    context = torch.nn.functional.normalize(target + 0.08 * normal(64, 32, seed=1), dim=-1)
    gaps = []
    for tau in (0.05, 0.1, 0.5):
        gap = _info_nce(context, target, tau) - data_as_mode_nll(context, target, target, target, tau)
        assert (gap > -1e-12).all()
        gaps.append(gap.mean().item())
    assert gaps[0] < 1e-6 < gaps[1] < 0.01 < 0.5 < gaps[2]


@pytest.mark.parametrize("beyond", [False, True])
def test_all_modes_in_the_numerator_disagree_with_info_nce_where_another_mode_is_nearer(beyond: bool) -> None:
    """By the distances `d_m` of the modes from context and target. The context of the first image lies on its target,
    or beyond that of the second, so that the second mode explains the pair better."""
    angles = torch.tensor([0.0, 0.4, 3.0], dtype=torch.float64)
    target = torch.stack([angles.cos(), angles.sin()], dim=1)
    turned = angles + torch.tensor([1.4 if beyond else 0.0, 0.0, 0.0], dtype=torch.float64)
    context = torch.stack([turned.cos(), turned.sin()], dim=1)
    d = torch.cdist(context, target).square() + torch.cdist(target, target).square()
    for tau in (0.5, 0.05, 0.004):
        gap = _info_nce(context, target, tau) - data_as_mode_nll(context, target, target, target, tau)
        close(gap, (-(d - d.diagonal()[:, None]) / (2 * tau)).logsumexp(1), rtol=1e-9)
        assert not beyond or gap[0] > (d[0, 0] - d[0].min()) / (2 * tau) - 1e-9
    assert gap[0] > 72 if beyond else gap.max() < 1e-9


def _shared(z: Tensor, means: Tensor, logits: Tensor, tau: Tensor) -> Tensor:
    factor = cholesky(tau * (z.mT @ z), 0.1)
    return prototype_nll(shared_exponents(z, means, factor), logits) + log_det(factor) / 2


def _each(z: Tensor, means: Tensor, logits: Tensor, tau: Tensor) -> Tensor:
    factors = cholesky(tau * means[..., :, None] * means[..., None, :], 0.1)
    return prototype_nll(component_exponents(z, means, factors), logits)


def _isotropic(z: Tensor, means: Tensor, logits: Tensor, tau: Tensor) -> Tensor:
    return prototype_nll(isotropic_exponents(z, means, tau), logits)


every_covariance = pytest.mark.parametrize("loss", [_shared, _each, _isotropic])


@every_covariance
def test_gradients_equal_finite_differences(loss) -> None:
    inputs = [value.clone().requires_grad_() for value in (Z, MEANS, LOGITS)]
    tau = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (*inputs, tau))


@every_covariance
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_with_their_own_tau_equal_each_alone(loss, dtype: torch.dtype) -> None:
    inputs = [normal(*shape).to(dtype).requires_grad_() for shape in ((K, B, D), (K, M, D), (K, M))]
    tau_K = torch.tensor([0.05, 0.5, 5.0])
    fused = torch.vmap(loss)(*inputs, tau_K)
    alone = torch.stack([loss(*(value[k] for value in inputs), tau_K[k]) for k in range(K)])
    assert fused.dtype == dtype and fused.shape == (K, B)
    tight = 1e-4 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(fused, alone, rtol=tight, atol=tight)
    got, expected = (torch.autograd.grad(value.sum(), inputs) for value in (fused, alone))
    torch.testing.assert_close(got, expected, rtol=10 * tight, atol=10 * tight)


@pytest.mark.parametrize("tau", [1e-3, 1e3])
def test_extreme_temperatures_stay_finite_in_float32(tau: float) -> None:
    z, means = unit_normal(B, D).float().requires_grad_(), unit_normal(M, D, seed=1).float().requires_grad_()
    for loss in (
        prototype_nll(isotropic_exponents(z, means, tau), torch.zeros(M)),
        data_as_mode_nll(z, z, means, means, tau),
    ):
        assert torch.isfinite(loss).all()
        assert all(torch.isfinite(slope).all() for slope in torch.autograd.grad(loss.sum(), (z, means)))


def test_inputs_are_left_as_they_were() -> None:
    inputs = normal(B, D), normal(M, D, seed=1), normal(M, seed=2)
    exponents = component_exponents(*inputs[:2], cholesky(covariance(M, D)))
    prototype_nll(exponents, inputs[2])
    data_as_mode_nll(inputs[0], inputs[0], inputs[1], inputs[1], 0.1)
    assert all(torch.equal(value, old) for value, old in zip(inputs, (Z, MEANS, LOGITS), strict=True))
