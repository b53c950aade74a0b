"""Divergences, entropies and likelihoods of images against scipy, torch, sampling and VJE's closed forms.

In float64 unless said. Shapes: B images, J views of each, C channels, H by W pixels.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.trainables.losses.samples import B, D, Inputs, close
from trainables.losses.densities import (
    bernoulli_reconstruction,
    directional_nll,
    gaussian_entropy,
    gaussian_kl,
    gaussian_reconstruction,
    logvar_entropy,
    logvar_kl,
    logvar_kl_between,
    radial_nll,
    unit,
)

INF = math.inf
NUS = (0.25, 1.0, 3.7, 20.0, INF)

Function = Callable[..., Tensor]


def _radial_nll(z: Tensor, s: Tensor, var: Tensor, nu: float | Tensor) -> Tensor:
    return radial_nll(z, s, nu)


FACTORS: tuple[Function, ...] = (directional_nll, _radial_nll)
every_factor = pytest.mark.parametrize("factor", FACTORS)


@pytest.mark.parametrize("nu", NUS)
def test_directional_nll_is_a_multivariate_student_of_unit_vectors(zsv: Inputs, nu: float) -> None:
    """Up to the log-density at the mode of the standard distribution, which depends on nu and D alone."""
    z, s, var = zsv
    distribution = stats.multivariate_normal if math.isinf(nu) else partial(stats.multivariate_t, df=nu)
    expected = [distribution(np.zeros(D), np.eye(D)).logpdf(np.zeros(D))] * B
    for index, (z_D, s_D, var_D) in enumerate(zip(z.numpy(), s.numpy(), var.numpy(), strict=True)):
        mean, at = z_D / np.linalg.norm(z_D), s_D / np.linalg.norm(s_D)
        expected[index] -= distribution(mean, np.diag(var_D)).logpdf(at)
    close(directional_nll(z, s, var, nu), np.array(expected))


@pytest.mark.parametrize("nu", NUS)
def test_radial_nll_is_a_student_of_the_difference_of_norms(zsv: Inputs, nu: float) -> None:
    """Up to the log-density at 0, which depends on nu alone."""
    z, s, _ = zsv
    difference = np.linalg.norm(z, axis=1) - np.linalg.norm(s, axis=1)
    distribution = stats.norm if math.isinf(nu) else stats.t(nu)
    close(radial_nll(z, s, nu), distribution.logpdf(0) - distribution.logpdf(difference))


@pytest.mark.parametrize("nu", NUS)
def test_losses_are_zero_where_the_samples_are_the_mode(zsv: Inputs, nu: float) -> None:
    z, _, _ = zsv
    assert directional_nll(z, 3 * z, torch.ones_like(z), nu).abs().max() < 1e-12
    assert radial_nll(z, -z, nu).abs().max() < 1e-12


def test_cosine_distance_is_a_boundary_case(zsv: Inputs) -> None:
    """Appendix B.4: var = 1, nu = inf, s = mu."""
    z, mu, _ = zsv
    cosine = torch.nn.functional.cosine_similarity(mu, z)
    close(directional_nll(z, mu, torch.ones_like(z), INF), 1 - cosine)


def test_squared_error_is_a_boundary_case(zsv: Inputs) -> None:
    """Appendix B.4, lambda = 1: on one ray the radial Gaussian is the squared error of the raw embeddings, halved."""
    z, _, _ = zsv
    length = torch.linspace(0.1, 3, B, dtype=torch.float64)[:, None]
    close(radial_nll(z, length * z, INF), (z - length * z).square().sum(-1) / 2)


def test_infinite_nu_is_the_gaussian_and_not_a_large_nu(zsv: Inputs) -> None:
    z, s, var = zsv
    z, s, var = 1e3 * z, s, var * 1e-6  # Q of 1e6, where nu = 1e9 is off by a part in a thousand
    q = ((unit(s) - unit(z)).square() / var).sum(-1)
    dr = torch.linalg.vector_norm(z, dim=-1) - torch.linalg.vector_norm(s, dim=-1)
    for nu in (INF, torch.tensor(INF), torch.full((B,), INF)):
        close(directional_nll(z, s, var, nu), q / 2 + var.log().sum(-1) / 2, rtol=1e-15)
        close(radial_nll(z, s, nu), dr.square() / 2, rtol=1e-15)
    assert ((radial_nll(z, s, 1e9) / radial_nll(z, s, INF) - 1).abs() > 1e-5).all()


@every_factor
def test_continuous_as_nu_grows(zsv: Inputs, factor: Function) -> None:
    """The difference to the limit falls like 1/nu."""
    gaps = [(factor(*zsv, 10.0**k) - factor(*zsv, INF)).abs() for k in range(5, 8)]
    assert (gaps[0] > 0).all() and (gaps[0] < 1).all()
    for gap, next_gap in pairwise(gaps):
        torch.testing.assert_close(next_gap * 10, gap, rtol=0.02, atol=1e-6)


@every_factor
@pytest.mark.parametrize("nu", [0.7, 3.0, INF])
def test_float_scalar_and_vector_nu_agree(zsv: Inputs, factor: Function, nu: float) -> None:
    by_float = factor(*zsv, nu)
    close(factor(*zsv, torch.tensor(nu, dtype=torch.float64)), by_float, rtol=1e-14)
    close(factor(*zsv, torch.full((B,), nu, dtype=torch.float64)), by_float, rtol=1e-14)


@every_factor
def test_mixed_nu_equals_each_alone_with_finite_gradients(zsv: Inputs, factor: Function) -> None:
    nus = [0.25, INF, 3.0, 1e8, INF, 1.0]
    nu = torch.tensor(nus, dtype=torch.float64, requires_grad=True)
    inputs = [value.clone().requires_grad_() for value in zsv]
    mixed = factor(*inputs, nu)
    *slopes, nu_slope = torch.autograd.grad(mixed.sum(), [*inputs, nu], materialize_grads=True)
    assert torch.isfinite(nu_slope).all()
    for b, alone_nu in enumerate(nus):
        row = [value[b : b + 1].clone().requires_grad_() for value in zsv]
        alone = factor(*row, alone_nu)
        close(mixed[b : b + 1].detach(), alone.detach(), rtol=1e-13)
        for slope, expected in zip(slopes, torch.autograd.grad(alone.sum(), row, materialize_grads=True), strict=True):
            assert torch.isfinite(expected).all()
            close(slope[b : b + 1], expected, rtol=1e-12)


@pytest.mark.parametrize("nu", [0.25, 1.0, 3.0, 20.0])
def test_radial_gradient_is_bounded_and_the_bound_attained(nu: float) -> None:
    """Eq. 30, at a difference of norms of sqrt(nu)."""
    bound = (nu + 1) / (2 * math.sqrt(nu))
    length = torch.cat([torch.linspace(0, 60, 3001, dtype=torch.float64), torch.tensor([20.0]) + math.sqrt(nu)])
    s = torch.stack([length, torch.zeros_like(length)], -1).requires_grad_()
    z = torch.tensor([[0.0, 20.0]], dtype=torch.float64).expand(len(length), 2)
    (gradient,) = torch.autograd.grad(radial_nll(z, s, nu).sum(), s)
    slope = torch.linalg.vector_norm(gradient, dim=-1)
    assert (slope <= bound * (1 + 1e-12)).all()
    assert slope[-1].item() == pytest.approx(bound, rel=1e-6)
    assert slope[3000].item() < bound * 0.9


@pytest.mark.parametrize("nu", [0.25, 3.0, INF, torch.tensor([0.5, INF, 7.0, 1.0, INF, 20.0], dtype=torch.float64)])
@every_factor
def test_gradients_equal_finite_differences(zsv: Inputs, factor: Function, nu: float | Tensor) -> None:
    inputs = [value.clone().requires_grad_() for value in zsv]
    assert torch.autograd.gradcheck(lambda z, s, var: factor(z, s, var, nu) + 0 * var.sum(), inputs)


@pytest.mark.parametrize("scale", [1e-3, 0.5, 1e6])
def test_direction_does_not_see_length(zsv: Inputs, scale: float) -> None:
    z, s, var = zsv
    close(directional_nll(scale * z, s, var, 3.0), directional_nll(z, s, var, 3.0), rtol=1e-9)
    close(directional_nll(z, scale * s, var, 3.0), directional_nll(z, s, var, 3.0), rtol=1e-9)


def test_length_does_not_see_direction(zsv: Inputs) -> None:
    z, s, _ = zsv
    close(radial_nll(z.flip(-1), -s, 3.0), radial_nll(z, s, 3.0))
    assert ((radial_nll(2 * z, s, 3.0) - radial_nll(z, s, 3.0)).abs() > 1e-3).all()


def test_unit_floors_the_norm() -> None:
    x = torch.tensor([[3.0, 4.0], [3e-7, 4e-7], [0.0, 0.0]], dtype=torch.float64)
    close(unit(x), [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])


@every_factor
@pytest.mark.parametrize("nu", [0.25, INF, torch.tensor([INF, 1.0])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_vectors_stay_finite(factor: Function, nu: float | Tensor, dtype: torch.dtype) -> None:
    z, s, var = (torch.zeros(2, D, dtype=dtype), torch.zeros(2, D, dtype=dtype), torch.full((2, D), 1e-6, dtype=dtype))
    s[1, 0] = 1.0  # the second row: only z is zero
    inputs = [value.requires_grad_() for value in (z, s, var)]
    value = factor(*inputs, nu)
    gradients = torch.autograd.grad(value.sum(), inputs, allow_unused=True)
    assert torch.isfinite(value).all()
    assert all(torch.isfinite(gradient).all() for gradient in gradients if gradient is not None)


@every_factor
def test_one_value_a_sample_and_inputs_untouched(zsv: Inputs, factor: Function) -> None:
    for nu in (3.0, INF, torch.tensor(3.0), torch.full((B,), 3.0)):
        before = [value.clone() for value in zsv]
        assert factor(*zsv, nu).shape == (B,)
        assert all(torch.equal(value, old) for value, old in zip(zsv, before, strict=True))


def test_nu_of_a_member_broadcasts_over_samples(zsv: Inputs) -> None:
    """`s` may be `[S, B, D]`: posterior samples of the scores."""
    z, s, var = zsv
    s_SBD, nu = torch.stack([s, 2 * s + 1]), torch.tensor([0.5, 1, 2, INF, 3, 4])
    for k in (0, 1):
        close(directional_nll(z, s_SBD, var, nu)[k], directional_nll(z, s_SBD[k], var, nu), rtol=1e-14)
        close(radial_nll(z, s_SBD, nu)[k], radial_nll(z, s_SBD[k], nu), rtol=1e-14)


def test_kl_equals_torch_distributions_and_is_zero_at_the_prior(zsv: Inputs) -> None:
    mu, _, var = zsv
    posterior = torch.distributions.Normal(mu, var.sqrt())
    prior = torch.distributions.Normal(torch.zeros_like(mu), torch.ones_like(mu))
    close(gaussian_kl(mu, var), torch.distributions.kl_divergence(posterior, prior).sum(-1))
    assert torch.equal(gaussian_kl(torch.zeros_like(mu), torch.ones_like(mu)), torch.zeros(B, dtype=torch.float64))
    assert (gaussian_kl(mu, var) > 0).all()


def test_kl_and_entropy_equal_their_monte_carlo_means(zsv: Inputs) -> None:
    mu, _, var = (value[0].numpy() for value in zsv)
    mean, deviation = mu / 4, np.sqrt(var)
    draws = np.random.default_rng(0).normal(mean, deviation, (200_000, D))
    log_q = stats.norm.logpdf(draws, mean, deviation).sum(1)
    log_p = stats.norm.logpdf(draws).sum(1)
    for values, actual in (
        (log_q - log_p, gaussian_kl(torch.tensor(mean)[None], torch.tensor(var)[None])),
        (-log_q, gaussian_entropy(torch.tensor(var)[None])),
    ):
        assert abs(float(actual) - values.mean()) < 4 * values.std() / math.sqrt(len(values))


def test_entropy_equals_scipy(zsv: Inputs) -> None:
    mu, _, var = zsv
    expected = [stats.multivariate_normal(mu_D, np.diag(var_D)).entropy() for mu_D, var_D in zip(mu, var, strict=True)]
    close(gaussian_entropy(var), expected)


def test_gaussian_gradients_equal_finite_differences(zsv: Inputs) -> None:
    mu, _, var = (value.clone().requires_grad_() for value in zsv)
    assert torch.autograd.gradcheck(gaussian_kl, (mu, var))
    assert torch.autograd.gradcheck(gaussian_entropy, (var,))


def test_gaussian_functions_return_one_value_a_sample_and_leave_inputs(zsv: Inputs) -> None:
    mu, _, var = zsv
    before = mu.clone(), var.clone()
    assert gaussian_kl(mu, var).shape == gaussian_entropy(var).shape == (B,)
    assert torch.equal(mu, before[0]) and torch.equal(var, before[1])


def test_reference_values() -> None:
    """Worked out by hand."""
    assert logvar_entropy(torch.tensor([[0.0, -2.0]])).item() == pytest.approx(1.837877, abs=1e-6)
    mu, logvar = torch.tensor([[0.5]]), torch.tensor([[math.log(0.25)]])
    assert logvar_kl(mu, logvar).item() == pytest.approx(0.443147, abs=1e-6)


def test_entropy_equals_scipy_of_log_variances(zsv: Inputs) -> None:
    _, _, var = zsv
    expected = [stats.multivariate_normal(np.zeros(D), np.diag(var_D)).entropy() for var_D in var.numpy()]
    close(logvar_entropy(var.log()), expected)


def test_divergences_equal_torch_distributions(zsv: Inputs) -> None:
    mu, prior_mu, var = zsv
    prior_var = var.roll(1, 0)
    posterior, prior = (torch.distributions.Normal(*pair) for pair in ((mu, var.sqrt()), (prior_mu, prior_var.sqrt())))
    standard = torch.distributions.Normal(torch.zeros(D).double(), torch.ones(D).double())
    expected = torch.distributions.kl_divergence(posterior, standard).sum(-1)
    close(logvar_kl(mu, var.log()), expected)
    expected = torch.distributions.kl_divergence(posterior, prior).sum(-1)
    close(logvar_kl_between(mu, var.log(), prior_mu, prior_var.log()), expected)


def test_divergence_is_zero_for_equals_alone_and_has_a_direction(zsv: Inputs) -> None:
    mu, other_mu, var = zsv
    logvar = var.log()
    assert torch.equal(logvar_kl_between(mu, logvar, mu, logvar), torch.zeros(B, dtype=torch.float64))
    forward, reverse = (
        logvar_kl_between(mu, logvar, other_mu, -logvar),
        logvar_kl_between(other_mu, -logvar, mu, logvar),
    )
    assert (forward > 0.1).all() and (reverse > 0.1).all() and ((forward - reverse).abs() > 0.1).all()
    zeros = torch.zeros_like(mu)
    assert torch.equal(logvar_kl(zeros, zeros), torch.zeros(B, dtype=torch.float64))


def test_small_divergences_are_not_lost_in_float32() -> None:
    """`logvar^2 / 4` near the prior: 2.5e-9 here, where `exp(logvar) - 1 - logvar` rounds to multiples of 6e-8."""
    logvar = torch.tensor([[1e-4], [-1e-4]])
    expected = logvar.double().square().sum(-1).float() / 4
    torch.testing.assert_close(logvar_kl(torch.zeros(2, 1), logvar), expected, rtol=2e-3, atol=0)
    actual = logvar_kl_between(torch.ones(2, 1), 0 * logvar, torch.ones(2, 1), -logvar)
    torch.testing.assert_close(actual, expected, rtol=2e-3, atol=0)


def test_gradients_equal_finite_differences_of_log_variances(zsv: Inputs) -> None:
    mu, other_mu, var = (value.clone().requires_grad_() for value in zsv)
    logvar, other_logvar = (value.detach().requires_grad_() for value in (var.log(), -var.log() / 2))
    assert torch.autograd.gradcheck(logvar_entropy, (logvar,))
    assert torch.autograd.gradcheck(logvar_kl, (mu, logvar))
    assert torch.autograd.gradcheck(logvar_kl_between, (mu, logvar, other_mu, other_logvar))


def test_leading_dimensions_are_kept_and_members_stack(zsv: Inputs) -> None:
    mu, other_mu, var = zsv
    logvar, before = var.log(), mu.clone()
    pairs = torch.stack([mu, other_mu]), torch.stack([logvar, 2 * logvar])
    assert logvar_entropy(pairs[1]).shape == logvar_kl(*pairs).shape == (2, B)
    fused = torch.vmap(logvar_kl_between, (0, 0, None, None))(*pairs, other_mu, logvar)
    for value, pair_mu, pair_logvar in zip(fused, *pairs, strict=True):
        close(value, logvar_kl_between(pair_mu, pair_logvar, other_mu, logvar))
    assert torch.equal(mu, before)


J, SHAPE = 2, (3, 2, 4)
GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.rand(B, J, *SHAPE, dtype=torch.float64, generator=GENERATOR)
LOGITS = 3 * torch.randn(B, J, *SHAPE, dtype=torch.float64, generator=GENERATOR)

Loss = Callable[[Tensor, Tensor, float | Tensor], Tensor]
both_losses = pytest.mark.parametrize("loss", [gaussian_reconstruction, bernoulli_reconstruction])


@pytest.mark.parametrize("sigma2", [0.01005, 0.02, 1.0])
def test_gaussian_is_a_density_of_the_pixels(sigma2: float) -> None:
    mean = LOGITS.sigmoid()
    log_density = stats.norm.logpdf(IMAGES.numpy(), mean.numpy(), math.sqrt(sigma2)).sum((-3, -2, -1))
    constant = math.prod(SHAPE) / 2 * math.log(2 * math.pi * sigma2)
    close(gaussian_reconstruction(IMAGES, mean, sigma2) + constant, -log_density, rtol=1e-9)


@pytest.mark.parametrize("divisor", [0.01005, 1.0])
def test_bernoulli_is_the_mass_of_binary_pixels(divisor: float) -> None:
    binary = (IMAGES > 0.5).double()
    log_mass = stats.bernoulli.logpmf(binary.numpy(), LOGITS.sigmoid().numpy()).sum((-3, -2, -1))
    close(bernoulli_reconstruction(binary, LOGITS, divisor), -log_mass / divisor, rtol=1e-9)


def test_grey_pixels_mix_the_two_outcomes() -> None:
    """Cross-entropy is linear in the pixel."""
    white, black = (bernoulli_reconstruction(torch.full_like(IMAGES, value), LOGITS, 1.0) for value in (1.0, 0.0))
    close(bernoulli_reconstruction(torch.full_like(IMAGES, 0.3), LOGITS, 1.0), 0.3 * white + 0.7 * black)


def test_both_are_least_at_the_images_themselves() -> None:
    inside = IMAGES.clamp(0.1, 0.9)
    logits = inside.logit().requires_grad_()
    for value in (
        gaussian_reconstruction(inside, logits.sigmoid(), 0.02),
        bernoulli_reconstruction(inside, logits, 0.01005),
    ):
        (slope,) = torch.autograd.grad(value.sum(), logits)
        assert slope.abs().max() < 1e-11
    assert torch.equal(gaussian_reconstruction(inside, inside, 0.02), torch.zeros(B, J, dtype=torch.float64))


def test_certain_logits_stay_finite_in_float32() -> None:
    """A saturated sigmoid has no logarithm in float32, but its logit has a loss."""
    logits = torch.tensor([200.0, -200.0, 1e4, -1e4]).reshape(4, 1, 1, 1).requires_grad_()
    wrong = (logits < 0).float()
    loss = bernoulli_reconstruction(wrong, logits, 1.0)
    close(loss, [200.0, 200.0, 1e4, 1e4])
    (slope,) = torch.autograd.grad(loss.sum(), logits)
    close(slope.flatten(), [1.0, -1.0, 1.0, -1.0])


@both_losses
def test_one_value_an_image(loss: Loss) -> None:
    """And per view, where there are views."""
    before = IMAGES.clone()
    by_view = loss(IMAGES, LOGITS, 0.3)
    assert by_view.shape == (B, J) and torch.equal(IMAGES, before)
    close(loss(IMAGES[:, 0], LOGITS[:, 0], 0.3), by_view[:, 0])


@both_losses
def test_gradients_equal_finite_differences_of_images(loss: Loss) -> None:
    inputs = LOGITS.clone().requires_grad_(), torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(partial(loss, IMAGES), inputs)


@both_losses
def test_members_of_a_stack_have_their_own_variance(loss: Loss) -> None:
    variances = torch.tensor([0.25, 1.0, 2.0])
    fused = torch.vmap(loss, (None, None, 0))(IMAGES, LOGITS, variances)
    for value, variance in zip(fused, variances.tolist(), strict=True):
        close(value, loss(IMAGES, LOGITS, variance))


@pytest.mark.parametrize("nu", [0.5, 3.0, math.inf])
def test_the_directional_factor_is_a_subdensity_of_the_circle_unless_it_is_narrow(nu: float) -> None:
    """With its constant it integrates to less than 1 over the directions of two dimensions, so that the objective is a
    lower bound, where the variances are about 1. Where they are small it does not: a line through a narrow density of
    the plane holds about `1 / sqrt(2 pi var)`."""
    angle = torch.linspace(0, 2 * math.pi, 20_001, dtype=torch.float64)
    z_BD, s_BD = torch.stack([angle.cos(), angle.sin()], -1), torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    for scale, subdensity in ((20.0, True), (1.0, True), (0.01, False)):
        var_BD = scale * torch.tensor([[0.7, 1.3]], dtype=torch.float64)
        shape = np.diag(var_BD[0].numpy())
        law = stats.multivariate_normal([0, 0], shape) if math.isinf(nu) else stats.multivariate_t([0, 0], shape, nu)
        constant = law.logpdf([0, 0]) + 0.5 * var_BD.log().sum().item()
        density = (constant - directional_nll(z_BD, s_BD.expand_as(z_BD), var_BD.expand_as(z_BD), nu)).exp()
        assert (torch.trapezoid(density, angle).item() < 1) == subdensity
