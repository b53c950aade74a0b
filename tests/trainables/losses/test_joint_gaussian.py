"""Against scipy, the traps of a Gaussian under its own batch's moment, and the equilibrium; float64 unless said.

Sections are those of GMJE's specification.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.trainables.losses.normals import covariance, normal, unit_normal
from tests.trainables.losses.samples import close
from trainables.losses.linear_algebra import cholesky, mahalanobis
from trainables.losses.moments import alignment, averaged_moment, entropy, gaussian_nll, second_moment

B, D, K = 20, 6, 3
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
    context, target = unit_normal(B, D), unit_normal(B, D, seed=1)
    close(alignment(context, target), 2 - 2 * torch.cosine_similarity(context, target))


def test_unit_vectors_have_most_entropy_where_they_are_isotropic() -> None:
    ceiling = -D / 2 * math.log(D)
    close(entropy(second_moment(torch.eye(D).double()), 0.0), ceiling)
    assert all(entropy(second_moment(unit_normal(B, D, seed=seed)), 0.0) < ceiling for seed in range(20))


def test_the_quadratic_form_of_a_batch_is_constant_under_its_own_moment() -> None:
    """The trace trap (section 4.1): about the origin, divisor B, no jitter."""
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
    close(torch.autograd.grad(mean, z)[0], 2 * epsilon / B * z.detach().numpy() @ inverse @ inverse, rtol=1e-9)


def test_with_the_unbiased_divisor_it_is_less_than_the_dimension() -> None:
    z = normal(B, D)
    close(mahalanobis(z, cholesky(z.T @ z / (B - 1))).mean(), D * (B - 1) / B)


def test_the_trap_holds_for_covariances_weighted_by_responsibilities() -> None:
    z, responsibilities = normal(B, D).requires_grad_(), normal(B, K, seed=1).softmax(-1)
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
    """The gradient of minus the entropy is `-(1 - m) Z S^-1 / B` (section 4.5)."""
    z, average = normal(B, D).requires_grad_(), covariance(D)
    moment = averaged_moment(average, z, decay)
    close(moment.detach(), decay * average.numpy() + (1 - decay) * np.einsum("bi,bj->ij", *2 * [z.detach()]) / B)
    (slope,) = torch.autograd.grad(-entropy(moment, 0.01), z)
    inverse = np.linalg.inv(moment.detach().numpy() + 0.01 * np.eye(D))
    close(slope, -(1 - decay) * z.detach().numpy() @ inverse / B, rtol=1e-9)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_a_marginal_term_is_no_barrier_against_collapse(decay: float) -> None:
    """Where the average has come to rest, the NLL shrinks the embeddings at every decay (section 4.6)."""
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
    """At the weight 1/(2d), whatever d is: the root of `4 c^2 + c - 4` (section 4.2)."""

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


def test_autocast_does_not_cost_precision() -> None:
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


def test_inputs_are_left_as_they_were() -> None:
    z, average = normal(B, D), covariance(D)
    averaged_moment(average, z, 0.5), entropy(average, 0.1), gaussian_nll(z, cholesky(average))
    assert torch.equal(z, normal(B, D)) and torch.equal(average, covariance(D))
