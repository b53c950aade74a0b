"""Stochastic gradient descent for stacked parameters, with rates of its own for each member, and the schedule of rates.

Shapes: K members; every parameter, gradient and momentum is `[K, ...]`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def cosine(step: int, steps: int, warmup: int = 0) -> float:
    """The learning rate at `step` of `steps`, as a share of its peak: linear from 0 over `warmup` steps, then
    half a cosine down to 0."""
    if step < warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


class StackedSGD:
    """SGD with momentum and L2 weight decay as in torch.optim.SGD, with rates of its own for each member. torch.optim
    supports one rate for all members. Where all members have the same rate it is kept as a plain number, with which
    torch's foreach operations are fastest. Otherwise it is a tensor `[K, 1, ...]` for each parameter."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: Sequence[float], weight_decay: Sequence[float], momentum: float
    ) -> None:
        self.parameters = list(parameters)
        self.momentum = momentum
        self.velocity = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.set_rates(lr, weight_decay)

    def set_rates(self, lr: Sequence[float], weight_decay: Sequence[float]) -> None:
        """Set each member's learning rate and weight decay."""
        self.lr, self.weight_decay = tuple(lr), tuple(weight_decay)
        self._lr, self._decay = self._per_parameter(lr), self._per_parameter(weight_decay)
        self._decays = any(weight_decay)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], schedule: float) -> None:
        """Make one step at `schedule` times each member's learning rate; `schedule` is in [0, 1]."""
        directions = list(gradients)
        if self._decays:
            if isinstance(self._decay, float):
                directions = list(torch._foreach_add(directions, self.parameters, alpha=self._decay))
            else:
                directions = list(torch._foreach_add(directions, torch._foreach_mul(self.parameters, self._decay)))
        if self.momentum:
            torch._foreach_mul_(self.velocity, self.momentum)
            torch._foreach_add_(self.velocity, directions)
            directions = self.velocity
        if isinstance(self._lr, float):
            torch._foreach_add_(self.parameters, directions, alpha=-schedule * self._lr)
        else:
            torch._foreach_sub_(self.parameters, torch._foreach_mul(directions, torch._foreach_mul(self._lr, schedule)))

    def _per_parameter(self, values: Sequence[float]) -> float | list[Tensor]:
        """A number where all members have the same value, else a tensor `[K, 1, ...]` for each parameter."""
        if len(set(values)) == 1:
            return float(values[0])
        like = self.parameters[0]
        stacked_K = torch.tensor(values, dtype=like.dtype, device=like.device)
        return [stacked_K.view(-1, *[1] * (parameter.dim() - 1)) for parameter in self.parameters]
