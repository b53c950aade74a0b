"""Against scipy and the closed forms of VJE (section 1 of its specification), in float64."""

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
from trainables.losses.densities import directional_nll, radial_nll, unit

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
