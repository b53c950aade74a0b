"""A method with all that can be awkward, stacks of it, and the plain model with torch's own SGD or Adam.

Shapes: K members, B images, D features, Q entries of a queue.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Noise, Noises, Shapes
from trainables.learners.data_parallel import draw_noise
from trainables.learners.optimisers import Rates, StackedAdam, StackedSGD
from trainables.learners.stack import MakeOptimiser, Stack

K, B, D, Q, STEPS = 3, 6, 4, 12, 10
LR: Sequence[float] = (0.1, 0.02, 0.05)
DECAY: Sequence[float] = (0.0, 0.1, 0.01)
MOMENTUM, EPSILON = 0.9, 0.03
"""Adam's epsilon is large because rounding alone gives a bias before BatchNorm a gradient."""
STACKED: Mapping[str, MakeOptimiser] = {
    "sgd": partial(StackedSGD, momentum=MOMENTUM),
    "adam": partial(StackedAdam, epsilon=EPSILON),
}
TORCHS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, momentum=MOMENTUM),
    "adam": partial(torch.optim.Adam, eps=EPSILON),
}
"""Name -> the stacked optimiser, and torch's own."""


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


class Networks:
    """Builds the encoder above."""

    def build(self, image_shape: tuple[int, ...], outputs: int = 1) -> nn.Module:
        return Encoder()

    def build_decoder(self, features: int, image_shape: tuple[int, ...]) -> Any:
        raise NotImplementedError


class Awkward(ImageMethod):
    """A method with BatchNorm, a moving average of its own weights, a queue of earlier representations, and noise of
    both kinds, with and without the dimension of the batch."""

    Config = AwkwardConfig
    fusible = frozenset({"tau"})
    capabilities = frozenset({"embed", "score"})
    loss_parts = ("pull", "push")
    scores = ("length",)

    tau: Tensor
    average: Tensor
    latest: Tensor
    queue: Tensor
    steps: Tensor

    def __init__(self, config: AwkwardConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.head = nn.Linear(D, D)
        self.register_buffer("average", self.head.weight.detach().clone())
        self.register_buffer("latest", torch.zeros(B, D))
        self.register_buffer("queue", torch.ones(Q, D))
        self.register_buffer("steps", torch.tensor(0))

    def noise(self, batch: int) -> Noises:
        return {"target": Noise((batch, D), batch_dim=0), "keys": Noise((D,), kind="uniform")}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        first_BD, second_BD = (self(view_BCHW) for view_BCHW in batch["views"])
        self.latest.copy_(second_BD.detach())
        target_BD = second_BD.detach() @ self.average.T
        pull = (self.head(first_BD) + 0.1 * noise["target"] - target_BD).square().sum(-1).mean()
        keys = self.queue + noise["keys"]
        push = torch.log_softmax(first_BD @ keys.T, dim=-1).square().mean()
        return Losses(pull + 0.1 * push, {"pull": pull, "push": push})

    def after_step_noise(self) -> Noises:
        return {"drift": Noise((Q, D))}

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        self.average.mul_(self.tau).add_((1 - self.tau) * self.head.weight.detach())
        self.queue.copy_(torch.cat([self.latest, self.queue])[:Q] + 0.1 * noise["drift"])
        self.steps.add_(1)

    def score_noise(self, batch: int) -> Noises:
        return {"shift": Noise((batch, D), batch_dim=0)}

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"length": (self(images_BCHW) + noise["shift"]).norm(dim=-1)}


def awkward(tau: float = 0.9, method: type[Awkward] = Awkward) -> Awkward:
    """A model with weights from torch's global generator."""
    return method(AwkwardConfig(tau), Networks(), {"views": (1, 5, 5)})


def models(taus: tuple[float, ...] = (0.9, 0.5, 0.99), seeds: tuple[int, ...] = (0, 1, 2)) -> list[Awkward]:
    with torch.random.fork_rng():
        built = []
        for tau, seed in zip(taus, seeds, strict=True):
            torch.manual_seed(seed)
            built.append(awkward(tau))
    return built


def stack_of(
    models: list[Awkward], streams: tuple[int, ...], members: slice = slice(None), optimiser: str = "sgd"
) -> Stack:
    return Stack(
        copy.deepcopy(models[members]),
        streams=streams[members],
        rates=Rates(LR[members], DECAY[members]),
        make_optimiser=STACKED[optimiser],
    )


class Inputs(NamedTuple):
    """What a step of one stream takes."""

    batch: Batch
    noise: dict[str, Tensor]
    after_noise: dict[str, Tensor]


@cache
def inputs_of(step: int, stream: int) -> Inputs:
    source, model = torch.Generator().manual_seed(1000 * stream + step), models()[0]
    views = tuple(torch.randn(B, 1, 5, 5, generator=source) for _ in range(2))
    noise = draw_noise(model.noise(B), "noise", step, stream)
    return Inputs({"views": views}, noise, draw_noise(model.after_step_noise(), "after_step", step, stream))


def schedule(step: int) -> float:
    return 1 - step / STEPS


def one_step(stack: Stack, step: int, streams: Sequence[int] = range(3)) -> Losses:
    """Step on these streams."""
    batches, noise, after_noise = zip(*(inputs_of(step, stream) for stream in streams), strict=True)
    return stack.step(batches, noise, after_noise, schedule(step))


def plain_step(model: Awkward, optimiser: torch.optim.Optimizer, lr: float, step: int, stream: int) -> Tensor:
    """Step the model with torch's optimiser and return the loss."""
    batch, noise, after_noise = inputs_of(step, stream)
    loss = model.train().losses(batch, noise)
    optimiser.zero_grad()
    loss.total.backward()
    optimiser.param_groups[0]["lr"] = lr * schedule(step)
    optimiser.step()
    model.after_step(after_noise)
    return loss.total.detach()


def plain(model: Awkward, lr: float, weight_decay: float, stream: int, optimiser: str = "sgd") -> list[Tensor]:
    """Train the model with torch's optimiser and return the losses."""
    torchs = TORCHS[optimiser](model.parameters(), lr=lr, weight_decay=weight_decay)
    return [plain_step(model, torchs, lr, step, stream) for step in range(STEPS)]
