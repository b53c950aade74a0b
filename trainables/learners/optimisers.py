"""Optimisers of stacked parameters, with rates of its own for each member.

torch.optim supports one rate for all members. Where all members have the same rate it is kept as a plain number, with
which torch's foreach operations are fastest. Otherwise it is a tensor `[K, 1, ...]` for each parameter. In a compiled
step all rates are tensors, so that the same code serves every value.

Shapes: K members; every parameter, gradient and moment is `[K, ...]`.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

ADAM_DECAYS = (0.9, 0.999)
"""Decay rates of Adam's averages of the gradient and of its square, beta 1 and beta 2."""


class StackedOptimiser(ABC):
    """An optimiser with an L2 penalty, as in torch.optim, and rates of its own for each member."""

    def __init__(self, parameters: Sequence[Tensor], lr: Sequence[float], weight_decay: Sequence[float]) -> None:
        self.parameters = list(parameters)
        self._of_tensors = False
        self.set_rates(lr, weight_decay)

    def set_rates(self, lr: Sequence[float], weight_decay: Sequence[float]) -> None:
        """Set each member's learning rate and weight decay."""
        self.lr, self.weight_decay = tuple(lr), tuple(weight_decay)
        self._lr, self._decay = self._per_parameter(lr), self._per_parameter(weight_decay)
        self._decays = any(weight_decay)

    def rates(self) -> dict[str, Tensor]:
        """Each member's learning rate and weight decay as tensors `[K]`."""
        like = self.parameters[0]
        rates = {"lr": self.lr, "weight_decay": self.weight_decay}
        return {name: torch.tensor(values, dtype=like.dtype, device=like.device) for name, values in rates.items()}

    def with_tensors(
        self, parameters: Sequence[Tensor], moments: Mapping[str, Sequence[Tensor]], rates: Mapping[str, Tensor]
    ) -> Self:
        """The same optimiser of these tensors: parameters, what `moments` returns, and what `rates` returns."""
        other = copy.copy(self)
        other.parameters = list(parameters)
        other._set_moments({kind: list(tensors) for kind, tensors in moments.items()})
        other._lr, other._decay = other._views(rates["lr"]), other._views(rates["weight_decay"])
        other._decays = other._of_tensors = True
        return other

    @abstractmethod
    def step(self, gradients: Sequence[Tensor], schedule: float | Tensor) -> None:
        """Make one step at `schedule` times each member's learning rate; `schedule` is in [0, 1]."""

    @abstractmethod
    def moments(self) -> dict[str, list[Tensor]]:
        """Kind -> a tensor `[K, ...]` for each parameter, which steps change in place."""

    @torch.no_grad()
    def forget(self) -> None:
        """Set all moments to 0, as they are before the first step."""
        for tensors in self.moments().values():
            torch._foreach_zero_(tensors)

    @abstractmethod
    def _set_moments(self, moments: Mapping[str, list[Tensor]]) -> None:
        """Replace the tensors that `moments` returns."""

    def _decayed(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients with those of the L2 penalty."""
        directions = list(gradients)
        if not self._decays:
            return directions
        if isinstance(self._decay, float):
            return list(torch._foreach_add(directions, self.parameters, alpha=self._decay))
        return list(torch._foreach_add(directions, torch._foreach_mul(self.parameters, self._decay)))

    def _move(self, directions: list[Tensor], rate: float | Tensor) -> None:
        """Subtract `rate` times each member's learning rate times the directions from the parameters."""
        if isinstance(self._lr, float):
            torch._foreach_add_(self.parameters, directions, alpha=-float(rate) * self._lr)
        else:
            torch._foreach_sub_(self.parameters, torch._foreach_mul(directions, torch._foreach_mul(self._lr, rate)))

    def _per_parameter(self, values: Sequence[float]) -> float | list[Tensor]:
        """A number where all members have the same value, else a tensor `[K, 1, ...]` for each parameter."""
        if len(set(values)) == 1:
            return float(values[0])
        like = self.parameters[0]
        return self._views(torch.tensor(values, dtype=like.dtype, device=like.device))

    def _views(self, values_K: Tensor) -> list[Tensor]:
        """A view `[K, 1, ...]` for each parameter."""
        return [values_K.view(-1, *[1] * (parameter.dim() - 1)) for parameter in self.parameters]


class StackedSGD(StackedOptimiser):
    """SGD with momentum."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: Sequence[float], weight_decay: Sequence[float], momentum: float
    ) -> None:
        super().__init__(parameters, lr, weight_decay)
        self.momentum = momentum
        self.velocity = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], schedule: float | Tensor) -> None:
        directions = self._decayed(gradients)
        if self.momentum:
            torch._foreach_mul_(self.velocity, self.momentum)
            torch._foreach_add_(self.velocity, directions)
            directions = self.velocity
        self._move(directions, schedule)

    def moments(self) -> dict[str, list[Tensor]]:
        return {"velocity": self.velocity}

    def _set_moments(self, moments: Mapping[str, list[Tensor]]) -> None:
        self.velocity = moments["velocity"]


class StackedAdam(StackedOptimiser):
    """Adam. All members of a stack have made equally many steps."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: Sequence[float], weight_decay: Sequence[float], epsilon: float
    ) -> None:
        super().__init__(parameters, lr, weight_decay)
        self.epsilon = epsilon
        self.mean = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.square = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = [torch.zeros(len(parameter)) for parameter in self.parameters]
        """Number of steps made, `[K]` on the CPU for each parameter."""

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], schedule: float | Tensor) -> None:
        directions, (mean_decay, square_decay) = self._decayed(gradients), ADAM_DECAYS
        torch._foreach_add_(self.steps, 1)
        made = self._made()
        torch._foreach_lerp_(self.mean, directions, 1 - mean_decay)
        torch._foreach_mul_(self.square, square_decay)
        torch._foreach_addcmul_(self.square, directions, directions, 1 - square_decay)
        roots = torch._foreach_sqrt(self.square)
        torch._foreach_div_(roots, _root(1 - square_decay**made))
        torch._foreach_add_(roots, self.epsilon)
        self._move(list(torch._foreach_div(self.mean, roots)), schedule / (1 - mean_decay**made))

    def _made(self) -> float | Tensor:
        """Number of steps made: a tensor where rates are tensors."""
        made = self.steps[0][0].double()
        return made if self._of_tensors else float(made)

    def moments(self) -> dict[str, list[Tensor]]:
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    def _set_moments(self, moments: Mapping[str, list[Tensor]]) -> None:
        self.mean, self.square, self.steps = moments["mean"], moments["square"], moments["steps"]


def _root(value: float | Tensor) -> float | Tensor:
    return math.sqrt(value) if isinstance(value, float) else value.sqrt()
