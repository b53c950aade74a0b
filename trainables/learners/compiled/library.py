"""A compiled step on disk, and its calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from trainables.learners.compiled.layout import Layout, StepShape

Run = Callable[[list[Tensor]], list[Tensor]]
"""Runs a step on all its arguments, some of which it changes in place, and returns its outputs."""


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
"""Finds or makes the library of a step; None where the step cannot be compiled."""


class CompiledStep:
    """The calls of a compiled step on the tensors of one stack, which it changes in place."""

    def __init__(self, library: Library, state: Sequence[Tensor], shape: StepShape) -> None:
        """`state`: the tensors that come before the inputs, in the order of the trace."""
        self._run = library.load(shape.device)
        self._state = [tensor.detach() for tensor in state]
        self._layouts = shape.layouts()
        self.parts = library.parts

    def __call__(self, *inputs: Any) -> list[Tensor]:
        """Call it with inputs of the nesting and shapes for which it was compiled. Another memory order is mended."""
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
