"""HSIC and the Gaussian process, in the space of samples and on random features.

Against scikit-learn, scipy, the Gaussian's own loss, each other and the kernel, in float64 unless a test is about less.
Sections are those of GMJE's specification. Shapes: B images, D dimensions, F features.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.gaussian_process.kernels import RBF
from torch import Tensor

from tests.trainables.losses.samples import close, normal, unit_normal
from trainables.losses.kernels import (
    DualTerms,
    dual_terms,
    feature_dual_terms,
    gaussian_process_nll,
    hsic,
    median_length,
    random_features,
    rbf_kernel,
)
from trainables.losses.linear_algebra import cholesky, log_det
from trainables.losses.moments import second_moment

B, D, M, F, K = 30, 4, 5, 8, 3


def _kernel(seed: int, length: float | Tensor = 1.0) -> Tensor:
    z = normal(B, D, seed=seed)
    return rbf_kernel(z, z, length)


@pytest.mark.parametrize("length", [0.3, 2.0])
def test_the_kernel_equals_scikit_learn(length: float) -> None:
    x, y = normal(B, D), normal(M, D, seed=1)
    close(rbf_kernel(x, y, length), RBF(length)(x.numpy(), y.numpy()))


def test_the_median_is_of_distances_of_different_samples() -> None:
    """6 samples have 15 distances, 4 have 6 of which it takes the lower middle one."""
    for count, position in ((6, 7), (4, 2)):
        z = normal(count, D)
        distances = sorted(math.dist(z[i], z[j]) for i in range(count) for j in range(i))
        close(median_length(z, 1e-3), distances[position])


def test_the_median_of_a_constant_embedding_is_the_floor() -> None:
    constant = torch.full((B, D), 0.7, requires_grad=True)
    length = median_length(constant, 1e-3)
    assert length.item() == pytest.approx(1e-3)
    value = hsic(rbf_kernel(constant, constant, length), _kernel(0).float())
    assert torch.isfinite(torch.autograd.grad(value + length, constant)[0]).all()


def test_hsic_equals_the_traces_of_its_definition() -> None:
    first, second, centring = _kernel(0).numpy(), _kernel(1, 0.4).numpy(), np.eye(B) - 1 / B
    close(hsic(_kernel(0), _kernel(1, 0.4)), np.trace(first @ centring @ second @ centring) / (B - 1) ** 2)


def test_hsic_is_the_distance_of_the_joint_density_from_the_product_of_its_marginals() -> None:
    """As sums over pairs, triples and quadruples of samples (Gretton et al. 2005), for the divisor B^2."""
    first, second = _kernel(0).numpy(), _kernel(1).numpy()
    expected = (first * second).mean() + first.mean() * second.mean()
    expected -= 2 * np.einsum("ij,ik->", first, second) / B**3
    close(hsic(_kernel(0), _kernel(1)) * (B - 1) ** 2 / B**2, expected)


def test_hsic_of_linear_kernels_is_the_cross_covariance() -> None:
    x, y = normal(B, D), normal(B, 2, seed=1)
    cross = np.cov(x.numpy(), y.numpy(), rowvar=False)[:D, D:]
    close(hsic(x @ x.T, y @ y.T), (cross**2).sum())


def test_hsic_of_a_constant_embedding_is_zero() -> None:
    constant = torch.full((B, D), 3.0, dtype=torch.float64)
    assert hsic(rbf_kernel(constant, constant, 1.0), _kernel(0)).abs() < 1e-15
    assert hsic(_kernel(0), rbf_kernel(constant, constant, 1.0)).abs() < 1e-15


def test_hsic_of_ideal_clusters_is_largest_for_two() -> None:
    """`(C - 1) / C^2`, with the divisor (B - 1)^2."""
    batch = 60
    scores = {}
    for clusters in (1, 2, 3, 5, 10):
        centres = 100 * torch.eye(clusters, dtype=torch.float64)[torch.arange(batch) % clusters]
        kernel = rbf_kernel(centres, centres, 1.0)
        scores[clusters] = hsic(kernel, kernel).item() * (batch - 1) ** 2 / batch**2
        assert scores[clusters] == pytest.approx((clusters - 1) / clusters**2, abs=1e-12)
    assert max(scores, key=lambda clusters: scores[clusters]) == 2


@pytest.mark.parametrize("epsilon", [1e-3, 0.5])
def test_the_process_nll_equals_scipy(epsilon: float) -> None:
    """D independent processes over the batch."""
    targets, noisy = normal(B, D, seed=2), _kernel(0).numpy() + epsilon * np.eye(B)
    density = stats.multivariate_normal(np.zeros(B), noisy)
    got = gaussian_process_nll(dual_terms(targets, _kernel(0), epsilon), D)
    close(got + B * D / 2 * math.log(2 * math.pi), -density.logpdf(targets.numpy().T).sum(), rtol=1e-9)


@pytest.mark.parametrize("batch", [5, 40])
@pytest.mark.parametrize("epsilon", [1e-3, 0.3])
def test_with_a_linear_kernel_the_dual_is_the_primal(batch: int, epsilon: float) -> None:
    """Appendix J, with one log-determinant, for batches smaller and larger than the joint dimension."""
    z = normal(batch, 2 * D)
    gram = z.numpy().T @ z.numpy() + epsilon * np.eye(2 * D)
    primal = (2 * D - epsilon * np.trace(np.linalg.inv(gram))) / 2
    primal += ((batch - 2 * D) * math.log(epsilon) + np.linalg.slogdet(gram)[1]) / 2
    terms = dual_terms(z, z @ z.T, epsilon)
    close(gaussian_process_nll(terms, outputs=1), primal, rtol=1e-9)
    assert (gaussian_process_nll(terms, outputs=2 * D) - primal).abs() > 1


def test_the_duals_terms_are_those_of_the_second_moment() -> None:
    """The trace trap with jitter, summed over the batch, and the log-determinant of `B S + epsilon I`."""
    z, epsilon = normal(B, D), 0.1
    factor = cholesky(second_moment(z), epsilon / B)
    terms = dual_terms(z, z @ z.T, epsilon)
    close(terms.quadratic, D - epsilon * torch.cholesky_inverse(factor).trace() / B)
    close(terms.log_det, log_det(factor) + D * math.log(B) + (B - D) * math.log(epsilon))


def test_without_a_stop_gradient_targets_vanish_and_then_contexts_become_one() -> None:
    """Appendix E, by descent on free embeddings; under targets held fixed, contexts stay apart."""

    def descended(symmetric: bool) -> tuple[Tensor, Tensor]:
        context, target = normal(8, 2).requires_grad_(), normal(8, 2, seed=1).requires_grad_()
        for _ in range(200):
            terms = dual_terms(target, rbf_kernel(context, context, 1.0), 0.1)
            slopes = torch.autograd.grad(gaussian_process_nll(terms, outputs=2), (context, target))
            context = (context - 0.05 * slopes[0]).detach().requires_grad_()
            target = (target - 0.05 * symmetric * slopes[1]).detach().requires_grad_()
        return context, target

    context, target = descended(symmetric=True)
    assert target.abs().max() < 0.05 and context.std(0).max() < 1e-6
    context, _ = descended(symmetric=False)
    assert context.std(0).min() > 0.5


def _dual(context: Tensor, target: Tensor, length: Tensor, epsilon: Tensor) -> Tensor:
    kernel = rbf_kernel(context, context, length)
    return gaussian_process_nll(dual_terms(target, kernel, epsilon), target.shape[-1])


def _dependence(context: Tensor, target: Tensor, length: Tensor, floor: Tensor) -> Tensor:
    first, second = median_length(context, floor), length * median_length(target, floor)
    return hsic(rbf_kernel(context, context, first), rbf_kernel(target, target, second))


@pytest.mark.parametrize("loss", [_dual, _dependence])
def test_gradients_equal_finite_differences(loss) -> None:
    inputs = [value.requires_grad_() for value in (normal(B, D), normal(B, D, seed=1))]
    length, epsilon = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.9, 0.3))
    assert torch.autograd.gradcheck(loss, (*inputs, length, epsilon))


@pytest.mark.parametrize("loss", [_dual, _dependence])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_with_their_own_lengths_equal_each_alone(loss, dtype: torch.dtype) -> None:
    inputs = [unit_normal(K, B, D, seed=seed).to(dtype).requires_grad_() for seed in (0, 1)]
    length_K, epsilon_K = torch.tensor([0.3, 0.7, 2.0]), torch.tensor([0.01, 0.1, 1.0])
    fused = torch.vmap(loss)(*inputs, length_K, epsilon_K)
    alone = torch.stack([loss(*(value[k] for value in inputs), length_K[k], epsilon_K[k]) for k in range(K)])
    assert fused.dtype == dtype
    tight = 1e-4 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(fused, alone, rtol=tight, atol=tight)
    got, expected = (torch.autograd.grad(value.sum(), inputs) for value in (fused, alone))
    torch.testing.assert_close(got, expected, rtol=10 * tight, atol=10 * tight)


def test_a_kernel_that_is_not_positive_definite_fails_its_own_member_alone() -> None:
    kernels = torch.stack([_kernel(0), -_kernel(0), _kernel(1)])
    terms: DualTerms = torch.vmap(dual_terms, (None, 0, None))(normal(B, D), kernels, 0.1)
    for term in terms:
        assert term.isnan().tolist() == [False, True, False]


def test_inputs_are_left_as_they_were() -> None:
    z, kernel = normal(B, D), _kernel(0)
    rbf_kernel(z, z, 1.0), median_length(z, 0.1), hsic(kernel, kernel), dual_terms(z, kernel, 0.1)
    assert torch.equal(z, normal(B, D)) and torch.equal(kernel, _kernel(0))


def _phases(count: int, seed: int = 2) -> Tensor:
    return 2 * math.pi * torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("length", [0.5, 2.0])
def test_products_of_features_approach_the_kernel(length: float) -> None:
    z = normal(B, D)
    exact = rbf_kernel(z, z, length)
    errors = []
    for count in (100, 10_000, 1_000_000 // D):
        features = random_features(z, normal(D, count, seed=1), _phases(count), length)
        errors.append((features @ features.T - exact).square().mean().sqrt().item())
    assert all(later < earlier / 3 for earlier, later in pairwise(errors)) and errors[-1] < 0.005


@pytest.mark.parametrize("batch", [5, 30])
@pytest.mark.parametrize("epsilon", [1e-3, 0.3])
def test_no_matrix_of_the_batch_is_needed(batch: int, epsilon: float) -> None:
    """Woodbury's identity and the determinant lemma, with more and fewer images than features."""
    features, target = normal(batch, F), normal(batch, D, seed=1)
    got, expected = feature_dual_terms(target, features, epsilon), dual_terms(target, features @ features.T, epsilon)
    close(got.quadratic, expected.quadratic, rtol=1e-9)
    close(got.log_det, expected.log_det, rtol=1e-9)
    phi, gram = features.numpy(), features.numpy().T @ features.numpy() + epsilon * np.eye(F)
    woodbury = (np.eye(batch) - phi @ np.linalg.inv(gram) @ phi.T) / epsilon
    close(got.quadratic, np.trace(target.numpy().T @ woodbury @ target.numpy()), rtol=1e-8)


def _explained(count: int = 64) -> tuple[Tensor, Tensor]:
    """Targets that the features of unit vectors explain, and these features."""
    features = random_features(unit_normal(256, 16), normal(16, count, seed=1), _phases(count), 0.7)
    return features @ normal(count, 16, seed=3), features


def test_the_quadratic_term_keeps_its_digits_in_float32() -> None:
    """Woodbury's difference over a jitter of 1e-4 does not."""
    target, features = (value.float() for value in _explained())
    exact = feature_dual_terms(target.double(), features.double(), 1e-4).quadratic
    gram, explained = features.T @ features + 1e-4 * torch.eye(features.shape[1]), features.T @ target
    difference = (target.square().sum() - (explained * torch.linalg.solve(gram, explained)).sum()) / 1e-4
    assert (difference / exact - 1).abs() > 1e-4
    assert (feature_dual_terms(target, features, 1e-4).quadratic / exact - 1).abs() < 2e-6


def test_its_gradients_stay_near_in_float32() -> None:
    slopes = []
    for dtype in (torch.float64, torch.float32):
        target, features = (value.float().to(dtype).requires_grad_() for value in _explained())
        slopes.append(torch.autograd.grad(feature_dual_terms(target, features, 1e-4).quadratic, (target, features)))
    for exact, got in zip(*slopes, strict=True):
        assert (got - exact).norm() / exact.norm() < 0.02


FREQUENCIES, PHASES = normal(D, F, seed=5), _phases(F)


def _loss(context: Tensor, target: Tensor, length: Tensor, epsilon: Tensor) -> Tensor:
    features = random_features(context, FREQUENCIES.to(context.dtype), PHASES.to(context.dtype), length)
    return gaussian_process_nll(feature_dual_terms(target, features, epsilon), D)


def test_gradients_equal_finite_differences_of_random_features() -> None:
    inputs = [
        value.requires_grad_()
        for value in (
            normal(B, D),
            normal(B, D, seed=1),
        )
    ]
    length, epsilon = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.9, 0.3))
    assert torch.autograd.gradcheck(_loss, (*inputs, length, epsilon))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_with_their_own_lengths_equal_each_alone_of_random_features(dtype: torch.dtype) -> None:
    inputs = [unit_normal(K, B, D, seed=seed).to(dtype).requires_grad_() for seed in (0, 1)]
    stacked = (*inputs, torch.tensor([0.3, 0.7, 2.0]), torch.tensor([0.01, 0.1, 1.0]))
    fused = torch.vmap(_loss)(*stacked)
    alone = torch.stack([_loss(*(value[k] for value in stacked)) for k in range(K)])
    assert fused.dtype == dtype
    tight = 1e-4 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(fused, alone, rtol=tight, atol=tight)
    got, expected = (torch.autograd.grad(value.sum(), inputs) for value in (fused, alone))
    torch.testing.assert_close(got, expected, rtol=10 * tight, atol=10 * tight)


def test_a_float_and_a_tensor_of_epsilon_agree() -> None:
    target, features = (
        normal(B, D),
        normal(B, F, seed=1),
    )
    by_float = feature_dual_terms(target, features, 0.25)
    close(torch.stack(feature_dual_terms(target, features, torch.tensor(0.25))), torch.stack(by_float))


def test_autocast_does_not_cost_precision() -> None:
    context, target = (
        normal(B, D),
        normal(B, D, seed=1),
    )
    with torch.autocast("cpu", torch.bfloat16):
        features = random_features(context.float(), normal(D, F).float(), _phases(F).float(), 1.0)
        terms = feature_dual_terms(target.float(), features, 0.01)
    exact: DualTerms = feature_dual_terms(target, random_features(context, normal(D, F), _phases(F), 1.0), 0.01)
    for got, expected in zip(terms, exact, strict=True):
        assert got.dtype == torch.float32
        close(got.double(), expected, rtol=1e-4)
