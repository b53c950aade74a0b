"""Against Sinkhorn's scaling of plain numpy matrices, marginals and limits; float64 unless a test is about less."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import logsumexp
from torch import Tensor

from tests.cases import for_each
from trainables.losses.similarity import sinkhorn, swapped_prediction

B, M, K = 12, 4, 3


@pytest.fixture
def scores() -> Tensor:
    """Cosines."""
    return torch.rand(B, M, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 - 1


def _scaled(scores: np.ndarray, epsilon: float, iterations: int) -> np.ndarray:
    """SwAV's own order, on the matrix itself: prototypes to equal mass, then images to one."""
    plan = np.exp((scores - scores.max()) / epsilon)
    for _ in range(iterations):
        plan = plan / plan.sum(0, keepdims=True) / M
        plan = plan / plan.sum(1, keepdims=True) / B
    return plan * B


def _close(actual: Tensor, expected: object, rtol: float = 1e-11, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


@for_each("iterations", [1, 3, 50])
@for_each("epsilon", [0.05, 0.3, 2.0])
def test_sinkhorn_is_the_scaling_of_rows_and_columns(scores: Tensor, epsilon: float, iterations: int) -> None:
    _close(sinkhorn(scores, epsilon, iterations), _scaled(scores.numpy(), epsilon, iterations))


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 2.0])
def test_converged_assignments_solve_the_transport_problem(scores: Tensor, epsilon: float) -> None:
    """Both marginals hold, and `epsilon log Q - scores` is a row's number plus a column's: the optimum."""
    assignment = sinkhorn(scores, epsilon, 2000)
    _close(assignment.sum(1), [1.0] * B)
    _close(assignment.sum(0), [B / M] * M, atol=1e-9)
    dual = epsilon * assignment.log() - scores
    _close(dual, dual[:, :1] + dual[:1] - dual[0, 0], atol=1e-10)
    assert dual.std(0).min() > 1e-3 and dual.std(1).min() > 1e-3


def test_rows_sum_to_one_after_any_iteration_and_columns_near_their_share(scores: Tensor) -> None:
    gaps = []
    for iterations in (1, 3, 10, 30):
        assignment = sinkhorn(scores, 0.2, iterations)
        _close(assignment.sum(1), [1.0] * B)
        gaps.append(float((assignment.sum(0) - B / M).abs().max()))
    assert gaps == sorted(gaps, reverse=True) and gaps[0] > 1e-2 > 1e-3 > gaps[-1]


def test_uniform_as_epsilon_grows_and_the_best_matching_as_it_vanishes() -> None:
    scores = torch.rand(B, M, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 0.5
    _close(sinkhorn(scores, 1e9, 3), torch.full((B, M), 1 / M), atol=1e-8)
    favourites = torch.arange(B) % M
    _close(sinkhorn(F.one_hot(favourites, M).double(), 0.01, 3), F.one_hot(favourites, M))


def test_a_popular_prototype_is_shared_out() -> None:
    """All prefer prototype 0; those that prefer it least go to 1."""
    scores = torch.stack([torch.linspace(0.1, 0.9, 6, dtype=torch.float64), torch.zeros(6)], -1)
    assert scores.argmax(1).tolist() == [0] * 6
    assert sinkhorn(scores, 0.02, 200).argmax(1).tolist() == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("iterations", [1, 3])
def test_permutes_with_images_and_prototypes(scores: Tensor, iterations: int) -> None:
    rows, columns = torch.randperm(B, generator=torch.Generator().manual_seed(2)), torch.tensor([2, 0, 3, 1])
    moved = sinkhorn(scores[rows][:, columns], 0.1, iterations)
    _close(moved, sinkhorn(scores, 0.1, iterations)[rows][:, columns])


def test_a_prototypes_own_offset_is_scaled_away(scores: Tensor) -> None:
    _close(sinkhorn(scores + torch.tensor([0.5, -1.0, 0.0, 2.0]), 0.1, 1), sinkhorn(scores, 0.1, 1), rtol=1e-9)


@pytest.mark.parametrize("iterations", [0, -1])
def test_iterations_must_be_at_least_one(scores: Tensor, iterations: int) -> None:
    with pytest.raises(ValueError, match=f"`iterations >= 1` must hold, but got iterations={iterations}"):
        sinkhorn(scores, 0.05, iterations)


@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_swapped_prediction_is_cross_entropy(scores: Tensor, tau: float) -> None:
    assignment = sinkhorn(scores.flip(0), 0.05, 3)
    _close(swapped_prediction(scores, assignment, tau), F.cross_entropy(scores / tau, assignment, reduction="none"))
    exponents = scores.numpy() / tau
    log_p = exponents - logsumexp(exponents, axis=1, keepdims=True)
    _close(swapped_prediction(scores, assignment, tau), -(assignment.numpy() * log_p).sum(1))


def test_swapped_prediction_limits(scores: Tensor) -> None:
    favourites = F.one_hot(scores.argmax(1), M).double()
    _close(swapped_prediction(scores, favourites, 1e9), [np.log(M)] * B, atol=1e-8)
    _close(swapped_prediction(favourites, favourites, 0.01), [0.0] * B)
    _close(swapped_prediction(favourites, 1 - favourites, 0.01), [100.0 * (M - 1)] * B)


def test_swapped_prediction_is_least_where_it_agrees(scores: Tensor) -> None:
    """Then it is the entropy of the assignment, and its gradient is zero."""
    assignment, logits = sinkhorn(scores, 0.5, 3), (0.7 * sinkhorn(scores, 0.5, 3).log()).requires_grad_()
    loss = swapped_prediction(logits, assignment, 0.7)
    _close(loss.detach(), torch.distributions.Categorical(assignment).entropy())
    assert torch.autograd.grad(loss.sum(), logits)[0].abs().max() < 1e-12


def test_gradients_equal_finite_differences(scores: Tensor) -> None:
    logits, targets = scores.clone().requires_grad_(), (scores.flip(0).softmax(1)).requires_grad_()
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(swapped_prediction, (logits, targets, temperature))
    assert torch.autograd.gradcheck(lambda x, epsilon: sinkhorn(x, epsilon, 3), (logits, temperature))


def _swav(predicted: Tensor, assigned: Tensor, temperature: float | Tensor) -> Tensor:
    return swapped_prediction(predicted, sinkhorn(assigned, temperature, 3).detach(), temperature)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_with_their_own_temperatures_equal_each_alone(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    predicted, assigned = (torch.rand(K, B, M, dtype=dtype, generator=generator).requires_grad_() for _ in range(2))
    temperature_K = torch.tensor([0.05, 0.5, 5.0])  # float32, as buffers are
    tight = 1e-5 if dtype == torch.float32 else 1e-12

    def plan(scores: Tensor, temperature: Tensor) -> Tensor:
        return sinkhorn(scores, temperature, 3)

    assignments = torch.stack([sinkhorn(assigned[k], float(temperature_K[k]), 3) for k in range(K)])
    torch.testing.assert_close(torch.vmap(plan)(assigned, temperature_K), assignments, rtol=tight, atol=tight)
    fused = torch.vmap(_swav)(predicted, assigned, temperature_K)
    alone = torch.stack([_swav(predicted[k], assigned[k], float(temperature_K[k])) for k in range(K)])
    assert fused.dtype == dtype and fused.shape == (K, B)
    torch.testing.assert_close(fused, alone, rtol=tight, atol=tight)
    weights = torch.linspace(-1, 1, fused.numel(), dtype=dtype).view_as(fused)
    actual, expected = (torch.autograd.grad((weights * value).sum(), predicted)[0] for value in (fused, alone))
    torch.testing.assert_close(actual, expected, rtol=10 * tight, atol=10 * tight)


@pytest.mark.parametrize("epsilon", [0.01, 1e-4])
def test_small_epsilon_stays_finite_and_exact_in_float32(scores: Tensor, epsilon: float) -> None:
    """`exp(1 / 0.01)` is beyond float32."""
    logits = scores.float().requires_grad_()
    assignment = sinkhorn(logits, epsilon, 3)
    assert assignment.dtype == torch.float32
    _close(assignment.detach().sum(1), [1.0] * B, rtol=1e-5)
    _close(assignment.detach().double(), sinkhorn(logits.detach().double(), epsilon, 3), atol=2e-7 / epsilon)
    loss = swapped_prediction(logits, assignment.detach().flip(0), 0.01)
    assert torch.isfinite(loss).all() and torch.isfinite(torch.autograd.grad(loss.sum(), logits)[0]).all()


@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0, 1e4])
def test_equal_scores_give_equal_shares(value: float) -> None:
    same = torch.full((B, M), value)
    _close(sinkhorn(same, 0.01, 3), torch.full((B, M), 1 / M), rtol=1e-6)
    _close(swapped_prediction(same, sinkhorn(same, 0.01, 3), 0.01), [np.log(M)] * B, rtol=1e-6)


def test_inputs_are_left_as_they_were(scores: Tensor) -> None:
    scores_before, assignment = scores.clone(), sinkhorn(scores, 0.1, 2)
    assignment_before = assignment.clone()
    assert swapped_prediction(scores, assignment, 0.1).shape == (B,) and assignment.shape == (B, M)
    assert torch.equal(scores, scores_before) and torch.equal(assignment, assignment_before)
