"""Redundancy against numpy; the joint Gaussian against scipy, its traps under its own moment, and its equilibrium.

In float64 unless a test is about less. Sections are those of GMJE's specification.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.trainables.losses.samples import close, covariance, normal, unit_normal
from trainables.losses.linear_algebra import cholesky, mahalanobis
from trainables.losses.moments import (
    SMALLEST_DEVIATION,
    alignment,
    averaged_moment,
    covariance_penalty,
    cross_correlation,
    entropy,
    gaussian_nll,
    invariance,
    off_diagonal,
    on_diagonal,
    second_moment,
    variance_hinge,
)

B, D, K = 20, 4, 3
Function = Callable[..., Tensor]


def _barlow(first: Tensor, second: Tensor, weight: float | Tensor) -> Tensor:
    correlation = cross_correlation(first, second)
    return on_diagonal(correlation) + weight * off_diagonal(correlation)


def _vicreg(first: Tensor, second: Tensor, weight: float | Tensor) -> Tensor:
    """With `weight` as epsilon too, so that it reaches every term."""
    return invariance(first, second) + variance_hinge(first, weight) + weight * covariance_penalty(second)


both_losses = pytest.mark.parametrize("loss", [_barlow, _vicreg])


@pytest.fixture
def views() -> tuple[Tensor, Tensor]:
    """Dimensions that are correlated, of unequal means and of deviations on both sides of 1."""
    generator = torch.Generator().manual_seed(0)
    first, noise = torch.randn(2, B, D, dtype=torch.float64, generator=generator)
    first = first @ torch.randn(D, D, dtype=torch.float64, generator=generator) + torch.arange(D)
    first = first * torch.tensor([0.1, 0.3, 1.0, 3.0])
    return first, 0.8 * first + noise


def _close(actual: Tensor, expected: object, rtol: float = 1e-11, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


def test_invariance_is_the_mean_squared_difference(views: tuple[Tensor, Tensor]) -> None:
    first, second = views
    _close(invariance(first, second), np.mean((first.numpy() - second.numpy()) ** 2))
    _close(invariance(first, first + 3), 9.0)


@pytest.mark.parametrize("epsilon", [1e-4, 0.5])
def test_variance_hinge_equals_numpy(views: tuple[Tensor, Tensor], epsilon: float) -> None:
    deviation = np.sqrt(views[0].numpy().var(axis=0, ddof=1) + epsilon)
    assert 0 < (deviation < 1).sum() < D
    _close(variance_hinge(views[0], epsilon), np.maximum(0, 1 - deviation).mean())


def test_variance_hinge_is_one_at_collapse_and_zero_at_unit_deviation() -> None:
    _close(variance_hinge(torch.full((B, D), 3.3, dtype=torch.float64), 1e-4), 1 - 1e-2)
    two_points = torch.tensor([[-1.0], [1.0]], dtype=torch.float64) * math.sqrt(0.5)  # unbiased variance 1
    assert variance_hinge(two_points, 1e-4) == 0 and variance_hinge(0.99 * two_points, 1e-4) > 0.009


def test_covariance_penalty_equals_numpy(views: tuple[Tensor, Tensor]) -> None:
    covariance = np.cov(views[0].numpy(), rowvar=False)
    expected = sum(covariance[i, j] ** 2 for i in range(D) for j in range(D) if i != j) / D
    _close(covariance_penalty(views[0]), expected)


def test_covariance_penalty_sees_neither_shift_nor_rotation_of_an_isotropic_batch(views: tuple[Tensor, Tensor]) -> None:
    z, _ = views
    _close(covariance_penalty(z - 5), covariance_penalty(z), rtol=1e-10)
    _close(covariance_penalty(3 * z), 81 * covariance_penalty(z))
    rotation, _ = torch.linalg.qr(torch.randn(D, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    white, _ = torch.linalg.qr(z - z.mean(0))
    assert covariance_penalty(white @ rotation) < 1e-28 < 1e-3 < covariance_penalty(z)
    assert covariance_penalty(z[:, :1]) == 0


def test_small_covariances_are_not_lost_beside_large_variances() -> None:
    """All entries minus the diagonal would be 0 here in float32."""
    first, second = torch.tensor([1e3, -1e3, 1e3, -1e3]), torch.tensor([1e3, 1e3, -1e3, -1e3])
    z = torch.stack([first, second + 1e-3 * first], -1)
    assert covariance_penalty(z).item() == pytest.approx((4e6 * 1e-3 / 3) ** 2, rel=1e-3)


def test_cross_correlation_is_a_block_of_numpys(views: tuple[Tensor, Tensor]) -> None:
    expected = np.corrcoef(views[0].numpy(), views[1].numpy(), rowvar=False)[:D, D:]
    _close(cross_correlation(*views), expected)
    _close(cross_correlation(views[1], views[0]), expected.T)


def test_cross_correlation_standardises_with_the_biased_deviation(views: tuple[Tensor, Tensor]) -> None:
    standard = [(view.numpy() - view.numpy().mean(0)) / view.numpy().std(0) for view in views]
    _close(cross_correlation(*views), standard[0].T @ standard[1] / B)
    _close(cross_correlation(views[0], views[0]).diagonal(), [1.0] * D)


def test_cross_correlation_sees_neither_shift_nor_scale_nor_order(views: tuple[Tensor, Tensor]) -> None:
    (first, second), scale = views, torch.tensor([0.01, 1.0, 30.0, 1e4])
    _close(cross_correlation(scale * first - 7, second / scale), cross_correlation(first, second), rtol=1e-9)
    _close(cross_correlation(-first, second), -cross_correlation(first, second))
    _close(cross_correlation(first.flip(0), second.flip(0)), cross_correlation(first, second))


def test_the_parts_split_the_distance_to_the_identity(views: tuple[Tensor, Tensor]) -> None:
    matrix = cross_correlation(*views)
    on, off = on_diagonal(matrix), off_diagonal(matrix)
    _close(on, sum((1 - float(matrix[i, i])) ** 2 for i in range(D)))
    _close(on + off, (matrix - torch.eye(D)).square().sum())
    assert on > 1e-3 and off > 1e-3
    assert on_diagonal(torch.eye(D)) == off_diagonal(torch.eye(D)) == 0 == off_diagonal(torch.eye(D) * 3)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3.3, 100.0])
def test_a_constant_dimension_correlates_with_nothing(views: tuple[Tensor, Tensor], constant: float) -> None:
    """In float32 the mean of equal values can be off by a rounding, which must not be blown up to a correlation."""
    first, second = (view.float() for view in views)
    dead = first.clone()
    dead[:, 1] = constant
    inputs = [dead.requires_grad_(), second.requires_grad_()]
    matrix = cross_correlation(*inputs)
    assert matrix[1].abs().max() < 1e-5 and cross_correlation(dead, dead)[1, 1] < 0.05
    _close(matrix[[0, 2, 3]].double(), cross_correlation(*views)[[0, 2, 3]], rtol=1e-4, atol=1e-5)
    for slope in torch.autograd.grad(on_diagonal(matrix) + off_diagonal(matrix), inputs):
        assert torch.isfinite(slope).all() and slope.abs().max() < 1e5


def test_a_deviation_below_the_floor_is_divided_by_the_floor(views: tuple[Tensor, Tensor]) -> None:
    first = (views[0] - views[0].mean(0)) / views[0].std(0, correction=0)
    faint = first * torch.tensor([1 / SMALLEST_DEVIATION, 2.0, 0.5, 0.1], dtype=torch.float64) * SMALLEST_DEVIATION
    _close(cross_correlation(faint, faint).diagonal(), [1.0, 1.0, 0.25, 0.01])


@both_losses
def test_gradients_equal_finite_differences(loss: Function, views: tuple[Tensor, Tensor]) -> None:
    inputs = [value.clone().requires_grad_() for value in views]
    weight = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (*inputs, weight))


@both_losses
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_with_their_own_weight_equal_each_alone(loss: Function, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(K, B, D, dtype=dtype, generator=generator).requires_grad_() for _ in range(2)]
    weight_K = torch.tensor([1e-3, 0.25, 5.0])  # float32, as buffers are: it does not change what is computed in
    fused = torch.vmap(loss)(*inputs, weight_K)
    alone = torch.stack([loss(*(value[k] for value in inputs), float(weight_K[k])) for k in range(K)])
    assert fused.dtype == dtype and fused.shape == (K,)
    tight = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(fused, alone, rtol=tight, atol=tight)
    pairs = (torch.autograd.grad((value * torch.tensor([-1.0, 2.0, 0.5])).sum(), inputs) for value in (fused, alone))
    for actual, expected in zip(*pairs, strict=True):
        torch.testing.assert_close(actual, expected, rtol=10 * tight, atol=10 * tight)


@both_losses
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e-5, 1e5, 1e8])
def test_extreme_batches_stay_finite_in_float32(loss: Function, views: tuple[Tensor, Tensor], scale: float) -> None:
    inputs = [(scale * value.float()).requires_grad_() for value in views]
    value = loss(*inputs, 1e-4)
    assert torch.isfinite(value)
    assert all(torch.isfinite(slope).all() for slope in torch.autograd.grad(value, inputs))


@both_losses
def test_autocast_does_not_cost_precision(loss: Function, views: tuple[Tensor, Tensor]) -> None:
    first, second = (value.float() for value in views)
    with torch.autocast("cpu", torch.bfloat16):
        assert (first.T @ second).dtype == torch.bfloat16
        alone = loss(first, second, 0.5)
        (fused,) = torch.vmap(loss, (None, None, 0))(first, second, torch.tensor([0.5]))
    for actual in (alone, fused):
        assert actual.dtype == torch.float32
        _close(actual.double(), loss(*views, 0.5), rtol=1e-5)


@both_losses
def test_inputs_are_left_as_they_were(loss: Function, views: tuple[Tensor, Tensor]) -> None:
    before = [value.clone() for value in views]
    assert loss(*views, 0.1).shape == ()
    assert all(torch.equal(value, old) for value, old in zip(views, before, strict=True))
    matrix = torch.ones(D, D)
    on_diagonal(matrix), off_diagonal(matrix)
    assert torch.equal(matrix, torch.ones(D, D))


"""Images, and dimensions of the joint embedding."""


def test_nll_equals_scipy() -> None:
    z, matrix = normal(B, D), covariance(D)
    expected = -stats.multivariate_normal(np.zeros(D), matrix.numpy()).logpdf(z.numpy())
    close(gaussian_nll(z, cholesky(matrix)) + D / 2 * math.log(2 * math.pi), expected)


@pytest.mark.parametrize("epsilon", [0.0, 1e-4, 0.5])
def test_entropy_equals_scipy(epsilon: float) -> None:
    jittered = covariance(D).numpy() + epsilon * np.eye(D)
    expected = stats.multivariate_normal(np.zeros(D), jittered).entropy()
    close(entropy(covariance(D), epsilon) + D / 2 * math.log(2 * math.pi * math.e), expected)


def test_alignment_is_summed_over_dimensions() -> None:
    context, target = (
        unit_normal(B, D),
        unit_normal(B, D, seed=1),
    )
    close(alignment(context, target), 2 - 2 * torch.cosine_similarity(context, target))


def test_unit_vectors_have_most_entropy_where_they_are_isotropic() -> None:
    ceiling = -D / 2 * math.log(D)
    close(entropy(second_moment(torch.eye(D).double()), 0.0), ceiling)
    assert all(entropy(second_moment(unit_normal(B, D, seed=seed)), 0.0) < ceiling for seed in range(20))


def test_the_quadratic_form_of_a_batch_is_constant_under_its_own_moment() -> None:
    """The trace trap (GJE, appendix O): about the origin, divisor B, no jitter."""
    z = (5 * normal(B, D) + 1).requires_grad_()
    mean = mahalanobis(z, cholesky(second_moment(z))).mean()
    assert mean.item() == pytest.approx(D, rel=1e-13)
    assert torch.autograd.grad(mean, z)[0].abs().max() < 1e-14


@pytest.mark.parametrize("epsilon", [1e-4, 0.3])
def test_with_jitter_it_is_nearly_constant(epsilon: float) -> None:
    z = normal(B, D).requires_grad_()
    mean = mahalanobis(z, cholesky(second_moment(z), epsilon)).mean()
    inverse = np.linalg.inv(z.detach().numpy().T @ z.detach().numpy() / B + epsilon * np.eye(D))
    close(mean.detach(), D - epsilon * np.trace(inverse))
    close(
        torch.autograd.grad(mean, z)[0],
        2 * epsilon / B * z.detach().numpy() @ inverse @ inverse,
        rtol=1e-9,
    )


def test_with_the_unbiased_divisor_it_is_less_than_the_dimension() -> None:
    z = normal(B, D)
    close(
        mahalanobis(z, cholesky(z.T @ z / (B - 1))).mean(),
        D * (B - 1) / B,
    )


def test_the_trap_holds_for_covariances_weighted_by_responsibilities() -> None:
    z, responsibilities = (
        normal(B, D).requires_grad_(),
        normal(B, K, seed=1).softmax(-1),
    )
    for weight in (responsibilities / responsibilities.sum(0)).T:
        deviation = z - weight @ z
        form = weight @ mahalanobis(deviation, cholesky((weight[:, None] * deviation).T @ deviation))
        close(form.detach(), D)
        assert torch.autograd.grad(form, z)[0].abs().max() < 1e-13


def test_the_nll_under_the_batchs_own_moment_only_shrinks() -> None:
    z = normal(B, D).requires_grad_()
    (slope,) = torch.autograd.grad(gaussian_nll(z, cholesky(second_moment(z))).mean(), z)
    inverse = np.linalg.inv(z.detach().numpy().T @ z.detach().numpy() / B)
    close(slope, z.detach().numpy() @ inverse / B, rtol=1e-9)
    assert (slope * z).sum() > 0


@pytest.mark.parametrize("scale", [0.1, 1e-6])
def test_the_nll_under_a_moment_that_follows_falls_without_bound(scale: float) -> None:
    """The log-determinant cheat."""
    z = normal(B, D)
    shrunk, full = (gaussian_nll(c * z, cholesky(c**2 * covariance(D))).mean() for c in (scale, 1.0))
    close(shrunk - full, D * math.log(scale), rtol=1e-9)


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.99])
def test_the_average_moves_towards_the_batch_and_passes_on_its_share_of_the_gradient(decay: float) -> None:
    """The gradient of minus the entropy is `-(1 - m) Z S^-1 / B`."""
    z, average = normal(B, D).requires_grad_(), covariance(D)
    moment = averaged_moment(average, z, decay)
    close(
        moment.detach(),
        decay * average.numpy() + (1 - decay) * np.einsum("bi,bj->ij", *2 * [z.detach()]) / B,
    )
    (slope,) = torch.autograd.grad(-entropy(moment, 0.01), z)
    inverse = np.linalg.inv(moment.detach().numpy() + 0.01 * np.eye(D))
    close(slope, -(1 - decay) * z.detach().numpy() @ inverse / B, rtol=1e-9)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_a_marginal_term_is_no_barrier_against_collapse(decay: float) -> None:
    """Where the average has come to rest, the NLL shrinks the embeddings at every decay."""
    z = normal(B, D).requires_grad_()
    moment = averaged_moment(second_moment(z.detach()), z, decay)
    (slope,) = torch.autograd.grad(gaussian_nll(z, cholesky(moment)).mean(), z)
    close(slope, z.detach().numpy() @ np.linalg.inv(moment.detach().numpy()) / B, rtol=1e-9)


def _isotropic_pairs(cosine: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """Unit vectors of equal cosine, with the moments `I/d`, `I/d` and `cosine I/d`."""
    axes = torch.eye(dimension, dtype=torch.float64)
    signs = list(itertools.product((1, -1), repeat=2))
    pairs = [(s * axes[i], t * axes[j]) for i, j in itertools.permutations(range(dimension), 2) for s, t in signs]
    context, other = (torch.stack(vectors) for vectors in zip(*pairs, strict=True))
    return context, cosine * context + (1 - cosine**2).sqrt() * other


@pytest.mark.parametrize("dimension", [2, 3, 8])
def test_alignment_and_entropy_meet_at_a_cosine_of_0_88(dimension: int) -> None:
    """At the weight 1/(2d), whatever d is: the root of `4 c^2 + c - 4`."""

    def slope(cosine: float, share: float) -> float:
        variable = torch.tensor(cosine, dtype=torch.float64, requires_grad=True)
        context, target = _isotropic_pairs(variable, dimension)
        joint_entropy = entropy(second_moment(torch.cat([context, target], -1)), 0.0)
        loss = share * alignment(context, target).mean() - joint_entropy / (2 * dimension)
        return torch.autograd.grad(loss, variable)[0].item()

    equilibrium = (math.sqrt(65) - 1) / 8
    assert equilibrium == pytest.approx(0.88, abs=0.003)
    assert slope(equilibrium, share=1.0) == pytest.approx(0, abs=1e-12)
    assert slope(equilibrium - 0.05, share=1.0) < -0.1 and slope(equilibrium + 0.05, share=1.0) > 0.1
    averaged = (math.sqrt(dimension**2 + 64) - dimension) / 8  # of the error's mean over dimensions: 0.12 at d = 32
    assert slope(averaged, share=1 / dimension) == pytest.approx(0, abs=1e-12)


def _loss(context: Tensor, target: Tensor, weight: Tensor, epsilon: Tensor, average: Tensor) -> Tensor:
    joint = torch.cat([context, target], -1)
    moment = averaged_moment(average, joint, 0.5)
    nll = gaussian_nll(joint, cholesky(average, epsilon)).mean()
    return alignment(context, target).mean() - weight * entropy(moment, epsilon) + weight * nll


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_with_their_own_weights_equal_each_alone(dtype: torch.dtype) -> None:
    context, target = (unit_normal(K, B, D // 2, seed=seed).to(dtype).requires_grad_() for seed in (0, 1))
    weight_K, epsilon_K, average = (
        torch.tensor([0.1, 1.0, 5.0]),
        torch.tensor([1e-4, 1e-2, 1.0]),
        covariance(D).to(dtype),
    )
    fused = torch.vmap(_loss, (0, 0, 0, 0, None))(context, target, weight_K, epsilon_K, average)
    alone = torch.stack([_loss(context[k], target[k], weight_K[k], epsilon_K[k], average) for k in range(K)])
    assert fused.dtype == dtype
    tight = 1e-4 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(fused, alone, rtol=tight, atol=tight)
    got, expected = (torch.autograd.grad(value.sum(), (context, target)) for value in (fused, alone))
    torch.testing.assert_close(got, expected, rtol=10 * tight, atol=10 * tight)


def test_autocast_does_not_cost_precision_of_the_joint_gaussian() -> None:
    z = normal(B, D)
    with torch.autocast("cpu", torch.bfloat16):
        got = entropy(second_moment(z.float()), 1e-4)
    assert got.dtype == torch.float32
    close(got.double(), entropy(second_moment(z), 1e-4), rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_collapsed_embeddings_have_a_finite_entropy_and_gradient_in_float32(value: float) -> None:
    z = torch.full((B, D), value, requires_grad=True)
    collapsed = entropy(second_moment(z), 1e-4)
    assert torch.isfinite(collapsed) and torch.isfinite(torch.autograd.grad(collapsed, z)[0]).all()


def test_inputs_are_left_as_they_were_of_the_joint_gaussian() -> None:
    z, average = normal(B, D), covariance(D)
    averaged_moment(average, z, 0.5), entropy(average, 0.1), gaussian_nll(z, cholesky(average))
    assert torch.equal(z, normal(B, D)) and torch.equal(average, covariance(D))
