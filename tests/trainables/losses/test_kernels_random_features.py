"""The Gaussian process on random features against the same process in the space of samples, and against the kernel.

In float64 unless a test is about less. Sections are those of GMJE's specification.
Shapes: B images, D dimensions, F features.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainables.losses.normals import normal, unit_normal
from tests.trainables.losses.samples import close
from trainables.losses.kernels import (
    DualTerms,
    dual_terms,
    feature_dual_terms,
    gaussian_process_nll,
    random_features,
    rbf_kernel,
)

B, D, F, K = 30, 4, 8, 3


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
    """Woodbury's difference over a jitter of 1e-4 does not (section 4.15)."""
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


def test_gradients_equal_finite_differences() -> None:
    inputs = [value.requires_grad_() for value in (normal(B, D), normal(B, D, seed=1))]
    length, epsilon = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.9, 0.3))
    assert torch.autograd.gradcheck(_loss, (*inputs, length, epsilon))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_with_their_own_lengths_equal_each_alone(dtype: torch.dtype) -> None:
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
    target, features = normal(B, D), normal(B, F, seed=1)
    by_float = feature_dual_terms(target, features, 0.25)
    close(torch.stack(feature_dual_terms(target, features, torch.tensor(0.25))), torch.stack(by_float))


def test_autocast_does_not_cost_precision() -> None:
    context, target = normal(B, D), normal(B, D, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        features = random_features(context.float(), normal(D, F).float(), _phases(F).float(), 1.0)
        terms = feature_dual_terms(target.float(), features, 0.01)
    exact: DualTerms = feature_dual_terms(target, random_features(context, normal(D, F), _phases(F), 1.0), 0.01)
    for got, expected in zip(terms, exact, strict=True):
        assert got.dtype == torch.float32
        close(got.double(), expected, rtol=1e-4)
