"""Train models of equal shape as one, by gradients: stacked weights, vmapped losses, one optimiser step.

Shapes: K members; every parameter and buffer of a stack is `[K, ...]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from trainables.contract import Batch, Losses, Method
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.learners.members import StackedMembers, Tensors
from trainables.learners.optimisers import StackedOptimiser

MakeOptimiser = Callable[[Sequence[Tensor], Sequence[float], Sequence[float]], StackedOptimiser]
"""Makes the optimiser of stacked parameters from each member's learning rate and weight decay."""


class Stack(StackedMembers):
    """K members of one method, trained together by gradients. With several `peers` each process steps on its part of a
    batch, and gradients are averaged over them."""

    def __init__(
        self,
        models: Sequence[Method],
        *,
        streams: Sequence[int],
        lr: Sequence[float],
        weight_decay: Sequence[float],
        make_optimiser: MakeOptimiser,
        autocast: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        peers: Peers = SINGLE_PROCESS,
    ) -> None:
        """`models`: one initialised model per member, all of one shape. `streams`: the index of each member's data
        stream."""
        super().__init__(models, streams, device, peers, autocast)
        for parameter in self.parameters.values():
            parameter.requires_grad_()
        self._make_optimiser = make_optimiser
        self.optimiser = make_optimiser(list(self.parameters.values()), lr, weight_decay)

    @classmethod
    def from_members(cls, members: Sequence[tuple[Stack, int]], streams: Sequence[int]) -> Stack:
        first, _ = members[0]
        merged = cls(
            [first.method] * len(members),
            streams=streams,
            lr=[stack.optimiser.lr[slot] for stack, slot in members],
            weight_decay=[stack.optimiser.weight_decay[slot] for stack, slot in members],
            make_optimiser=first._make_optimiser,
            autocast=first.autocast,
            device=first.device,
            peers=first._peers,
        )
        for new_slot, (stack, slot) in enumerate(members):
            merged._write(new_slot, stack._read(slot))
        return merged

    def step(
        self,
        batches: Sequence[Batch],
        noise: Sequence[Mapping[str, Tensor]],
        after_noise: Sequence[Mapping[str, Tensor]],
        schedule: float,
    ) -> Losses:
        self.method.train()
        inputs, gathered_noise = self._gather(batches), self._gather(noise)
        with self._precision():
            losses: Losses = self._each("losses", inputs, gathered_noise, shared=self._shared)
        gradients = torch.autograd.grad(losses.total.sum(), list(self.parameters.values()))
        self._peers.average(gradients)
        self.optimiser.step(gradients, schedule)
        with torch.no_grad():
            self._each("after_step", self._gather(after_noise), shared=self._shared)
        return Losses(losses.total.detach(), {name: part.detach() for name, part in losses.parts.items()})

    def _tensors(self) -> Tensors:
        moments = {
            kind: dict(zip(self.parameters, tensors, strict=True)) for kind, tensors in self.optimiser.moments().items()
        }
        return {**super()._tensors(), **moments}

    def _rates(self) -> dict[str, tuple[float, ...]]:
        return {"lr": self.optimiser.lr, "weight_decay": self.optimiser.weight_decay}

    def _set_rates(self, rates: Mapping[str, Sequence[float]]) -> None:
        self.optimiser.set_rates(**rates)
