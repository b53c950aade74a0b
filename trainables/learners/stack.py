"""Equal-shaped models as one: stacked weights, vmapped losses, one optimiser step.

Shapes: K members, B images; every parameter and buffer of a stack is `[K, ...]`. `S` streams of data: members with
equal data and seed read one stream, so a batch holds each stream once and `stream_K` says which one a member reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from trainables.contract import CheckpointError, Losses, Method
from trainables.learners.data_parallel import ALONE, Peers
from trainables.learners.optimisers import StackedSGD

NOISY = ("losses", "score")
"""Verbs of a method whose last argument is noise."""


class Stack:
    """K members of one method, trained together; a stack of one runs the plain model, without vmap."""

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
        peers: Peers = ALONE,
    ) -> None:
        """`models`: one initialised model a member, all of one shape. `streams`: which data stream each reads.

        With `peers`, each steps on its part of a batch, and gradients are the mean over all.
        """
        self.size = len(models)
        self.device = torch.device(device)
        self.autocast = autocast
        self._peers = peers
        self.parameters = _stacked([dict(model.named_parameters()) for model in models], self.device)
        self.buffers = _stacked([dict(model.named_buffers()) for model in models], self.device)
        for parameter in self.parameters.values():
            parameter.requires_grad_()
        self.optimiser = StackedSGD(list(self.parameters.values()), lr, weight_decay, momentum)
        self._method = models[0].to(self.device)
        self._call = _Call(self._method)
        self._streams = sorted(set(streams))
        self._shared = len(self._streams) == 1
        self._stream_K = torch.tensor([self._streams.index(stream) for stream in streams], device=self.device)

    @classmethod
    def of(cls, members: Sequence[tuple[Stack, int]], streams: Sequence[int]) -> Stack:
        """Copies of these members, each given by its stack and its place there, in a stack of their own.

        They go on as they would have gone on where they were; `streams` are numbered anew.
        """
        first, _ = members[0]
        made = cls(
            [first._method] * len(members),
            streams=streams,
            lr=[stack.optimiser.lr[place] for stack, place in members],
            weight_decay=[stack.optimiser.weight_decay[place] for stack, place in members],
            momentum=first.optimiser.momentum,
            autocast=first.autocast,
            device=first.device,
            peers=first._peers,
        )
        for place, (stack, before) in enumerate(members):
            made._write(place, stack._read(before))
        return made

    def take(self, place: int) -> dict[str, dict[str, Tensor]]:
        """A copy of what training has made of the member at this place: all but its hyperparameters."""
        own = {f"method.{name}" for name in self._method.fusible}
        return {
            kind: {name: tensor.clone() for name, tensor in tensors.items() if name not in own}
            for kind, tensors in self._read(place).items()
        }

    def give(self, place: int, taken: Mapping[str, Mapping[str, Tensor]], hyperparameters: Mapping[str, float]) -> None:
        """The member at this place becomes what was taken of another, and gets these hyperparameters of its own.

        ValueError where one of them is no rate of the optimiser and not fusible.
        """
        self._write(place, taken)
        rates = {name: list(values) for name, values in self._rates().items()}
        for name, value in hyperparameters.items():
            if name in rates:
                rates[name][place] = value
            elif name in self._method.fusible:
                self.buffers[f"method.{name}"][place] = value
            else:
                able = ", ".join([*rates, *sorted(self._method.fusible)])
                raise ValueError(f"a member changes its {able}, but got {name}={value}")
        self.optimiser.set_rates(**rates)

    def noise_shape(self, batch: int) -> tuple[int, ...]:
        """Shape of the noise that `step` takes for each stream."""
        return self._method.noise_shape(batch)

    def score_noise_shape(self, batch: int) -> tuple[int, ...]:
        """Shape of the noise that `score` takes."""
        return self._method.score_noise_shape(batch)

    def step(self, views: Sequence[Sequence[Tensor]], noise: Sequence[Tensor], schedule: float) -> Losses:
        """One optimiser step. `views[s]` are the views `[B, C, H, W]` of stream s and `noise[s]` its noise.

        Returns the losses before the step, `[K]` each. A member whose loss is not finite spoils only its own slice.
        """
        self._method.train()
        inputs = [self._gather([views[s][v] for s in self._streams]) for v in range(self._method.view_count)]
        drawn = self._gather([noise[s] for s in self._streams])
        with self._precision():
            losses: Losses = self._each("losses", *inputs, drawn, shared=self._shared)
        gradients = torch.autograd.grad(losses.total.sum(), list(self.parameters.values()))
        self._peers.average(gradients)
        self.optimiser.step(gradients, schedule)
        with torch.no_grad():
            self._each("after_step")
        return Losses(losses.total.detach(), {name: part.detach() for name, part in losses.parts.items()})

    @torch.no_grad()
    def score(self, images_BCHW: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Anomaly scores `[K, B]` of images that all members see alike, in evaluation mode."""
        self._method.eval()
        with self._precision():
            scores: dict[str, Tensor] = self._each("score", images_BCHW, noise)
        return scores

    @torch.no_grad()
    def embed(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        """The vectors `[K, B, D]` of images that all members see alike, in evaluation mode."""
        self._method.eval()
        with self._precision():
            vectors: dict[str, Tensor] = self._each("embed", images_BCHW)
        return vectors

    def settle(self) -> None:
        """Make what each process has of its own, the statistics of BatchNorm, the mean over all."""
        self._peers.average([buffer for buffer in self.buffers.values() if buffer.is_floating_point()])

    def state(self) -> dict[str, Any]:
        """Everything that `load_state` needs to go on bit for bit on the CPU."""
        rates = {name: torch.tensor(values, dtype=torch.float64) for name, values in self._rates().items()}
        return {kind: _copied(tensors) for kind, tensors in self._tensors().items()} | {"rates": rates}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Take up what `state` returned in an equal stack. CheckpointError, before any change, where it differs."""
        _check_alike(self.state(), state)
        for kind, tensors in self._tensors().items():
            for name, tensor in tensors.items():
                tensor.copy_(state[kind][name])
        self.optimiser.set_rates(**{name: values.tolist() for name, values in state["rates"].items()})

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        """All that training changes, `[K, ...]`."""
        velocity = dict(zip(self.parameters, self.optimiser.velocity, strict=True))
        return {"parameters": self.parameters, "buffers": self.buffers, "velocity": velocity}

    def _rates(self) -> dict[str, tuple[float, ...]]:
        """What the optimiser is told of each member, by hyperparameter."""
        return {"lr": self.optimiser.lr, "weight_decay": self.optimiser.weight_decay}

    def _read(self, place: int) -> dict[str, dict[str, Tensor]]:
        """One member's slices of the tensors."""
        return {
            kind: {name: tensor.detach()[place] for name, tensor in tensors.items()}
            for kind, tensors in self._tensors().items()
        }

    @torch.no_grad()
    def _write(self, place: int, slices: Mapping[str, Mapping[str, Tensor]]) -> None:
        for kind, tensors in self._tensors().items():
            for name, tensor in slices[kind].items():
                tensors[name][place].copy_(tensor)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None)

    def _gather(self, by_stream: Sequence[Tensor]) -> Tensor:
        """What the members read: the tensor itself where they share one stream, else `[K, ...]`."""
        return by_stream[0] if self._shared else torch.stack(list(by_stream))[self._stream_K]

    def _each(self, verb: str, *tensors: Tensor, shared: bool = True) -> Any:
        """Call `verb` of every member. The tensors (noise last) are the same for all if `shared`, else `[K, ...]`."""
        state = (self.parameters, self.buffers)
        if self.size == 1:
            own = tree_map(lambda stacked: stacked.squeeze(0), state)
            return tree_map(lambda out: out.unsqueeze(0), functional_call(self._call, own, (verb, *tensors)))

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *tensors: Tensor) -> Any:
            return functional_call(self._call, (parameters, buffers), (verb, *tensors))

        each = torch.vmap(one, in_dims=(0, 0, *[None if shared else 0] * len(tensors)), randomness="error")
        return each(*state, *tensors)


class _Call(nn.Module):
    """Lets `functional_call`, which calls `forward` alone, reach the other verbs of a method."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, verb: str, *tensors: Tensor) -> Any:
        call = getattr(self.method, verb)
        return call(*tensors[:-1], noise=tensors[-1]) if verb in NOISY else call(*tensors) or {}


def _stacked(tensors: Sequence[Mapping[str, Tensor]], device: torch.device) -> dict[str, Tensor]:
    """The members' equal-named tensors as `[K, ...]`, under the name that `_Call` knows them by."""
    return {
        f"method.{name}": torch.stack([member[name].detach() for member in tensors]).to(device) for name in tensors[0]
    }


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _check_alike(own: Mapping[str, Mapping[str, Tensor]], state: object) -> None:
    """CheckpointError unless `state` has the names, shapes and types of `own`: `copy_` would broadcast and cast."""
    if not isinstance(state, dict) or set(state) != set(own):
        raise CheckpointError(f"a stack must have {', '.join(own)}, but its state is another")
    for kind, tensors in own.items():
        there = state[kind]
        if not isinstance(there, dict) or set(there) != set(tensors):
            raise CheckpointError(f"the names of its {kind} must be those of this code, but they differ")
        for name, tensor in tensors.items():
            got = there[name]
            if not isinstance(got, Tensor) or got.shape != tensor.shape or got.dtype != tensor.dtype:
                raise CheckpointError(
                    f"{kind} {name} must be {tensor.dtype} of shape {[*tensor.shape]}, but is another"
                )
