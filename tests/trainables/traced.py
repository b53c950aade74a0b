"""Steps that are traced as they are to be compiled, but then run operation by operation: what a compiler would get."""

import itertools
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from trainables.learners.compiled import Run
from trainables.training.compile_step import StepTask, trace
from trainables.training.compiled_steps import LibraryFolder, StepCompiler

_numbers = itertools.count()


class GraphLibrary:
    """The graph of a step."""

    def __init__(self, task: StepTask) -> None:
        self._graph, _, names = trace(task)
        self.parts = tuple(names)
        self.calls = 0

    def load(self, device: str) -> Run:
        @torch.no_grad()
        def run(tensors: list[Tensor]) -> list[Tensor]:
            self.calls += 1
            return list(self._graph(*tensors))

        return run


class TracingCompiler(StepCompiler):
    """Traces steps in this process."""

    def __init__(self) -> None:
        super().__init__(folder=LibraryFolder(Path(f"none-{next(_numbers)}")))
        self.traced: list[tuple[StepTask, GraphLibrary]] = []

    def _library(self, task: StepTask, wait: Callable[[], None]) -> GraphLibrary:
        self.traced.append((task, GraphLibrary(task)))
        return self.traced[-1][1]
