"""The processes that train one trial together, each on its part of every batch; usually there is but one.

Shapes: B images of a batch, K members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Peers:
    """This process among its equals. With more than one, torch.distributed's default group connects them."""

    rank: int = 0
    size: int = 1

    def part(self, count: int) -> slice:
        """Which of `count` things are this process's; parts differ by one at most."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Each tensor becomes its mean over all processes, in place; all travel as one."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.size
        for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.detach().copy_(mean.view_as(tensor))

    def agree(self, wish: int) -> int:
        """The largest wish of all processes; each waits here for the others."""
        if self.size == 1:
            return wish
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        agreed = torch.tensor(wish, device=device)
        dist.all_reduce(agreed, dist.ReduceOp.MAX)
        return int(agreed)

    def gather(self, part_KB: Tensor, count: int) -> Tensor:
        """The parts of all processes along dimension 1, `count` things in all, in the order of `part`."""
        if self.size == 1:
            return part_KB
        longest = -(-count // self.size)
        padded = part_KB.new_zeros(part_KB.shape[0], longest, *part_KB.shape[2:])
        padded[:, : part_KB.shape[1]] = part_KB
        everyone = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(everyone, padded)
        lengths = [len(range(count)[Peers(rank, self.size).part(count)]) for rank in range(self.size)]
        return torch.cat([one[:, :length] for one, length in zip(everyone, lengths, strict=True)], dim=1)


ALONE = Peers()
