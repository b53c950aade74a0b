"""A compiled step: the shapes of its arguments, its library on disk, and its calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

Part = Literal["step", "gradients", "update"]
"""The unit that is compiled: the whole step or, if gradients are averaged over peers, the part before or after this."""


@dataclass(frozen=True)
class Layout:
    """The memory layout of a tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def matches(self, tensor: Tensor) -> bool:
        """Whether a tensor has this layout."""
        return tensor.shape == self.shape and tensor.stride() == self.strides and tensor.dtype == self.dtype

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The layout from which `plain` made these values."""
        return cls(tuple(plain["shape"]), tuple(plain["strides"]), getattr(torch, plain["dtype"]))

    def plain(self) -> dict[str, Any]:
        """The layout as values that JSON can represent."""
        return {"shape": self.shape, "strides": self.strides, "dtype": str(self.dtype).removeprefix("torch.")}

    def zeros(self, device: torch.device | str) -> Tensor:
        """A tensor of zeros with this layout."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device).zero_()


@dataclass(frozen=True)
class StepShape:
    """The properties that distinguish compiled steps of one configuration."""

    part: Part
    size: int
    """Members of the stack."""
    shared: bool
    """Whether all members see the same batch and noise; otherwise both are `[K, ...]`."""
    inputs: Any
    """Layouts of the inputs (a batch, noise), nested like the inputs."""
    device: str
    threads: int
    """CPU threads of the process."""
    clips: bool = False
    """Whether gradients are clipped."""

    @classmethod
    def of(cls, part: Part, size: int, shared: bool, inputs: Any, device: torch.device, clips: bool = False) -> Self:
        """The shape of a step with these inputs in this process."""
        return cls(part, size, shared, tree_map(Layout.of, inputs), device.type, torch.get_num_threads(), clips)

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The shape from which `plain` made these values."""
        return cls(**{**plain, "inputs": _from_plain(plain["inputs"])})

    def plain(self) -> dict[str, Any]:
        """The shape as values that JSON can represent."""
        return {**vars(self), "inputs": _to_plain(self.inputs)}

    def layouts(self) -> list[Layout]:
        """The layouts of the inputs, in the order of their leaves."""
        return tree_leaves(self.inputs)


def _to_plain(nested: Any) -> Any:
    """Layouts in tuples, lists and mappings as values that JSON can represent."""
    if isinstance(nested, Layout):
        return {"layout": nested.plain()}
    if isinstance(nested, Mapping):
        return {"mapping": {key: _to_plain(value) for key, value in nested.items()}}
    return {type(nested).__name__: [_to_plain(value) for value in nested]}


def _from_plain(plain: Mapping[str, Any]) -> Any:
    """The inverse of `_to_plain`."""
    ((kind, value),) = plain.items()
    if kind == "layout":
        return Layout.of_plain(value)
    if kind == "mapping":
        return {key: _from_plain(part) for key, part in value.items()}
    return {"tuple": tuple, "list": list}[kind](_from_plain(part) for part in value)


Run = Callable[[list[Tensor]], list[Tensor]]
"""Runs a step on all its arguments, changing some of them in place, and returns its outputs."""


class Library(Protocol):
    """A compiled step."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts of the loss, in the order in which the step returns them."""
        ...

    def load(self, device: str) -> Run: ...


@dataclass(frozen=True)
class SharedLibrary:
    """A shared library with one compiled step."""

    path: Path
    parts: tuple[str, ...]
    """Names of the parts of the loss, in the order in which the step returns them."""

    def load(self, device: str) -> Run:
        if device == "cpu":
            run: Run = torch._C._aoti.AOTIModelContainerRunnerCpu(str(self.path), 1).run
        else:
            run = torch._C._aoti.AOTIModelContainerRunnerCuda(str(self.path), 1, device).run
        return run


FindLibrary = Callable[[StepShape], Library | None]
"""Finds or makes the library of a step; None if the step cannot be compiled."""


class CompiledStep:
    """Calls a compiled step on the tensors of one stack, which it changes in place."""

    def __init__(self, library: Library, state: Sequence[Tensor], shape: StepShape) -> None:
        """`state`: the tensors that come before the inputs, in the order of the trace."""
        self._run = library.load(shape.device)
        self._state = [tensor.detach() for tensor in state]
        self._layouts = shape.layouts()
        self.parts = library.parts

    def __call__(self, *inputs: Any) -> list[Tensor]:
        """Call the step with inputs of the compiled nesting and shapes. A different memory order is corrected."""
        leaves = tree_leaves(inputs)
        tensors = [_laid_out(tensor, layout) for tensor, layout in zip(leaves, self._layouts, strict=True)]
        return self._run(self._state + tensors)


def _laid_out(tensor: Tensor, layout: Layout) -> Tensor:
    if layout.matches(tensor):
        return tensor
    if tensor.shape != layout.shape or tensor.dtype != layout.dtype:
        raise ValueError(
            f"a compiled step takes {layout.dtype} of shape {[*layout.shape]}, but got {tensor.dtype} of shape "
            f"{[*tensor.shape]}"
        )
    return layout.zeros(tensor.device).copy_(tensor)
