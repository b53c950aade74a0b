"""Marginals and conditionals against scipy's joint densities and integrals; in float64.

Shapes: B samples, M components, C and T dimensions of context and target, E of both.
"""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from tests.trainables.losses.samples import close, covariance, normal
from trainables.losses.mixtures import ConditionalMixture, conditional, marginal

B, M, C, T, K = 4, 3, 3, 2, 2
E = C + T
CONTEXT, TARGET = normal(B, C), normal(B, T, seed=1)
LOGITS, MEANS, COVARIANCES = normal(M, seed=2), normal(M, E, seed=3), covariance(M, E, seed=4)


def _density(z: np.ndarray, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> float:
    parameters = zip(weights, means, covariances, strict=True)
    return float(sum(w * stats.multivariate_normal(mean, matrix).pdf(z) for w, mean, matrix in parameters))


def _weights() -> np.ndarray:
    return LOGITS.softmax(-1).numpy()


def test_conditional_density_is_the_joint_over_the_marginal() -> None:
    log_weights, means, covariances = (part.numpy() for part in conditional(CONTEXT, LOGITS, MEANS, COVARIANCES))
    context_means, context_covariances = (part.numpy() for part in marginal(MEANS, COVARIANCES, slice(C)))
    for b, (context, target) in enumerate(zip(CONTEXT.numpy(), TARGET.numpy(), strict=True)):
        joint = _density(np.concatenate([context, target]), _weights(), MEANS.numpy(), COVARIANCES.numpy())
        ratio = joint / _density(context, _weights(), context_means, context_covariances)
        assert _density(target, np.exp(log_weights[b]), means[b], covariances) == pytest.approx(ratio, rel=1e-10)


def test_marginal_density_is_the_integral_over_the_other_dimensions() -> None:
    blocks = [value.numpy() for value in marginal(MEANS[:, :2], COVARIANCES[:, :2, :2], slice(1, 2))]
    for at in (-0.5, 1.2):

        def joint(x: float, at: float = at) -> float:
            return _density(np.array([x, at]), _weights(), MEANS[:, :2].numpy(), COVARIANCES[:, :2, :2].numpy())

        integral, _ = integrate.quad(joint, -12, 12, epsabs=1e-12)
        assert _density(np.array([at]), _weights(), *blocks) == pytest.approx(integral, rel=1e-8)


def test_weights_are_the_responsibilities_of_the_context() -> None:
    means, covariances = (value.numpy() for value in marginal(MEANS, COVARIANCES, slice(C)))
    densities = np.stack(
        [stats.multivariate_normal(mean, matrix).pdf(CONTEXT) for mean, matrix in zip(means, covariances, strict=True)]
    )
    expected = (_weights()[:, None] * densities).T
    log_weights = conditional(CONTEXT, LOGITS, MEANS, COVARIANCES).log_weights_BM
    close(log_weights.exp(), expected / expected.sum(1, keepdims=True))


def test_one_component_about_the_origin_is_the_linear_predictor() -> None:
    """Eq. 10, with its covariance the same for every context."""
    matrix = COVARIANCES[0].numpy()
    mixture = conditional(CONTEXT, torch.zeros(1), torch.zeros(1, E).double(), COVARIANCES[:1])
    gain = matrix[C:, :C] @ np.linalg.inv(matrix[:C, :C])
    close(mixture.means_BMT[:, 0], CONTEXT.numpy() @ gain.T)
    close(mixture.covariances_MTT[0], matrix[C:, C:] - gain @ matrix[:C, C:])
    close(mixture.log_weights_BM, torch.zeros(B, 1))


def test_independent_dimensions_are_not_informed_by_the_context() -> None:
    """With equal blocks of the context, a component is as likely as before."""
    blocks = COVARIANCES.clone()
    blocks[:, :C, C:], blocks[:, C:, :C], blocks[:, :C, :C] = 0, 0, COVARIANCES[0, :C, :C]
    means = torch.cat([MEANS[:1, :C].expand(M, C), MEANS[:, C:]], -1)
    mixture = conditional(CONTEXT, LOGITS, means, blocks)
    close(mixture.log_weights_BM.exp(), LOGITS.softmax(-1).expand(B, M))
    close(mixture.means_BMT, means[:, C:].expand(B, M, T))
    close(mixture.covariances_MTT, blocks[:, C:, C:])


def _conditional(context: Tensor, logits: Tensor, means: Tensor, roots: Tensor) -> Tensor:
    covariances = roots @ roots.mT + 0.3 * torch.eye(E, dtype=roots.dtype)
    return torch.cat([part.flatten() for part in conditional(context, logits, means, covariances)])


def test_gradients_equal_finite_differences() -> None:
    inputs = [value.requires_grad_() for value in (normal(B, C), normal(M), normal(M, E), normal(M, E, E))]
    assert torch.autograd.gradcheck(_conditional, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_equal_each_alone(dtype: torch.dtype) -> None:
    inputs = [normal(K, *shape).to(dtype).requires_grad_() for shape in ((B, C), (M,), (M, E), (M, E, E))]
    fused = torch.vmap(_conditional)(*inputs)
    alone = torch.stack([_conditional(*(value[k] for value in inputs)) for k in range(K)])
    tight = 1e-4 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(fused, alone, rtol=tight, atol=tight)
    got, expected = (torch.autograd.grad(value.sum(), inputs) for value in (fused, alone))
    torch.testing.assert_close(got, expected, rtol=10 * tight, atol=10 * tight)


def test_a_component_that_is_not_positive_definite_fails_its_own_member_alone() -> None:
    stacked = torch.stack([COVARIANCES, COVARIANCES])
    stacked[0, 1] -= 10 * torch.eye(E)
    mixture: ConditionalMixture = torch.vmap(conditional, (None, None, None, 0))(CONTEXT, LOGITS, MEANS, stacked)
    assert mixture.log_weights_BM[0].isnan().all()
    for got, expected in zip(mixture, conditional(CONTEXT, LOGITS, MEANS, COVARIANCES), strict=True):
        close(got[1], expected)
