"""A stack is its members: against plain models with torch's own SGD, for a method with all that can be awkward.

Shapes: K members, B images, D features, Q entries of a queue.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from trainables.contract import Losses, Method
from trainables.fuse import Stack

K, B, D, Q, STEPS = 3, 6, 4, 12, 10
LR: Sequence[float] = (0.1, 0.02, 0.05)
DECAY: Sequence[float] = (0.0, 0.1, 0.01)
MOMENTUM = 0.9


@dataclass(frozen=True)
class AwkwardConfig:
    tau: float = 0.9


class Encoder(nn.Module):
    features = D

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(45, D))

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.layers(images_BCHW)


class Awkward(Method):
    """Pulls to an average of its own weights and away from a queue of former representations; BatchNorm inside."""

    Config = AwkwardConfig
    fusible = frozenset({"tau"})
    loss_parts = ("pull", "push")
    scores = ("length",)

    tau: Tensor
    average: Tensor
    latest: Tensor
    queue: Tensor
    steps: Tensor

    def __init__(self, config: AwkwardConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.head = nn.Linear(D, D)
        self.register_buffer("tau", torch.tensor(config.tau))
        self.register_buffer("average", self.head.weight.detach().clone())
        self.register_buffer("latest", torch.zeros(B, D))
        self.register_buffer("queue", torch.ones(Q, D))
        self.register_buffer("steps", torch.tensor(0))

    def noise_shape(self, batch: int) -> tuple[int, ...]:
        return (batch, D)

    def losses(self, *views_BCHW: Tensor, noise: Tensor) -> Losses:
        first_BD, second_BD = (self(view) for view in views_BCHW)
        self.latest.copy_(second_BD.detach())
        target_BD = second_BD.detach() @ self.average.T
        pull = (self.head(first_BD) + 0.1 * noise - target_BD).square().sum(-1).mean()
        push = torch.log_softmax(first_BD @ self.queue.T, dim=-1).square().mean()
        return Losses(pull + 0.1 * push, {"pull": pull, "push": push})

    def after_step(self) -> None:
        self.average.mul_(self.tau).add_((1 - self.tau) * self.head.weight.detach())
        self.queue.copy_(torch.cat([self.latest, self.queue])[:Q])
        self.steps.add_(1)

    def score(self, images_BCHW: Tensor, noise: Tensor) -> dict[str, Tensor]:
        return {"length": self(images_BCHW).norm(dim=-1)}


def _models(taus: tuple[float, ...] = (0.9, 0.5, 0.99), seeds: tuple[int, ...] = (0, 1, 2)) -> list[Awkward]:
    with torch.random.fork_rng():
        made = []
        for tau, seed in zip(taus, seeds, strict=True):
            torch.manual_seed(seed)
            made.append(Awkward(AwkwardConfig(tau), Encoder()))
    return made


def _stack(models: list[Awkward], streams: tuple[int, ...], members: slice = slice(None)) -> Stack:
    return Stack(
        copy.deepcopy(models[members]),
        streams=streams[members],
        lr=LR[members],
        weight_decay=DECAY[members],
        momentum=MOMENTUM,
    )


def _batch(step: int, stream: int) -> tuple[list[Tensor], Tensor]:
    source = torch.Generator().manual_seed(1000 * stream + step)
    return [torch.randn(B, 1, 5, 5, generator=source) for _ in range(2)], torch.randn(B, D, generator=source)


def _schedule(step: int) -> float:
    return 1 - step / STEPS


def _step(stack: Stack, step: int, streams: int = 3) -> Losses:
    batches = [_batch(step, stream) for stream in range(streams)]
    return stack.step([views for views, _ in batches], [noise for _, noise in batches], _schedule(step))


def _plain(model: Awkward, lr: float, weight_decay: float, stream: int) -> list[Tensor]:
    """Trains the model with torch.optim.SGD; the losses."""
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, weight_decay=weight_decay, momentum=MOMENTUM)
    losses = []
    for step in range(STEPS):
        views, noise = _batch(step, stream)
        model.train()
        loss = model.losses(*views, noise=noise)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.param_groups[0]["lr"] = lr * _schedule(step)
        optimiser.step()
        model.after_step()
        losses.append(loss.total.detach())
    return losses


IMAGES = torch.randn(7, 1, 5, 5, generator=torch.Generator().manual_seed(5))
NO_NOISE = torch.zeros(0)


@pytest.mark.parametrize("streams", [(0, 0, 0), (0, 1, 2), (2, 0, 2)])
@pytest.mark.parametrize("members", [slice(0, 3), slice(1, 3), slice(0, 1), slice(2, 3)])
def test_every_member_is_the_plain_model_with_torchs_sgd(streams: tuple[int, ...], members: slice) -> None:
    stack = _stack(_models(), streams, members)
    losses = [_step(stack, step).total for step in range(STEPS)]
    scores = stack.score(IMAGES, NO_NOISE)["length"]
    state = stack.state()
    for place, index in enumerate(range(K)[members]):
        model = _models()[index]
        expected = _plain(model, LR[index], DECAY[index], streams[index])
        torch.testing.assert_close(torch.stack(losses)[:, place], torch.stack(expected), rtol=1e-4, atol=1e-5)
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        got = {**state["parameters"], **state["buffers"]}
        assert {f"method.{name}" for name in tensors} == set(got)
        for name, tensor in tensors.items():
            torch.testing.assert_close(got[f"method.{name}"][place], tensor.detach(), rtol=1e-3, atol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(scores[place], model.eval()(IMAGES).norm(dim=-1), rtol=1e-4, atol=1e-5)


def test_buffers_move_in_place_each_members_own() -> None:
    """The moving average by its own tau, the queue with its own entries, BatchNorm's statistics, counters."""
    stack = _stack(_models(), (0, 1, 2))
    before = stack.state()["buffers"]
    held = dict(stack.buffers)
    for step in range(STEPS):
        _step(stack, step)
    after = stack.state()["buffers"]
    assert all(stack.buffers[name] is tensor for name, tensor in held.items())
    for name in ("average", "queue", "latest", "encoder.layers.1.running_mean", "encoder.layers.1.running_var"):
        moved = after[f"method.{name}"] - before[f"method.{name}"]
        assert all(moved[member].abs().max() > 1e-4 for member in range(K)), name
        assert not any(torch.allclose(moved[i], moved[j]) for i in range(K) for j in range(i)), name
    assert after["method.steps"].tolist() == [STEPS] * K
    assert after["method.encoder.layers.1.num_batches_tracked"].tolist() == [2 * STEPS] * K  # two views a step
    assert torch.equal(after["method.tau"], before["method.tau"])


@pytest.mark.parametrize("members", [slice(0, 3), slice(0, 1)])
def test_scoring_changes_nothing_and_knows_no_neighbours(members: slice) -> None:
    stack = _stack(_models(), (0, 0, 0), members)
    _step(stack, 0)
    before = stack.state()
    scores = stack.score(IMAGES, NO_NOISE)["length"]
    assert not scores.requires_grad
    torch.testing.assert_close(scores[:, 2:3], stack.score(IMAGES[2:3], NO_NOISE)["length"])
    for kind, tensors in stack.state().items():
        assert all(torch.equal(tensor, before[kind][name]) for name, tensor in tensors.items())


@pytest.mark.parametrize("members", [slice(0, 3), slice(0, 1)])
def test_goes_on_from_its_state_bit_for_bit(members: slice) -> None:
    whole = _stack(_models(), (0, 1, 0), members)
    for step in range(4):
        _step(whole, step)
    buffer = io.BytesIO()
    torch.save(whole.state(), buffer)
    other = _stack(_models(taus=(0.1, 0.2, 0.3), seeds=(7, 8, 9)), (0, 1, 0), members)
    other.load_state(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
    for step in range(4, 8):
        assert torch.equal(_step(whole, step).total, _step(other, step).total)
    for kind, tensors in whole.state().items():
        assert all(torch.equal(tensor, other.state()[kind][name]) for name, tensor in tensors.items())


def test_state_is_a_copy() -> None:
    stack = _stack(_models(), (0, 0, 0))
    state = stack.state()
    kept = copy.deepcopy(state)
    _step(stack, 0)
    assert all(torch.equal(state[kind][name], kept[kind][name]) for kind in kept for name in kept[kind])


@pytest.mark.parametrize("streams", [(0, 0, 0), (0, 1, 2)])
def test_a_member_with_nan_weights_spoils_only_itself(streams: tuple[int, ...]) -> None:
    clean, models = _stack(_models(), streams), _models()
    with torch.no_grad():
        models[1].head.weight.fill_(torch.nan)
    spoilt = _stack(models, streams)
    for step in range(3):
        good, bad = _step(clean, step).total, _step(spoilt, step).total
        assert torch.equal(good[[0, 2]], bad[[0, 2]]) and bad[1].isnan()


def test_losses_are_those_before_the_step_and_hold_no_graph() -> None:
    stack = _stack(_models(), (0, 0, 0))
    losses = _step(stack, 0)
    views, noise = _batch(0, 0)
    for place, model in enumerate(_models()):
        torch.testing.assert_close(losses.total[place], model.train().losses(*views, noise=noise).total.detach())
    assert not any(loss.requires_grad for loss in (losses.total, *losses.parts.values()))
    assert set(losses.parts) == {"pull", "push"} and all(part.shape == (K,) for part in losses.parts.values())


class Drawing(Awkward):
    """Breaks the rule that nothing draws random numbers."""

    def losses(self, *views_BCHW: Tensor, noise: Tensor) -> Losses:
        return super().losses(*views_BCHW, noise=noise + torch.randn_like(noise))


def test_a_method_that_draws_in_a_stack_is_refused() -> None:
    models: list[Awkward] = [Drawing(AwkwardConfig(), Encoder()) for _ in range(K)]
    with pytest.raises(RuntimeError, match="random"):
        _step(_stack(models, (0, 0, 0)), 0)
