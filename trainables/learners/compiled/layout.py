"""Shapes of a step's arguments: what a compiled step is compiled for."""

from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

Part = Literal["step", "gradients", "update"]
"""What is compiled as one: the whole step, or, where gradients are averaged over peers, what comes before and after."""


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def matches(self, tensor: Tensor) -> bool:
        """Whether a tensor has this layout."""
        return tensor.shape == self.shape and tensor.stride() == self.strides and tensor.dtype == self.dtype

    def zeros(self, device: torch.device | str) -> Tensor:
        """A tensor of this layout, of zeros."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device).zero_()


@dataclass(frozen=True)
class StepShape:
    """What tells compiled steps of one configuration apart."""

    part: Part
    size: int
    """Members of the stack."""
    shared: bool
    """Whether all members see the same batch and noise; else these are `[K, ...]`."""
    inputs: Any
    """Layouts of the inputs (a batch, noise), nested as these are."""
    device: str
    threads: int
    """CPU threads of the process."""

    @classmethod
    def of(cls, part: Part, size: int, shared: bool, inputs: Any, device: torch.device) -> Self:
        """The shape of a step with these inputs in this process."""
        return cls(part, size, shared, tree_map(Layout.of, inputs), device.type, torch.get_num_threads())

    def layouts(self) -> list[Layout]:
        """The layouts of the inputs, in the order of their leaves."""
        return tree_leaves(self.inputs)
