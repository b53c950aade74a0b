"""Processes that train one trial together: their parts of every batch, averages, and noise. Most trials have a single
process.

Random numbers derive from a trial's content, never from the state of a running generator. A member therefore draws the
same numbers alone, fused or resumed, on any device, and with any number of processes.

Shapes: B examples of a batch, K members.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from trainables.contract import Noises


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
        """Return the largest `value` of all processes. Blocks until all processes have called it."""
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


def seeded_generator(*key: object) -> torch.Generator:
    """A CPU generator whose seed is a hash of `key`."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def numpy_seed(*key: object) -> int:
    """A seed for NumPy and scikit-learn, in [0, 2**32): a hash of `key`."""
    return seeded_generator(*key).initial_seed() % 2**32


def draw_noise(
    noises: Noises, *key: object, device: torch.device | str = "cpu", peers: Peers = SINGLE_PROCESS
) -> dict[str, Tensor]:
    """Draw the noise declared by `noises`, in this order, from a generator seeded by `key`. Draws for the whole batch
    and returns this process's part."""
    if not noises:
        return {}
    generator = seeded_generator(*key)
    drawn: Mapping[str, Tensor] = {
        name: (torch.randn if noise.kind == "normal" else torch.rand)(noise.shape, generator=generator)
        for name, noise in noises.items()
    }
    parts = {}
    for name, values in drawn.items():
        batch_dim = noises[name].batch_dim
        if batch_dim is not None:
            part = peers.slice_of(values.shape[batch_dim])
            values = values.narrow(batch_dim, part.start, part.stop - part.start)
        parts[name] = values.to(device)
    return parts
