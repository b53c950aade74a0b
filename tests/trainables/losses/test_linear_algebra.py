"""Against numpy and scipy; float64 unless a test is about less."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from tests.trainables.losses.samples import close, covariance, normal
from trainables.losses.linear_algebra import (
    cholesky,
    log_det,
    mahalanobis,
    positive_factor,
    product,
    squared_distances,
    whiten,
)

B, D, M, K = 6, 4, 5, 3


def test_forms_of_a_covariance_equal_numpy() -> None:
    z, matrix = normal(B, D), covariance(D)
    factor = cholesky(matrix, 0.01)
    jittered = matrix.numpy() + 0.01 * np.eye(D)
    close(factor @ factor.T, jittered)
    close(log_det(factor), np.linalg.slogdet(jittered)[1])
    close(
        mahalanobis(z, factor), cdist(z.numpy(), np.zeros((1, D)), "mahalanobis", VI=np.linalg.inv(jittered))[:, 0] ** 2
    )


def test_whitened_samples_have_the_identity_as_their_moment() -> None:
    z = normal(B, D)
    whitened = whiten(z, cholesky(z.T @ z / B))
    close(whitened.T @ whitened / B, torch.eye(D))


def test_every_component_has_its_own_factor() -> None:
    z, matrices = normal(M, B, D), covariance(M, D)
    factors = cholesky(matrices)
    assert log_det(factors).shape == (M,) and mahalanobis(z, factors).shape == (M, B)
    for m in range(M):
        close(log_det(factors)[m], log_det(cholesky(matrices[m])))
        close(mahalanobis(z, factors)[m], mahalanobis(z[m], cholesky(matrices[m])))


def test_parameters_without_bounds_become_every_factor() -> None:
    close(positive_factor(torch.zeros(D, D)), torch.eye(D))
    raw = normal(M, D, D)
    expected = np.tril(raw.numpy(), -1) + np.stack([np.diag(np.exp(np.diag(matrix))) for matrix in raw.numpy()])
    close(positive_factor(raw), expected)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_squared_distances_equal_scipy(scale: float) -> None:
    x, y = scale * normal(B, D), scale * normal(M, D, seed=1)
    close(squared_distances(x, y), cdist(x.numpy(), y.numpy(), "sqeuclidean"), rtol=1e-9)


def test_near_embeddings_keep_their_distances_in_float32() -> None:
    """Squared distances of 1e-8 between vectors of length 100, whose products float32 rounds to multiples of 1e-3."""
    near = (100 * normal(1, D) + 1e-4 * normal(B, D, seed=1) / D).float()
    exact = cdist(near.double().numpy(), near.double().numpy(), "sqeuclidean")
    torch.testing.assert_close(squared_distances(near, near).double(), torch.tensor(exact), rtol=1e-2, atol=1e-10)


def _one_bad() -> Tensor:
    matrices = covariance(K, D)
    matrices[1] -= 5 * torch.eye(D)
    return matrices


def _gaussian(matrix_DD: Tensor, z_BD: Tensor) -> Tensor:
    factor_DD = cholesky(matrix_DD)
    return mahalanobis(z_BD, factor_DD).sum() + log_det(factor_DD)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_matrix_that_is_not_positive_definite_fails_its_own_member_alone(dtype: torch.dtype) -> None:
    matrices, z = _one_bad().to(dtype).requires_grad_(), normal(K, B, D).to(dtype).requires_grad_()
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky(matrices)
    fused = torch.vmap(_gaussian)(matrices, z)
    slopes = torch.autograd.grad(fused.sum(), (matrices, z))
    assert fused.isnan().tolist() == [False, True, False]
    for slope in slopes:
        assert slope[1].isnan().any() and not slope[[0, 2]].isnan().any()
    for k in (0, 2):
        alone = _gaussian(matrices[k], z[k])
        torch.testing.assert_close(fused[k], alone)
        for slope, expected in zip(slopes, torch.autograd.grad(alone, (matrices, z)), strict=True):
            torch.testing.assert_close(slope[k], expected[k])


@pytest.mark.parametrize("bad", [-1.0, 0.0, math.nan])
def test_alone_it_is_nan_and_no_error(bad: float) -> None:
    matrix = torch.diag(torch.tensor([1.0, bad, 1.0])).requires_grad_()
    value = log_det(cholesky(matrix))
    assert value.isnan() and torch.autograd.grad(value, matrix)[0].isnan().any()


@pytest.mark.parametrize("epsilon", [1e-6, 0.5])
def test_the_jitter_of_a_member_may_be_a_tensor(epsilon: float) -> None:
    low_rank = normal(2, D).T @ normal(2, D)
    expected = np.linalg.slogdet(low_rank.numpy() + epsilon * np.eye(D))[1]
    (fused,) = torch.vmap(lambda value: log_det(cholesky(low_rank, value)))(torch.tensor([epsilon]).double())
    close(fused, expected, rtol=1e-8)
    close(log_det(cholesky(low_rank, epsilon)), expected, rtol=1e-8)
    assert log_det(cholesky(low_rank.float(), torch.tensor(epsilon))).dtype == torch.float32


def test_gradients_equal_finite_differences() -> None:
    z, raw = normal(B, D).requires_grad_(), normal(D, D).requires_grad_()
    epsilon = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)

    def loss(z_BD: Tensor, raw_DD: Tensor, epsilon: Tensor) -> Tensor:
        factor_DD = cholesky(raw_DD @ raw_DD.T, epsilon)
        return mahalanobis(z_BD, factor_DD) + log_det(factor_DD)

    assert torch.autograd.gradcheck(loss, (z, raw, epsilon))
    assert torch.autograd.gradcheck(positive_factor, (raw,))
    assert torch.autograd.gradcheck(squared_distances, (z, normal(M, D, seed=1).requires_grad_()))


def test_autocast_does_not_cost_precision() -> None:
    x, y = normal(B, D).float(), normal(M, D, seed=1).float()
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ y.T).dtype == torch.bfloat16
        got = product(x, y.T), squared_distances(x, y), mahalanobis(x, cholesky(covariance(D).float()))
    expected = x.double() @ y.double().T, cdist(x, y, "sqeuclidean"), mahalanobis(x.double(), cholesky(covariance(D)))
    for value, exact in zip(got, expected, strict=True):
        assert value.dtype == torch.float32
        close(value.double(), exact, rtol=1e-4)
