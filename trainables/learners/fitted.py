"""Members that are fitted without gradients, such as mixtures by EM: plain models, one after the other.

Shapes: K members; every buffer is `[K, ...]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils._pytree import tree_map

from trainables.contract import Batch, Losses, Method
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.learners.members import StackedMembers


class FittedMembers(StackedMembers):
    """K members of a method with `fit`. All that fitting changes is buffers of fixed shapes. Members are called in
    turn, so `fit` may run any code."""

    def __init__(
        self,
        models: Sequence[Method],
        *,
        streams: Sequence[int],
        device: torch.device | str = "cpu",
        peers: Peers = SINGLE_PROCESS,
    ) -> None:
        """`models`: one initialised model per member, all of one shape. `streams`: the index of each member's data
        stream."""
        super().__init__(models, streams, device, peers)

    @classmethod
    def from_members(cls, members: Sequence[tuple[FittedMembers, int]], streams: Sequence[int]) -> FittedMembers:
        first, _ = members[0]
        merged = cls([first.method] * len(members), streams=streams, device=first.device, peers=first._peers)
        for new_slot, (stack, slot) in enumerate(members):
            merged._write(new_slot, stack._read(slot))
        return merged

    @torch.no_grad()
    def step(
        self,
        batches: Sequence[Batch],
        noise: Sequence[Mapping[str, Tensor]],
        after_noise: Sequence[Mapping[str, Tensor]],
        schedule: float,
    ) -> Losses:
        self.method.train()
        return self._each("fit", self._gather(batches), self._gather(noise), shared=self._shared)

    def _each(self, verb: str, *inputs: Any, shared: bool = True) -> Any:
        outputs = []
        for slot in range(self.size):
            state = tree_map(lambda stacked, slot=slot: stacked[slot], (self.parameters, self.buffers))
            own = inputs if shared else tree_map(lambda stacked, slot=slot: stacked[slot], inputs)
            outputs.append(functional_call(self._call, state, (verb, *own)))
        return tree_map(lambda *members: torch.stack(members), *outputs)
