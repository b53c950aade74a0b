"""Small networks on top of an encoder (projectors, predictors, posteriors), and moving averages of networks, such as
MoCo's key encoder and BYOL's target network.
"""

import copy
import itertools
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SMALLEST_VARIANCE = 1e-6
"""Minimum that is added to a posterior's variance, as in VJE."""


def mlp(*widths: int, norm: Literal["batch", "layer"] | None, last: bool = False, bias: bool = True) -> nn.Sequential:
    """Linear layers from `widths[0]` to `widths[-1]`, each but the last followed by a norm and ReLU. `last`: add a norm
    without learned weights after the last layer. `bias=False`: the last layer has no bias, for losses that do not
    depend on it. Layers before a BatchNorm never have a bias, because the BatchNorm would remove it."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths[:-1]):
        layers += [nn.Linear(fan_in, fan_out, bias=norm != "batch"), *_norm(norm, fan_out, weights=True), nn.ReLU()]
    last_norm = norm if last else None
    layers += [nn.Linear(widths[-2], widths[-1], bias=bias and last_norm != "batch")]
    return nn.Sequential(*layers, *_norm(last_norm, widths[-1], weights=False))


def projector(features: int, width: int, projection: int, norm: Literal["batch"] | None) -> nn.Module:
    """A two-layer projector with `width` hidden units and `projection` output dimensions; with `width=0` the identity,
    so that the projection is the representation of `features` dimensions."""
    return mlp(features, width, projection, norm=norm) if width else nn.Identity()


def hidden_widths(hidden: str | tuple[int, ...], name: str = "hidden") -> tuple[int, ...]:
    """The widths of hidden layers, from a tuple or from text that joins them by +: `500+500+2000`. Empty for no hidden
    layers. Raises ValueError, with `name` in the message, unless each width is a positive integer."""
    texts = [str(width) for width in hidden] if isinstance(hidden, tuple) else hidden.split("+") if hidden else []
    widths = tuple(int(text) for text in texts if text.isdecimal() and len(text) < 19)
    if [*map(str, widths)] != texts or 0 in widths:
        raise ValueError(f"{name} must be positive widths joined by +, such as 500+2000, but got {name}={hidden}")
    return widths


def _norm(norm: Literal["batch", "layer"] | None, width: int, weights: bool) -> list[nn.Module]:
    if norm == "batch":
        return [nn.BatchNorm1d(width, affine=weights)]
    return [nn.LayerNorm(width, elementwise_affine=weights)] if norm == "layer" else []


class GaussianHead(nn.Module):
    """A diagonal Gaussian posterior over a representation: a bottleneck MLP, then heads for `mu` and `var` (VJE). The
    MLP has three layers of Linear, LayerNorm, ReLU with `width` units each. It has no BatchNorm, so that the posterior
    of an image does not depend on its batch."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(fan_in, width), nn.LayerNorm(width), nn.ReLU())
                for fan_in in (features, width, width)
            )
        )
        self.mu = nn.Linear(width, features)
        self.raw_var = nn.Linear(width, features)

    def forward(self, z_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Return `(mu_BD, var_BD)`, in float32 whatever the precision of the layers; `var >= 1e-6`."""
        hidden = self.trunk(z_BD)
        return self.mu(hidden).float(), F.softplus(self.raw_var(hidden).float()) + SMALLEST_VARIANCE


def frozen_for_training(network: nn.Module) -> None:
    """Put a network into training mode (which may freeze weights), then turn all frozen weights into buffers, in
    place."""
    network.train()
    frozen_as_buffers(network)


def frozen_as_buffers(network: nn.Module) -> None:
    """Turn a network's parameters that require no gradient into buffers, in place, so that no optimiser steps or decays
    them and no moving average tracks them."""
    for module in network.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                delattr(module, name)
                module.register_buffer(name, parameter.detach().clone())


class RunningMean(nn.Module):
    """A mean over training steps that weights recent values most, stored in buffers."""

    DECAY = 0.95
    """Share of its weight that a value keeps per step. The first 20 steps have equal weights."""

    mean: Tensor
    steps: Tensor

    def __init__(self, shape: tuple[int, ...], initial: float = 0.0) -> None:
        """`initial`: the mean before the first step; it is dropped afterwards."""
        super().__init__()
        self.register_buffer("mean", torch.full(shape, float(initial)))
        self.register_buffer("steps", torch.zeros(()))

    @torch.no_grad()
    def update(self, value: Tensor) -> None:
        """Add the value of another step, in place."""
        self.steps.add_(1)
        self.mean.add_((value - self.mean) * (1 / self.steps).clamp_min(1 - self.DECAY))


class MovingAverage(nn.Module):
    """A copy of a network whose weights are buffers, so that only `update` changes them. Its BatchNorms have their own
    statistics. Since everything is a buffer, each member of a stack has its own copy."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).requires_grad_(False)
        frozen_as_buffers(self.network)

    @torch.no_grad()
    def update(self, network: nn.Module, decay: Tensor) -> None:
        """Update each weight in place: `decay * weight + (1 - decay) * original`, with the weight of `network`."""
        own = dict(self.network.named_buffers())
        for name, weight in network.named_parameters():
            own[name].mul_(decay).add_((1 - decay) * weight)

    @torch.no_grad()
    def forward(self, *inputs: Tensor) -> Tensor:
        """The network's forward pass, without gradients."""
        return self.network(*inputs)
