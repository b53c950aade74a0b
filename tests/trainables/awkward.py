"""A method with all that can be awkward, stacks of it, and the plain model with torch's own SGD.

Shapes: K members, B images, D features, Q entries of a queue.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.contract import Losses, Method
from trainables.learners.stack import Stack

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
    """A method with BatchNorm, a moving average of its own weights and a queue of earlier representations."""

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


def models(taus: tuple[float, ...] = (0.9, 0.5, 0.99), seeds: tuple[int, ...] = (0, 1, 2)) -> list[Awkward]:
    with torch.random.fork_rng():
        built = []
        for tau, seed in zip(taus, seeds, strict=True):
            torch.manual_seed(seed)
            built.append(Awkward(AwkwardConfig(tau), Encoder()))
    return built


def stack_of(models: list[Awkward], streams: tuple[int, ...], members: slice = slice(None)) -> Stack:
    return Stack(
        copy.deepcopy(models[members]),
        streams=streams[members],
        lr=LR[members],
        weight_decay=DECAY[members],
        momentum=MOMENTUM,
    )


def batch(step: int, stream: int) -> tuple[list[Tensor], Tensor]:
    source = torch.Generator().manual_seed(1000 * stream + step)
    return [torch.randn(B, 1, 5, 5, generator=source) for _ in range(2)], torch.randn(B, D, generator=source)


def schedule(step: int) -> float:
    return 1 - step / STEPS


def one_step(stack: Stack, step: int, streams: int = 3) -> Losses:
    batches = [batch(step, stream) for stream in range(streams)]
    return stack.step([views for views, _ in batches], [noise for _, noise in batches], schedule(step))


def plain(model: Awkward, lr: float, weight_decay: float, stream: int) -> list[Tensor]:
    """Train the model with torch.optim.SGD and return the losses."""
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, weight_decay=weight_decay, momentum=MOMENTUM)
    losses = []
    for step in range(STEPS):
        views, noise = batch(step, stream)
        model.train()
        loss = model.losses(*views, noise=noise)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.param_groups[0]["lr"] = lr * schedule(step)
        optimiser.step()
        model.after_step()
        losses.append(loss.total.detach())
    return losses
