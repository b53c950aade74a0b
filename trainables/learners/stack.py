"""Train models of equal shape as one: stacked weights, vmapped losses, one optimiser step.

Shapes: K members, B images; every parameter and buffer of a stack is `[K, ...]`. Members with equal data and seed read
the same of S data streams, so a batch holds each stream once, and `stream_K` is the index of each member's stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from trainables.contract import CheckpointError, Losses, Method
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.learners.optimisers import StackedSGD

METHODS_WITH_NOISE = ("losses", "score")
"""Methods of a `Method` whose last argument is noise."""


class Stack:
    """K members of one method, trained together. A stack of one runs the plain model, without vmap."""

    def __init__(
        self,
        models: Sequence[Method],
        *,
        streams: Sequence[int],
        lr: Sequence[float],
        weight_decay: Sequence[float],
        momentum: float,
        autocast: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        peers: Peers = SINGLE_PROCESS,
    ) -> None:
        """`models`: one initialised model per member, all of one shape. `streams`: the index of each member's data
        stream. With several `peers` each process steps on its part of a batch, and gradients are averaged over them."""
        self.size = len(models)
        self.device = torch.device(device)
        self.autocast = autocast
        self._peers = peers
        self.parameters = _stacked([dict(model.named_parameters()) for model in models], self.device)
        self.buffers = _stacked([dict(model.named_buffers()) for model in models], self.device)
        for parameter in self.parameters.values():
            parameter.requires_grad_()
        self.optimiser = StackedSGD(list(self.parameters.values()), lr, weight_decay, momentum)
        self.method = models[0].to(self.device)
        self._call = _Call(self.method)
        self._streams = sorted(set(streams))
        self._shared = len(self._streams) == 1
        self._stream_K = torch.tensor([self._streams.index(stream) for stream in streams], device=self.device)

    @classmethod
    def from_members(cls, members: Sequence[tuple[Stack, int]], streams: Sequence[int]) -> Stack:
        """A new stack with copies of these members, each given by its stack and its slot there. Training continues as
        it would have in the old stacks. `streams` are the members' indices among the streams of the new stack."""
        first, _ = members[0]
        merged = cls(
            [first.method] * len(members),
            streams=streams,
            lr=[stack.optimiser.lr[slot] for stack, slot in members],
            weight_decay=[stack.optimiser.weight_decay[slot] for stack, slot in members],
            momentum=first.optimiser.momentum,
            autocast=first.autocast,
            device=first.device,
            peers=first._peers,
        )
        for new_slot, (stack, slot) in enumerate(members):
            merged._write(new_slot, stack._read(slot))
        return merged

    def copy_member(self, slot: int) -> dict[str, dict[str, Tensor]]:
        """A copy of the state of the member in this slot, without its hyperparameters: weights, buffers, momentum."""
        hyperparameters = {f"method.{name}" for name in self.method.fusible}
        return {
            kind: {name: tensor.clone() for name, tensor in tensors.items() if name not in hyperparameters}
            for kind, tensors in self._read(slot).items()
        }

    def load_member(
        self, slot: int, state: Mapping[str, Mapping[str, Tensor]], hyperparameters: Mapping[str, float]
    ) -> None:
        """Give the member in this slot the state that `copy_member` returned of another one, and these hyperparameters.
        Raises ValueError for a hyperparameter that is neither a rate of the optimiser nor fusible in the method."""
        self._write(slot, state)
        rates = {name: list(values) for name, values in self._rates().items()}
        for name, value in hyperparameters.items():
            if name in rates:
                rates[name][slot] = value
            elif name in self.method.fusible:
                self.buffers[f"method.{name}"][slot] = value
            else:
                changeable = ", ".join([*rates, *sorted(self.method.fusible)])
                raise ValueError(f"a member can only change its {changeable}, but got {name}={value}")
        self.optimiser.set_rates(**rates)

    def step(self, views: Sequence[Sequence[Tensor]], noise: Sequence[Tensor], schedule: float) -> Losses:
        """Make one optimiser step. `views[s]` are the views `[B, C, H, W]` of stream s and `noise[s]` is its noise.
        Returns the losses before the step, `[K]` each. A member whose loss is not finite affects no other member."""
        self.method.train()
        inputs = [self._gather([views[s][v] for s in self._streams]) for v in range(self.method.view_count)]
        gathered_noise = self._gather([noise[s] for s in self._streams])
        with self._precision():
            losses: Losses = self._each("losses", *inputs, gathered_noise, shared=self._shared)
        gradients = torch.autograd.grad(losses.total.sum(), list(self.parameters.values()))
        self._peers.average(gradients)
        self.optimiser.step(gradients, schedule)
        with torch.no_grad():
            self._each("after_step")
        return Losses(losses.total.detach(), {name: part.detach() for name, part in losses.parts.items()})

    @torch.no_grad()
    def score(self, images_BCHW: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Anomaly scores `[K, B]` of images that all members see alike, in evaluation mode."""
        self.method.eval()
        with self._precision():
            return self._each("score", images_BCHW, noise)

    @torch.no_grad()
    def embed(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        """The vectors `[K, B, D]` of images that all members see alike, in evaluation mode."""
        self.method.eval()
        with self._precision():
            return self._each("embed", images_BCHW)

    def average_buffers(self) -> None:
        """Average the floating-point buffers over all peers: BatchNorm's statistics differ between processes."""
        self._peers.average([buffer for buffer in self.buffers.values() if buffer.is_floating_point()])

    def state(self) -> dict[str, Any]:
        """Everything that `load_state` needs to continue training, bit for bit on the CPU."""
        rates = {name: torch.tensor(values, dtype=torch.float64) for name, values in self._rates().items()}
        tensors = tree_map(lambda tensor: tensor.detach().cpu().clone(), self._tensors())
        return {**tensors, "rates": rates}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Load what `state` returned in an equal stack. Raises CheckpointError, before any change, where a name, shape
        or type differs."""
        _check_alike(self.state(), state)
        for kind, tensors in self._tensors().items():
            for name, tensor in tensors.items():
                tensor.copy_(state[kind][name])
        self.optimiser.set_rates(**{name: values.tolist() for name, values in state["rates"].items()})

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        """All tensors `[K, ...]` that training changes."""
        velocity = dict(zip(self.parameters, self.optimiser.velocity, strict=True))
        return {"parameters": self.parameters, "buffers": self.buffers, "velocity": velocity}

    def _rates(self) -> dict[str, tuple[float, ...]]:
        """The members' hyperparameters that the optimiser holds, by name."""
        return {"lr": self.optimiser.lr, "weight_decay": self.optimiser.weight_decay}

    def _read(self, slot: int) -> dict[str, dict[str, Tensor]]:
        """One member's slices of the tensors."""
        return tree_map(lambda tensor: tensor.detach()[slot], self._tensors())

    @torch.no_grad()
    def _write(self, slot: int, slices: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Overwrite one member's slices of the tensors."""
        for kind, tensors in self._tensors().items():
            for name, tensor in slices[kind].items():
                tensors[name][slot].copy_(tensor)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None)

    def _gather(self, by_stream: Sequence[Tensor]) -> Tensor:
        """The members' inputs: the tensor itself if all members share one stream, else `[K, ...]`."""
        return by_stream[0] if self._shared else torch.stack(list(by_stream))[self._stream_K]

    def _each(self, verb: str, *tensors: Tensor, shared: bool = True) -> Any:
        """Call the method `verb` of every member. The tensors, noise last, are the same for all members if `shared`,
        else `[K, ...]`."""
        state = (self.parameters, self.buffers)
        if self.size == 1:
            member_state = tree_map(lambda stacked: stacked.squeeze(0), state)
            return tree_map(lambda out: out.unsqueeze(0), functional_call(self._call, member_state, (verb, *tensors)))

        def call_member(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *tensors: Tensor) -> Any:
            return functional_call(self._call, (parameters, buffers), (verb, *tensors))

        in_dims = (0, 0, *[None if shared else 0] * len(tensors))
        return torch.vmap(call_member, in_dims=in_dims, randomness="error")(*state, *tensors)


class _Call(nn.Module):
    """Makes the other methods of a `Method` available to `functional_call`, which calls only `forward`."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, verb: str, *tensors: Tensor) -> Any:
        call = getattr(self.method, verb)
        return call(*tensors[:-1], noise=tensors[-1]) if verb in METHODS_WITH_NOISE else call(*tensors) or {}


def _stacked(tensors: Sequence[Mapping[str, Tensor]], device: torch.device) -> dict[str, Tensor]:
    """Stack the members' tensors of equal name to `[K, ...]`, under the names that they have in `_Call`."""
    return {
        f"method.{name}": torch.stack([member[name].detach() for member in tensors]).to(device) for name in tensors[0]
    }


def _check_alike(own: Mapping[str, Mapping[str, Tensor]], state: object) -> None:
    """Raise CheckpointError unless `state` has the names, shapes and types of `own`: `copy_` broadcasts and casts."""
    if not isinstance(state, dict) or set(state) != set(own):
        raise CheckpointError(f"a stack must have {', '.join(own)}, but its state is another")
    for kind, tensors in own.items():
        saved = state[kind]
        if not isinstance(saved, dict) or set(saved) != set(tensors):
            raise CheckpointError(f"the names of its {kind} must be those of this code, but they differ")
        for name, tensor in tensors.items():
            value = saved[name]
            if not isinstance(value, Tensor) or value.shape != tensor.shape or value.dtype != tensor.dtype:
                raise CheckpointError(
                    f"{kind} {name} must be {tensor.dtype} of shape {[*tensor.shape]}, but is another"
                )
