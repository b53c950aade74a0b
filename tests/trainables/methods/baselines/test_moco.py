"""The key encoder, the queue, and Eq. 9 of SimVAE word for word, in float64.

Shapes: B images, M keys in the queue.
"""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    VIEWS,
    B,
    Normed,
    built,
    gradient_of_rows,
    loss_of,
    rows_of,
    through,
    unit,
)
from trainables.methods.baselines.moco import MoCo
from trainables.methods.baselines.moco import MoCoConfig as Config

SMALL = {"projector_width": 8, "projection": 3}


def _config(**changes: float) -> Config:
    options: dict[str, Any] = {"queue": 7, **SMALL, **changes}
    return Config(**options)


def _scatter(model: MoCo) -> None:
    """Make the key encoder different from the query encoder."""
    with torch.no_grad():
        for buffer in model.keys.buffers():
            if buffer.is_floating_point():
                buffer.add_(0.3 * torch.randn(buffer.shape, generator=torch.Generator().manual_seed(1)))


def _own_keys(model: MoCo, view_BCHW: Tensor) -> Tensor:
    """Keys `[B, P]` of a view, apart from `losses`."""
    return F.normalize(model.keys.network(view_BCHW), dim=-1)


@pytest.mark.parametrize("tau", [0.07, 0.2, 1.0])
@pytest.mark.parametrize("width", [8, 0])
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


@pytest.mark.parametrize("queue", [1, B - 2, B, B + 2, 3 * B, 4 * B + 1])
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
