"""SwAV compared with the paper's algorithm, in float64. Shapes: B images, M prototypes."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainables.methods.plain import Array, B, built, gradient_of_rows, loss_of, rows_of, through, unit
from trainables.losses.similarity import swapped_prediction
from trainables.methods.baselines import swav
from trainables.methods.baselines.swav import SwAV
from trainables.methods.baselines.swav import SwAVConfig as Config

PROTOTYPES = 6
SMALL = {"prototypes": PROTOTYPES, "projector_width": 8, "projection": 3}


def _plain_scores(model: SwAV) -> list[Array]:
    prototypes = unit(model.prototypes_MP.detach().double().numpy())
    return [unit(through(model.projector, view)) @ prototypes.T for view in rows_of(model)]


def _plain_assignment(scores_BM: Array, epsilon: float, iterations: int) -> Array:
    """Algorithm of appendix A: rows are prototypes there, and each pass ends with the images."""
    q = np.exp(scores_BM / epsilon).T
    q /= q.sum()
    for _ in range(iterations):
        q /= q.sum(1, keepdims=True) * len(q)
        q /= q.sum(0, keepdims=True) * q.shape[1]
    return (q * q.shape[1]).T


def _log_softmax(x: Array) -> Array:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize(("tau", "epsilon", "iterations"), [(0.1, 0.05, 3), (0.1, 0.5, 1), (1.0, 0.1, 5)])
def test_loss_is_the_swapped_prediction_of_balanced_assignments(tau: float, epsilon: float, iterations: int) -> None:
    model = built(SwAV, Config(tau=tau, epsilon=epsilon, sinkhorn_iterations=iterations, **SMALL))
    scores = _plain_scores(model)
    assigned = [_plain_assignment(scores_BM, epsilon, iterations) for scores_BM in scores]
    expected = -sum((assigned[1 - i] * _log_softmax(scores[i] / tau)).sum(-1).mean() for i in (0, 1)) / 2
    assert loss_of(model).item() == pytest.approx(expected, rel=1e-5)
    assert loss_of(model, 1, 0).item() == pytest.approx(expected, rel=1e-5)


def test_length_of_prototypes_does_not_matter() -> None:
    model = built(SwAV, Config(**SMALL))
    torch.testing.assert_close(model.prototypes_MP.norm(dim=-1), torch.ones(PROTOTYPES))
    before = loss_of(model).item()
    with torch.no_grad():
        model.prototypes_MP.mul_(torch.linspace(0.1, 30, PROTOTYPES)[:, None])
    assert loss_of(model).item() == pytest.approx(before, rel=1e-5)


def test_prototypes_turn_with_the_learning_rate() -> None:
    """They begin with unit length: n times as long, a step would turn them by n^2 less."""
    model = built(SwAV, Config(**SMALL))
    (gradient,) = torch.autograd.grad(loss_of(model), model.prototypes_MP)
    prototypes = model.prototypes_MP.detach()
    torch.testing.assert_close((gradient * prototypes).sum(-1), torch.zeros(PROTOTYPES), rtol=0, atol=1e-5)
    with torch.no_grad():
        model.prototypes_MP.mul_(10)
    (longer,) = torch.autograd.grad(loss_of(model), model.prototypes_MP)
    torch.testing.assert_close(10 * longer, gradient, rtol=1e-4, atol=1e-5)


def _assignments(monkeypatch: pytest.MonkeyPatch, model: SwAV) -> list[Tensor]:
    """Both that a loss is taken with."""
    seen: list[Tensor] = []

    def spy(scores_BM: Tensor, assignment_BM: Tensor, tau: Tensor) -> Tensor:
        seen.append(assignment_BM)
        return swapped_prediction(scores_BM, assignment_BM, tau)

    monkeypatch.setattr(swav, "swapped_prediction", spy)
    loss_of(model)
    return seen


def test_assignments_are_balanced_and_held_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    assignments = _assignments(monkeypatch, built(SwAV, Config(epsilon=0.5, sinkhorn_iterations=50, **SMALL)))
    assert len(assignments) == 2 and not torch.equal(*assignments)
    for assignment_BM in assignments:
        assert not assignment_BM.requires_grad
        torch.testing.assert_close(assignment_BM.sum(1), torch.ones(B))
        torch.testing.assert_close(assignment_BM.sum(0), torch.full((PROTOTYPES,), B / PROTOTYPES), rtol=1e-4, atol=0)
        assert assignment_BM.std() > 0.02


def test_a_small_epsilon_assigns_harder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial's own epsilon is read from its buffer, in which members of a stack differ."""
    model, largest = built(SwAV, Config(**SMALL)), []
    for epsilon in (0.02, 0.2, 2.0):
        model.epsilon.fill_(epsilon)
        largest.append(_assignments(monkeypatch, model)[0].amax(1).mean().item())
    assert largest[0] > largest[1] + 0.1 > largest[2] + 0.2


def test_gradients_take_assignments_for_constants() -> None:
    """They reach both views, the projector and the prototypes, and are those of the predictions alone."""
    model = built(SwAV, Config(epsilon=0.3, **SMALL))
    loss = loss_of(model)
    assert gradient_of_rows(model, loss).abs().amax((1, 2)).min() > 1e-3
    actual = torch.autograd.grad(loss, list(model.parameters()))
    assert all(gradient.abs().max() > 1e-4 for gradient in actual)
    aims = [torch.from_numpy(_plain_assignment(scores, 0.3, 3)).float() for scores in _plain_scores(model)]
    prototypes = torch.nn.functional.normalize(model.prototypes_MP, dim=-1)
    total = torch.zeros(())
    for i, rows in enumerate(model.encoder.get_parameter("rows").view(2, B, -1)):
        logits = torch.nn.functional.normalize(model.projector(rows), dim=-1) @ prototypes.T / 0.1
        total = total + torch.nn.functional.cross_entropy(logits, aims[1 - i]) / 2
    for gradient, expected in zip(actual, torch.autograd.grad(total, list(model.parameters())), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-5)
