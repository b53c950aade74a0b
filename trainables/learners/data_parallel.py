"""The processes that train one trial together, each on its part of every batch. Most trials have a single process.

Shapes: B examples of a batch, K members.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Peers:
    """This process and its peers. Several processes are connected by torch.distributed's default group."""

    rank: int = 0
    size: int = 1

    def slice_of(self, count: int) -> slice:
        """The slice of `count` items that belongs to this process. The parts differ in size by at most one."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all processes, in place, with a single all-reduce."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.size
        for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.detach().copy_(mean.view_as(tensor))

    def maximum(self, value: int) -> int:
        """Return the largest `value` of all processes. Each process waits here for the others."""
        if self.size == 1:
            return value
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        largest = torch.tensor(value, device=device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def gather(self, part_KB: Tensor, count: int) -> Tensor:
        """Concatenate the parts of all processes along dimension 1: `count` items, in the order of ranks."""
        if self.size == 1:
            return part_KB
        longest = -(-count // self.size)
        padded = part_KB.new_zeros(part_KB.shape[0], longest, *part_KB.shape[2:])
        padded[:, : part_KB.shape[1]] = part_KB
        gathered = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(gathered, padded)
        lengths = [len(range(count)[Peers(rank, self.size).slice_of(count)]) for rank in range(self.size)]
        return torch.cat([part[:, :length] for part, length in zip(gathered, lengths, strict=True)], dim=1)


SINGLE_PROCESS = Peers()
"""A single process without peers."""
