"""Optimisers of stacked parameters, with separate rates for each member.

torch.optim supports only one rate for all members. If all members have the same rate, it is stored as a plain number,
with which torch's foreach operations are fastest; otherwise as a tensor `[K, 1, ...]` per parameter. In a compiled step
all rates are tensors, so that the same code serves every value.

Shapes: K members; every parameter, gradient and moment is `[K, ...]`.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

ADAM_DECAYS = (0.9, 0.999)
"""Decay rates of Adam's averages of the gradient and of its square, beta 1 and beta 2."""
LARS_TRUST = 0.001
"""Trust coefficient of LARS, as in SimCLR and BYOL."""
NORM_EPSILON = 1e-6
"""Added to the norm of a clipped gradient, as in `torch.nn.utils.clip_grad_norm_`."""


class Rates(NamedTuple):
    """The rates of the members of a stack."""

    lr: Sequence[float]
    weight_decay: Sequence[float]
    clip_grad_norm: Sequence[float] = ()
    """The maximum norm of each member's gradient; empty if no member has one."""


class StackedOptimiser(ABC):
    """An optimiser with an L2 penalty, as in torch.optim, and separate rates for each member."""

    def __init__(self, parameters: Sequence[Tensor], lr: Sequence[float], weight_decay: Sequence[float]) -> None:
        self.parameters = list(parameters)
        self._of_tensors = False
        self.set_rates(lr, weight_decay)

    def set_rates(
        self, lr: Sequence[float], weight_decay: Sequence[float], clip_grad_norm: Sequence[float] = ()
    ) -> None:
        """Set each member's learning rate, weight decay and maximum gradient norm (infinite without clipping)."""
        self.lr, self.weight_decay = tuple(lr), tuple(weight_decay)
        self.clip_grad_norm = tuple(clip_grad_norm) or (math.inf,) * len(self.lr)
        like = next(iter(self.parameters), torch.empty(0))  # a frozen network has none
        self._limit_K = torch.tensor(self.clip_grad_norm, dtype=like.dtype, device=like.device)
        self._lr, self._decay = self._per_parameter(lr), self._per_parameter(weight_decay)
        self._decays = any(weight_decay)

    def rates(self) -> dict[str, Tensor]:
        """The rates that a step reads, as tensors `[K]`."""
        like = self.parameters[0]
        rates = {"lr": self.lr, "weight_decay": self.weight_decay}
        tensors = {name: torch.tensor(values, dtype=like.dtype, device=like.device) for name, values in rates.items()}
        return tensors | ({"clip_grad_norm": self._limit_K} if self.clips else {})

    @property
    def clips(self) -> bool:
        """Whether any member's gradient is clipped."""
        return any(map(math.isfinite, self.clip_grad_norm))

    def with_tensors(
        self, parameters: Sequence[Tensor], moments: Mapping[str, Sequence[Tensor]], rates: Mapping[str, Tensor]
    ) -> Self:
        """The same optimiser with these tensors: parameters, the result of `moments`, and the result of `rates`."""
        other = copy.copy(self)
        other.parameters = list(parameters)
        other._set_moments({kind: list(tensors) for kind, tensors in moments.items()})
        other._lr, other._decay = other._views(rates["lr"]), other._views(rates["weight_decay"])
        other._limit_K = rates.get("clip_grad_norm", self._limit_K)
        other._decays = other._of_tensors = True
        return other

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], schedule: float | Tensor) -> None:
        """Make one step at `schedule` times each member's learning rate; `schedule` is in [0, 1], for all members or
        `[K]`."""
        self._step(self._clipped(gradients) if self.clips else gradients, schedule)

    @abstractmethod
    def _step(self, gradients: Sequence[Tensor], schedule: float | Tensor) -> None:
        """`step` with clipped gradients."""

    @abstractmethod
    def moments(self) -> dict[str, list[Tensor]]:
        """Kind -> a tensor `[K, ...]` per parameter, which steps change in place."""

    @torch.no_grad()
    def forget(self) -> None:
        """Reset all moments to 0, their value before the first step."""
        for tensors in self.moments().values():
            torch._foreach_zero_(tensors)

    @abstractmethod
    def _set_moments(self, moments: Mapping[str, list[Tensor]]) -> None:
        """Replace the tensors that `moments` returns."""

    def _clipped(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients, scaled per member such that the norm over all parameters is at most the member's maximum."""
        norms_K = torch.stack([_norms(gradient) for gradient in gradients]).norm(dim=0)
        shares_K = (self._limit_K / (norms_K + NORM_EPSILON)).clamp(max=1.0)
        return list(torch._foreach_mul(list(gradients), self._views(shares_K)))

    def _decayed(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients plus those of the L2 penalty."""
        directions = list(gradients)
        if not self._decays:
            return directions
        if isinstance(self._decay, float):
            return list(torch._foreach_add(directions, self.parameters, alpha=self._decay))
        return list(torch._foreach_add(directions, torch._foreach_mul(self.parameters, self._decay)))

    def _move(self, directions: list[Tensor], rate: float | Tensor) -> None:
        """Subtract `rate` times each member's learning rate times the directions from the parameters."""
        lr = self._lr_at(rate)
        if isinstance(lr, float):
            torch._foreach_add_(self.parameters, directions, alpha=-lr)
        else:
            torch._foreach_sub_(self.parameters, torch._foreach_mul(directions, lr))

    def _lr_at(self, rate: float | Tensor) -> float | list[Tensor]:
        """`rate` times each member's learning rate; per parameter if members differ."""
        if isinstance(rate, Tensor) and rate.dim():
            rates = self._views(rate.to(self.parameters[0].dtype))
            return list(torch._foreach_mul(rates, self._lr))
        return float(rate) * self._lr if isinstance(self._lr, float) else list(torch._foreach_mul(self._lr, rate))

    def _per_parameter(self, values: Sequence[float]) -> float | list[Tensor]:
        """A number if all members have the same value, otherwise a tensor `[K, 1, ...]` per parameter."""
        if len(set(values)) == 1:
            return float(values[0])
        like = self.parameters[0]
        return self._views(torch.tensor(values, dtype=like.dtype, device=like.device))

    def _views(self, values_K: Tensor) -> list[Tensor]:
        """A view `[K, 1, ...]` per parameter."""
        return [values_K.view(-1, *[1] * (parameter.dim() - 1)) for parameter in self.parameters]


class StackedSGD(StackedOptimiser):
    """SGD with momentum."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: Sequence[float], weight_decay: Sequence[float], momentum: float
    ) -> None:
        super().__init__(parameters, lr, weight_decay)
        self.momentum = momentum
        self.velocity = [torch.zeros_like(parameter) for parameter in self.parameters]

    def _step(self, gradients: Sequence[Tensor], schedule: float | Tensor) -> None:
        directions = self._directions(gradients)
        if self.momentum:
            torch._foreach_mul_(self.velocity, self.momentum)
            torch._foreach_add_(self.velocity, directions)
            directions = self.velocity
        self._move(directions, schedule)

    def _directions(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The directions that the velocity accumulates."""
        return self._decayed(gradients)

    def moments(self) -> dict[str, list[Tensor]]:
        return {"velocity": self.velocity}

    def _set_moments(self, moments: Mapping[str, list[Tensor]]) -> None:
        self.velocity = moments["velocity"]


class StackedLARS(StackedSGD):
    """LARS (You et al. 2017) as in self-supervised methods: SGD that scales the step of each weight tensor to the
    tensor's norm. Biases and norm scales, which have one dimension, are neither scaled nor decayed."""

    def _directions(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        directions = []
        for parameter, plain, decayed in zip(self.parameters, gradients, self._decayed(gradients), strict=True):
            if parameter.dim() <= 2:  # per member at most one dimension
                directions.append(plain)
                continue
            weight_K, step_K = _norms(parameter), _norms(decayed)
            ratio_K = torch.where((weight_K > 0) & (step_K > 0), LARS_TRUST * weight_K / step_K, 1.0)
            directions.append(decayed * ratio_K.view(-1, *[1] * (parameter.dim() - 1)))
        return directions


class StackedAdam(StackedOptimiser):
    """Adam, or AdamW with `decoupled` weight decay. All members of a stack have made the same number of steps."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        lr: Sequence[float],
        weight_decay: Sequence[float],
        epsilon: float,
        decoupled: bool = False,
    ) -> None:
        super().__init__(parameters, lr, weight_decay)
        self.epsilon, self.decoupled = epsilon, decoupled
        self.mean = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.square = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = [torch.zeros(len(parameter)) for parameter in self.parameters]
        """Number of steps made, `[K]` on the CPU for each parameter."""

    def _step(self, gradients: Sequence[Tensor], schedule: float | Tensor) -> None:
        if self.decoupled:
            self._shrink(schedule)
        directions = list(gradients) if self.decoupled else self._decayed(gradients)
        mean_decay, square_decay = ADAM_DECAYS
        torch._foreach_add_(self.steps, 1)
        made = self._made()
        torch._foreach_lerp_(self.mean, directions, 1 - mean_decay)
        torch._foreach_mul_(self.square, square_decay)
        torch._foreach_addcmul_(self.square, directions, directions, 1 - square_decay)
        roots = torch._foreach_sqrt(self.square)
        torch._foreach_div_(roots, _root(1 - square_decay**made))
        torch._foreach_add_(roots, self.epsilon)
        self._move(list(torch._foreach_div(self.mean, roots)), schedule / (1 - mean_decay**made))

    def _shrink(self, schedule: float | Tensor) -> None:
        """Decay the weights directly, in proportion to the learning rate."""
        lr = self._lr_at(schedule)
        if not self._decays:
            return
        if isinstance(lr, float) and isinstance(self._decay, float):
            torch._foreach_mul_(self.parameters, 1 - lr * self._decay)
            return
        rates: list[Any] = [lr] * len(self.parameters) if isinstance(lr, float) else lr
        decays: list[Any] = [self._decay] * len(self.parameters) if isinstance(self._decay, float) else self._decay
        torch._foreach_mul_(self.parameters, [1 - rate * decay for rate, decay in zip(rates, decays, strict=True)])

    def _made(self) -> float | Tensor:
        """Number of steps made; a tensor if rates are tensors."""
        made = self.steps[0][0].double()
        return made if self._of_tensors else float(made)

    def moments(self) -> dict[str, list[Tensor]]:
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    def _set_moments(self, moments: Mapping[str, list[Tensor]]) -> None:
        self.mean, self.square, self.steps = moments["mean"], moments["square"], moments["steps"]


def gradient_norms(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of each member's gradient over all parameters, `[K]`."""
    return torch.stack([_norms(gradient) for gradient in gradients]).norm(dim=0)


def _norms(tensor: Tensor) -> Tensor:
    """The norm of each member's part `[K]`."""
    return torch.linalg.vector_norm(tensor.reshape(len(tensor), -1), dim=1)


def _root(value: float | Tensor) -> float | Tensor:
    return math.sqrt(value) if isinstance(value, float) else value.sqrt()
