"""SimCLR and MoCo compared with Eq. 1 of their papers word for word, and SwAV with its paper's algorithm, in float64;
MoCo's key encoder and queue.

Shapes: B images, M keys in the queue or prototypes.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.cases import for_each
from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    VIEWS,
    Array,
    B,
    Normed,
    built,
    gradient_of_rows,
    loss_of,
    rows_of,
    through,
    unit,
)
from trainables.losses.similarity import swapped_prediction
from trainables.methods.baselines import swav
from trainables.methods.baselines.moco import MoCo, MoCoConfig
from trainables.methods.baselines.simclr import SimCLR, SimCLRConfig
from trainables.methods.baselines.swav import SwAV, SwAVConfig

SMALL: dict[str, Any] = {"projector_width": 8, "projection": 3}


def _expected(model: SimCLR, tau: float) -> float:
    """Each of the 2B projections finds the other view among the 2B - 1 others; BatchNorm sees one view at a time."""
    u = unit(np.concatenate([through(model.projector, view) for view in rows_of(model)]))
    total = 0.0
    for i in range(2 * B):
        others = sum(math.exp(u[i] @ u[k] / tau) for k in range(2 * B) if k != i)
        total -= math.log(math.exp(u[i] @ u[(i + B) % (2 * B)] / tau) / others)
    return total / (2 * B)


@for_each("tau", [0.1, 0.5, 2.0])
@for_each("width", [8, 0])
def test_loss_is_nt_xent_of_the_projections(tau: float, width: int) -> None:
    """Without a projector, of the representations."""
    model = built(SimCLR, SimCLRConfig(tau=tau, projector_width=width, projection=3))
    assert loss_of(model).item() == pytest.approx(_expected(model, tau), rel=1e-5)


def test_views_are_alike() -> None:
    model = built(SimCLR, SimCLRConfig(**SMALL))
    assert loss_of(model, 1, 0).item() == pytest.approx(loss_of(model, 0, 1).item(), rel=1e-6)
    assert loss_of(model, 0, 0).item() < loss_of(model, 0, 1).item() - 0.1


def test_gradients_reach_both_views_and_every_weight() -> None:
    model = built(SimCLR, SimCLRConfig(**SMALL))
    loss = loss_of(model)
    assert (gradient_of_rows(model, loss).abs().amax((1, 2)) > 1e-3).all()
    assert all(gradient.abs().max() > 1e-4 for gradient in torch.autograd.grad(loss, list(model.parameters())))


def test_a_hot_softmax_sees_no_difference() -> None:
    model = built(SimCLR, SimCLRConfig(tau=1e6, **SMALL))
    assert loss_of(model).item() == pytest.approx(math.log(2 * B - 1), abs=1e-5)


def test_the_representation_is_before_the_projector() -> None:
    model = built(SimCLR, SimCLRConfig(**SMALL))
    assert isinstance(model.projector, nn.Sequential)
    assert model.features == 4 and model.projector[0].in_features == 4 and model.projector[-1].out_features == 3


@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_the_dot_product_keeps_lengths(tau: float) -> None:
    """Softmax over the other vectors of plain products; equal to the cosine for unit vectors alone."""
    model = built(SimCLR, SimCLRConfig(tau=tau, projector_width=0, similarity="dot"))
    u = np.concatenate(rows_of(model))
    logits = u @ u.T / tau
    np.fill_diagonal(logits, -np.inf)
    positive = np.roll(np.arange(2 * B), -B)
    expected = (np.log(np.exp(logits).sum(1)) - logits[np.arange(2 * B), positive]).mean()
    assert loss_of(model).item() == pytest.approx(expected, rel=1e-5)
    cosine = built(SimCLR, SimCLRConfig(tau=tau, projector_width=0))
    assert loss_of(cosine).item() != pytest.approx(expected, rel=1e-3)
    for each in (model, cosine):
        with torch.no_grad():
            each.encoder.get_parameter("rows").copy_(torch.from_numpy(unit(u)))
    assert loss_of(model).item() == pytest.approx(loss_of(cosine).item(), rel=1e-5)


class Quadrants(nn.Module):
    """The mean of each quadrant of an image of one channel, times a weight: as many features as rotations."""

    features = 4

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(images_BCHW, 2).flatten(1) * self.weight


def test_rotated_copies_are_further_images_of_the_batch() -> None:
    """The loss is that of four times as many images; by default there are no rotations."""
    source = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, B, 1, 4, 4, generator=source)
    keys: dict[str, Any] = {"projector_width": 0, "tau": 0.5}
    rotated = built(SimCLR, SimCLRConfig(**keys, rotated_negatives=True), Quadrants)
    plain = built(SimCLR, SimCLRConfig(**keys), Quadrants)
    copies = [torch.cat([view.rot90(turns, (-2, -1)) for turns in range(4)]) for view in (first, second)]
    loss, of_copies, of_images = (
        model.losses({"views": tuple(views)}, NO_NOISE).total.item()
        for model, views in ((rotated, (first, second)), (plain, copies), (plain, (first, second)))
    )
    assert loss == pytest.approx(of_copies, rel=1e-6) and abs(loss - of_images) > 0.1
    assert [SimCLR.encoded_count(model.config) for model in (rotated, plain)] == [8, 2]


MOCO_SMALL = {"projector_width": 8, "projection": 3}


def _config(**changes: float) -> MoCoConfig:
    options: dict[str, Any] = {"queue": 7, **MOCO_SMALL, **changes}
    return MoCoConfig(**options)


def _scatter(model: MoCo) -> None:
    """Make the key encoder different from the query encoder."""
    with torch.no_grad():
        for buffer in model.keys.buffers():
            if buffer.is_floating_point():
                buffer.add_(0.3 * torch.randn(buffer.shape, generator=torch.Generator().manual_seed(1)))


def _own_keys(model: MoCo, view_BCHW: Tensor) -> Tensor:
    """Keys `[B, P]` of a view, apart from `losses`."""
    return F.normalize(model.keys.network(view_BCHW), dim=-1)


@for_each("tau", [0.07, 0.2, 1.0])
@for_each("width", [8, 0])
def test_loss_is_info_nce_of_queries_and_keys(tau: float, width: int) -> None:
    """Queries are of the first view, keys of the second and by the key encoder; negatives the queue as it was. Without
    a projector queries and keys are representations."""
    model = built(MoCo, _config(tau=tau, projector_width=width))
    _scatter(model)
    keys = model.keys.network
    assert isinstance(keys, nn.Sequential)
    q = unit(through(model.projector, rows_of(model)[0]))
    k = unit(through(keys[1], keys[0].get_buffer("rows").view(2, B, -1)[1].double().numpy()))
    queue = model.queue_MP.double().numpy().copy()
    actual, total = loss_of(model), 0.0
    for i in range(B):
        own = math.exp(q[i] @ k[i] / tau)
        total -= math.log(own / (own + sum(math.exp(q[i] @ r / tau) for r in queue)))
    assert actual.item() == pytest.approx(total / B, rel=1e-5)


def test_views_are_not_alike() -> None:
    model = built(MoCo, _config())
    _scatter(model)
    assert loss_of(model, 0, 1).item() != pytest.approx(loss_of(model, 1, 0).item(), rel=1e-2)


def test_gradients_reach_queries_alone() -> None:
    model = built(MoCo, _config())
    loss = loss_of(model)
    first, second = gradient_of_rows(model, loss)
    assert first.abs().min() > 1e-5 and torch.equal(second, torch.zeros_like(second))
    assert all(
        gradient.abs().max() > 1e-4 for gradient in torch.autograd.grad(loss, list(model.projector.parameters()))
    )
    assert not any(buffer.requires_grad for buffer in model.buffers())
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"encoder", "projector"}


@for_each("queue", [1, B - 2, B, B + 2, 3 * B, 4 * B + 1])
def test_queue_is_first_in_first_out(queue: int) -> None:
    """The keys of the latest batch lie first; what no longer fits leaves at the end."""
    model = built(MoCo, _config(queue=queue, ema=0.5))
    expected = model.queue_MP.clone()
    source = torch.Generator().manual_seed(2)
    for _ in range(4):
        views = VIEWS[:, torch.randperm(B, generator=source)]
        expected = torch.cat([_own_keys(model, views[1]), expected])[:queue]
        model.losses({"views": tuple(views)}, NO_NOISE)
        with torch.no_grad():  # a step
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=source))
        model.after_step(NO_NOISE)
        assert torch.equal(model.queue_MP, expected)
    if queue > 1:
        assert len(model.queue_MP.unique(dim=0)) == queue


def test_keys_are_of_unit_length_from_the_start() -> None:
    model = built(MoCo, _config(queue=B + 2))
    for _ in range(2):
        torch.testing.assert_close(model.queue_MP.norm(dim=-1), torch.ones(B + 2))
        model.losses(BATCH, NO_NOISE)


def test_an_image_is_no_negative_of_itself() -> None:
    """Its key enters the queue after the loss: the second of two equal losses is greater, if nothing else moves."""
    model = built(MoCo, _config(queue=B))
    with torch.no_grad():
        model.queue_MP.copy_(-_own_keys(model, VIEWS[1]).mean(0, keepdim=True).expand(B, 3))
    first, again = loss_of(model), loss_of(model)
    assert again.item() > first.item() + 0.1


@pytest.mark.parametrize("ema", [0.0, 0.5, 1.0])
def test_key_encoder_follows_the_query_encoder(ema: float) -> None:
    model = built(MoCo, _config(ema=ema))
    _scatter(model)
    online = {**dict(nn.Sequential(model.encoder, model.projector).named_parameters())}
    before = {name: buffer.clone() for name, buffer in model.keys.network.named_buffers()}
    queue = model.queue_MP.clone()
    model.after_step(NO_NOISE)
    after = dict(model.keys.network.named_buffers())
    assert online.keys() == after.keys()
    for name, weight in online.items():
        assert torch.equal(after[name], ema * before[name] + (1 - ema) * weight.detach()), name
        assert not torch.equal(before[name], weight)
    assert torch.equal(model.queue_MP, queue)


def test_at_the_start_keys_are_made_by_the_same_weights() -> None:
    model = built(MoCo, _config())
    expected = F.normalize(model.projector(model(VIEWS[1])), dim=-1)
    torch.testing.assert_close(model.keys(VIEWS[1]).div(model.keys(VIEWS[1]).norm(dim=-1, keepdim=True)), expected)


def test_statistics_of_batchnorm_are_each_encoders_own() -> None:
    """The query encoder has seen the first view, the key encoder the second; following leaves both as they are."""
    model = built(MoCo, _config(ema=0.5), encoder=Normed)
    model.losses(BATCH, NO_NOISE)
    own, keys = model.encoder, model.keys.network.get_submodule("0")
    for encoder, view in ((own, VIEWS[0]), (keys, VIEWS[1])):
        made = encoder.get_submodule("linear")(view.flatten(1)).detach()
        torch.testing.assert_close(encoder.get_buffer("norm.running_mean"), 0.1 * made.mean(0))
        torch.testing.assert_close(encoder.get_buffer("norm.running_var"), 0.9 + 0.1 * made.var(0))
    before = [encoder.get_buffer("norm.running_mean").clone() for encoder in (own, keys)]
    model.after_step(NO_NOISE)
    after = [encoder.get_buffer("norm.running_mean") for encoder in (own, keys)]
    assert all(torch.equal(now, was) for now, was in zip(after, before, strict=True))


PROTOTYPES = 6
SWAV_SMALL = {"prototypes": PROTOTYPES, "projector_width": 8, "projection": 3}


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
    model = built(SwAV, SwAVConfig(tau=tau, epsilon=epsilon, sinkhorn_iterations=iterations, **SWAV_SMALL))
    scores = _plain_scores(model)
    assigned = [_plain_assignment(scores_BM, epsilon, iterations) for scores_BM in scores]
    expected = -sum((assigned[1 - i] * _log_softmax(scores[i] / tau)).sum(-1).mean() for i in (0, 1)) / 2
    assert loss_of(model).item() == pytest.approx(expected, rel=1e-5)
    assert loss_of(model, 1, 0).item() == pytest.approx(expected, rel=1e-5)


def test_length_of_prototypes_does_not_matter() -> None:
    model = built(SwAV, SwAVConfig(**SWAV_SMALL))
    torch.testing.assert_close(model.prototypes_MP.norm(dim=-1), torch.ones(PROTOTYPES))
    before = loss_of(model).item()
    with torch.no_grad():
        model.prototypes_MP.mul_(torch.linspace(0.1, 30, PROTOTYPES)[:, None])
    assert loss_of(model).item() == pytest.approx(before, rel=1e-5)


def test_prototypes_turn_with_the_learning_rate() -> None:
    """They begin with unit length: n times as long, a step would turn them by n^2 less."""
    model = built(SwAV, SwAVConfig(**SWAV_SMALL))
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
    assignments = _assignments(monkeypatch, built(SwAV, SwAVConfig(epsilon=0.5, sinkhorn_iterations=50, **SWAV_SMALL)))
    assert len(assignments) == 2 and not torch.equal(*assignments)
    for assignment_BM in assignments:
        assert not assignment_BM.requires_grad
        torch.testing.assert_close(assignment_BM.sum(1), torch.ones(B))
        torch.testing.assert_close(assignment_BM.sum(0), torch.full((PROTOTYPES,), B / PROTOTYPES), rtol=1e-4, atol=0)
        assert assignment_BM.std() > 0.02


def test_a_small_epsilon_assigns_harder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial's own epsilon is read from its buffer, in which members of a stack differ."""
    model, largest = built(SwAV, SwAVConfig(**SWAV_SMALL)), []
    for epsilon in (0.02, 0.2, 2.0):
        model.epsilon.fill_(epsilon)
        largest.append(_assignments(monkeypatch, model)[0].amax(1).mean().item())
    assert largest[0] > largest[1] + 0.1 > largest[2] + 0.2


def test_gradients_take_assignments_for_constants() -> None:
    """They reach both views, the projector and the prototypes, and are those of the predictions alone."""
    model = built(SwAV, SwAVConfig(epsilon=0.3, **SWAV_SMALL))
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
