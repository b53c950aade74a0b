"""The losses together are the evidence of linear Gaussian models, and the prior of a group is scipy's joint density.

In float64. Shapes: B groups, J views, L latent dimensions, P pixels, K members of a stack. A view is
`x = W z + noise` of variance SIGMA2_X; the latents of a group are a group of the prior. `expectation` is the exact mean
of a quadratic loss over the posterior.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from tests.cases import for_each
from tests.trainables.losses.samples import close
from trainables.losses.densities import (
    expected_group_nll,
    gaussian_reconstruction,
    group_nll,
    logvar_entropy,
    logvar_kl,
    standard_centre_nll,
)

B, J, L, P = 5, 3, 2, 5
SIGMA2, PRECISION, SIGMA2_X = 0.15, 0.7, 0.3
RANDOM = np.random.default_rng(0)
W = torch.tensor(RANDOM.normal(size=(P, L)))
X = torch.tensor(RANDOM.normal(size=(1, J, P)))
PIXELS_CONSTANT = P / 2 * math.log(2 * math.pi * SIGMA2_X)
PRIOR = np.kron(SIGMA2 * np.eye(J) + 1 / PRECISION, np.eye(L))
"""Covariance of all latents of a group, `[J L, J L]`."""
PRIOR_CONSTANT = 0.5 * np.linalg.slogdet(2 * math.pi * PRIOR)[1]


def _reconstruction(z_BJL: Tensor, weights: Tensor = W) -> Tensor:
    """Summed over the views, `[B]`."""
    means, images = z_BJL @ weights.mT, X.expand(len(z_BJL), J, P)
    return gaussian_reconstruction(images[:, :, None, None], means[:, :, None, None], SIGMA2_X).sum(1)


def _evidence(weights: Tensor, prior: np.ndarray) -> float:
    """log p(x) of all views."""
    map_all = np.kron(np.eye(J), weights.numpy())
    cov = map_all @ prior @ map_all.T + SIGMA2_X * np.eye(J * P)
    return float(stats.multivariate_normal(cov=cov).logpdf(X.numpy().ravel()))


def _posterior_precision(weights: Tensor, prior: np.ndarray) -> np.ndarray:
    map_all = np.kron(np.eye(J), weights.numpy())
    return np.linalg.inv(prior) + map_all.T @ map_all / SIGMA2_X


def _posterior_mean(weights: Tensor, precision: np.ndarray) -> Tensor:
    right = np.kron(np.eye(J), weights.numpy()).T @ X.numpy().ravel() / SIGMA2_X
    return torch.tensor(np.linalg.solve(precision, right).reshape(1, J, L))


def expectation(loss: Callable[[Tensor], Tensor], mu_1JL: Tensor, var_1JL: Tensor) -> Tensor:
    """Exact for quadratics in n variables: the mean over `mu +- sqrt(n var_i) e_i`."""
    size = mu_1JL.numel()
    steps = math.sqrt(size) * torch.cat([torch.eye(size), -torch.eye(size)]).double().reshape(-1, *mu_1JL.shape[1:])
    return loss(mu_1JL + steps * var_1JL.sqrt()).mean()


def test_joint_over_posterior_is_the_evidence_at_every_latent() -> None:
    """`log p(x, z) - log q(z|x)`, where q is the exact posterior over all views, which has correlations."""
    precision = _posterior_precision(W, PRIOR)
    mean, cov = _posterior_mean(W, precision), np.linalg.inv(precision)
    z_BJL = torch.tensor(RANDOM.normal(size=(6, J, L)))
    log_q = stats.multivariate_normal(mean.numpy().ravel(), cov).logpdf(z_BJL.reshape(6, -1).numpy())
    joint = _reconstruction(z_BJL) + J * PIXELS_CONSTANT + group_nll(z_BJL, SIGMA2, PRECISION) + PRIOR_CONSTANT
    close(joint + torch.tensor(log_q), np.full(6, -_evidence(W, PRIOR)), rtol=1e-10)


def test_a_factorised_posterior_misses_the_evidence_by_its_divergence() -> None:
    """SimVAE's ELBO at the best diagonal posterior: variances `1 / diag(P)` of the exact precision P, and its mean.
    The divergence from it to the exact posterior is `(sum log diag(P) - log det P) / 2`."""
    precision = _posterior_precision(W, PRIOR)
    mu_1JL, var_1JL = _posterior_mean(W, precision), torch.tensor(1 / np.diag(precision)).reshape(1, J, L)
    logvar_1JL = var_1JL.log()
    loss = expectation(_reconstruction, mu_1JL, var_1JL) - logvar_entropy(logvar_1JL).sum()
    loss = loss + expected_group_nll(mu_1JL, logvar_1JL, SIGMA2, PRECISION).sum() + J * PIXELS_CONSTANT + PRIOR_CONSTANT
    divergence = (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1]) / 2
    assert divergence > 0.1
    close(-loss, _evidence(W, PRIOR) - divergence, rtol=1e-10)


def test_the_vae_reaches_the_evidence_with_orthogonal_weights() -> None:
    """Then the exact posterior of each view is diagonal, and the standard normal prior's divergence is closed."""
    weights = torch.linalg.qr(W).Q * torch.tensor([2.0, 0.5])
    precision = _posterior_precision(weights, np.eye(J * L))
    mu_1JL, var_1JL = _posterior_mean(weights, precision), torch.tensor(1 / np.diag(precision)).reshape(1, J, L)
    loss = expectation(lambda z_BJL: _reconstruction(z_BJL, weights), mu_1JL, var_1JL)
    loss = loss + logvar_kl(mu_1JL, var_1JL.log()).sum() + J * PIXELS_CONSTANT
    close(-loss, _evidence(weights, np.eye(J * L)), rtol=1e-10)


PRECISIONS = (0.0, 1e-6, 0.5, 1.0, 40.0)
every_precision = pytest.mark.parametrize("precision", PRECISIONS)


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


Z = _normal(B, J, L) + _normal(B, 1, L, seed=1)
LOGVAR = _normal(B, J, L, seed=2)


@pytest.mark.parametrize(
    ("z", "spread_term", "centre_term", "standard_term"),
    [
        ([[0, 0], [0.3, -0.3], [0.6, 0]], 0.8, 0.047619, 0.05),
        ([[0], [1]], 1.666667, 0.116279, 0.125),
    ],
)
def test_reference_values(z: list[list[float]], spread_term: float, centre_term: float, standard_term: float) -> None:
    """Worked out by hand, for sigma2 = 0.15 and gamma2 = 1."""
    z_BJL = torch.tensor([z], dtype=torch.float64)
    assert group_nll(z_BJL, 0.15, 0).item() == pytest.approx(spread_term, abs=1e-6)
    assert group_nll(z_BJL, 0.15, 1).item() == pytest.approx(spread_term + centre_term, abs=1e-6)
    assert standard_centre_nll(z_BJL).item() == pytest.approx(standard_term, abs=1e-6)


@for_each("sigma2", [0.15, 2.0])
@for_each("precision", [1e-3, 0.5, 1.0, 40.0])
def test_it_is_the_joint_density_of_the_views(sigma2: float, precision: float) -> None:
    """Covariance `sigma2 I + 11^T / precision` in each dimension; the constants are those that the module names."""
    density = stats.multivariate_normal(cov=sigma2 * np.eye(J) + 1 / precision)
    expected = -density.logpdf(Z.numpy().transpose(0, 2, 1)).sum(1)
    constant = (J - 1) * L / 2 * math.log(2 * math.pi * sigma2) + L / 2 * math.log(J)
    constant += L / 2 * math.log(2 * math.pi * (1 / precision + sigma2 / J))
    close(group_nll(Z, sigma2, precision) + constant, expected, rtol=1e-9)


def test_the_uniform_centre_is_an_integral_over_all_centres() -> None:
    """Negative log of the integral of `prod_j N(z_j; psi, sigma2)` over psi, up to what the group of zeros has."""
    sigma2, z_BJ = 0.4, Z[:, :, 0].numpy()

    def integral(z_J: np.ndarray) -> float:
        value, _ = integrate.quad(lambda psi: stats.norm.pdf(z_J, psi, math.sqrt(sigma2)).prod(), -10, 10, epsabs=1e-14)
        return float(value)

    expected = [math.log(integral(np.zeros(J))) - math.log(integral(z_J)) for z_J in z_BJ]
    close(group_nll(Z[:, :, :1], sigma2, 0.0), expected, rtol=1e-7)


@every_precision
def test_the_quadratic_form_has_the_papers_other_shape(precision: float) -> None:
    """`sum ||z||^2 - ||sum z||^2 / (sigma2/gamma2 + J)`, as the paper writes it before it completes the square."""
    z, sigma2 = Z.numpy(), 0.3
    expected = ((z**2).sum((1, 2)) - (z.sum(1) ** 2).sum(1) / (sigma2 * precision + J)) / (2 * sigma2)
    close(group_nll(Z, sigma2, precision), expected)


@every_precision
def test_views_may_be_permuted(precision: float) -> None:
    close(group_nll(Z[:, [2, 0, 1]], 0.15, precision), group_nll(Z, 0.15, precision))
    actual = expected_group_nll(Z[:, [2, 0, 1]], LOGVAR[:, [2, 0, 1]], 0.15, precision)
    close(actual, expected_group_nll(Z, LOGVAR, 0.15, precision))


def test_only_the_uniform_centre_allows_a_shift() -> None:
    shifted = Z + _normal(B, 1, L, seed=3)
    close(group_nll(shifted, 0.15, 0.0), group_nll(Z, 0.15, 0.0))
    assert ((group_nll(shifted, 0.15, 1.0) - group_nll(Z, 0.15, 1.0)).abs() > 1e-3).all()


@pytest.mark.parametrize("scale", [0.1, 7.0])
def test_sigma2_is_only_a_scale_under_the_uniform_centre(scale: float) -> None:
    """`(z, sigma2) -> (c z, c^2 sigma2)`; under a Gaussian centre its precision must follow."""
    close(group_nll(scale * Z, scale**2 * 0.15, 0.0), group_nll(Z, 0.15, 0.0))
    close(group_nll(scale * Z, scale**2 * 0.15, 2.0 / scale**2), group_nll(Z, 0.15, 2.0))
    assert ((group_nll(scale * Z, scale**2 * 0.15, 2.0) - group_nll(Z, 0.15, 2.0)).abs() > 1e-3).all()


def test_wrong_groups_change_the_value() -> None:
    """Views of one image are contiguous on the flattened axis; interleaving the images mixes the groups."""
    flat = (_normal(B, 1, L) + 0.01 * Z).reshape(B * J, L)
    assert (group_nll(flat.reshape(B, J, L), 0.15, 0.0) < 0.1).all()
    assert (group_nll(flat.reshape(J, B, L).transpose(0, 1), 0.15, 0.0) > 1).all()


def test_the_authors_centre_term_is_a_gaussian_centre_of_less_variance() -> None:
    """`gamma2 = 1 - sigma2/J`: with `gamma2 = 1` the exact term is smaller by the factor `1 + sigma2/J`."""
    sigma2, uniform = 0.15, group_nll(Z, 0.15, 0.0)
    close(group_nll(Z, sigma2, 1 / (1 - sigma2 / J)) - uniform, standard_centre_nll(Z), rtol=1e-9)
    close((group_nll(Z, sigma2, 1.0) - uniform) * (1 + sigma2 / J), standard_centre_nll(Z), rtol=1e-9)


@every_precision
def test_the_expectation_is_exact(precision: float) -> None:
    """The mean over `mu +- sqrt(n) sd_i e_i` is the expectation of every quadratic function of n = J L variables."""
    size = J * L
    steps = math.sqrt(size) * torch.cat([torch.eye(size), -torch.eye(size)]).double().reshape(2 * size, 1, J, L)
    expected = group_nll((Z + steps * (LOGVAR / 2).exp()).flatten(0, 1), 0.15, precision).reshape(2 * size, B).mean(0)
    close(expected_group_nll(Z, LOGVAR, 0.15, precision), expected)


def test_the_expectation_is_the_sampled_mean() -> None:
    noise = _normal(20_000, J, L, seed=4)
    sampled = group_nll(Z[0] + (LOGVAR[0] / 2).exp() * noise, 0.15, 1.0)
    difference = sampled.mean() - expected_group_nll(Z[:1], LOGVAR[:1], 0.15, 1.0)
    assert difference.abs() < 4 * sampled.std() / math.sqrt(len(noise))


@pytest.mark.parametrize(("views", "sigma2"), [(10, 0.15), (2, 0.3)])
def test_the_best_posterior_without_reconstruction(views: int, sigma2: float) -> None:
    """Its variance is `sigma2 J / (J - 1)`, 1/6 for 0.15 and 10, and all its means are equal."""
    mu, logvar = _normal(1, views, 2).requires_grad_(), (_normal(1, views, 2, seed=1) - 2).requires_grad_()
    for _ in range(400):
        loss = expected_group_nll(mu, logvar, sigma2, 0.0).sum() - logvar.sum() / 2
        slopes = torch.autograd.grad(loss, (mu, logvar))
        mu, logvar = (value - 0.1 * slope for value, slope in zip((mu, logvar), slopes, strict=True))
    close(logvar.exp(), torch.full((1, views, 2), sigma2 * views / (views - 1)), rtol=1e-6)
    assert (mu - mu[:, :1]).abs().max() < 1e-8


@every_precision
def test_gradients_equal_finite_differences(precision: float) -> None:
    """In the hyperparameters too; at the uniform centre the slope in the precision is `||m||^2 / 2`."""
    inputs = [value.clone().requires_grad_() for value in (Z, LOGVAR)]
    scalars = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.3, precision)]
    assert torch.autograd.gradcheck(group_nll, (inputs[0], *scalars))
    assert torch.autograd.gradcheck(expected_group_nll, (*inputs, *scalars))
    uniform = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(group_nll(Z, 0.3, uniform).sum(), uniform)
    close(slope, (np.square(Z.numpy().mean(1)).sum() / 2).item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_members_of_a_stack_have_their_own_variances(dtype: torch.dtype) -> None:
    """Values that float32 holds exactly; the precision of one member is 0."""
    z_KBJL, logvar_KBJL = (
        _normal(3, B, J, L).to(dtype),
        _normal(3, B, J, L, seed=1).to(dtype),
    )
    sigma2_K, precision_K = torch.tensor([0.25, 1.0, 2.0]), torch.tensor([0.0, 2.0, 0.5])
    fused = torch.vmap(group_nll)(z_KBJL, sigma2_K, precision_K)
    fused_expected = torch.vmap(expected_group_nll)(z_KBJL, logvar_KBJL, sigma2_K, precision_K)
    assert fused.dtype == fused_expected.dtype == dtype and fused.shape == (3, B)
    for k, (sigma2, precision) in enumerate(zip(sigma2_K.tolist(), precision_K.tolist(), strict=True)):
        alone = group_nll(z_KBJL[k], sigma2, precision)
        torch.testing.assert_close(fused[k], alone, rtol=1e-6, atol=1e-6)
        alone = expected_group_nll(z_KBJL[k], logvar_KBJL[k], sigma2, precision)
        torch.testing.assert_close(fused_expected[k], alone, rtol=1e-6, atol=1e-6)


def test_a_far_centre_does_not_cost_the_spread_its_precision() -> None:
    """Under the uniform centre it is unbounded. Sums of squares would be off by 100 in float32."""
    near = Z - Z.mean(1, keepdim=True)
    far = near.float() + 4096
    exact = group_nll(far.double(), 0.15, 0.0)
    torch.testing.assert_close(group_nll(far, 0.15, 0.0).double(), exact, rtol=1e-5, atol=1e-6)


def test_one_value_a_group_and_inputs_untouched() -> None:
    before = Z.clone(), LOGVAR.clone()
    assert group_nll(Z, 0.15, 0.0).shape == expected_group_nll(Z, LOGVAR, 0.15, 1.0).shape == (B,)
    assert standard_centre_nll(Z).shape == (B,)
    assert torch.equal(Z, before[0]) and torch.equal(LOGVAR, before[1])
