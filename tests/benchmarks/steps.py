"""Steps of stacks whose inputs lie on the device already: random examples and noise, without data and views.

Shapes: K members, B examples.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_map

from trainables.catalog import method_of, task_of
from trainables.contract import Batch, Noises, Shapes
from trainables.learners.compiled import FindLibrary, Library, Run, StepShape
from trainables.learners.data_parallel import draw_noise
from trainables.learners.stack import Stack
from trainables.sections import TrialConfig
from trainables.training.compilation.build import trace
from trainables.training.compilation.task import StepTask
from trainables.training.stacks import build_models, build_stack

Compile = Callable[[GraphModule, list[Tensor]], Callable[..., Any]]
"""Compiles a traced step, given arguments of the right shapes."""


class Inputs(NamedTuple):
    """What a step takes beside the tensors of its stack."""

    batch: Batch
    noise: dict[str, Tensor]
    after_noise: dict[str, Tensor]

    def in_layout(self, layout: torch.memory_format) -> "Inputs":
        """The same inputs, with images `[B, C, H, W]` in another memory format."""

        def laid_out(tensor: Tensor) -> Tensor:
            return tensor.contiguous(memory_format=layout) if tensor.dim() == 4 else tensor

        return self._replace(batch=tree_map(laid_out, self.batch))


class Workload(NamedTuple):
    """The members of a stack and their inputs, which all of them share."""

    configs: Sequence[TrialConfig]
    shapes: Shapes
    inputs: Inputs
    device: torch.device

    @classmethod
    def of(cls, configs: Sequence[TrialConfig], device: torch.device) -> "Workload":
        """A batch of random examples for members of one shape. Raises ValueError if their task has no such batch."""
        first = configs[0]
        size = first.gradient.batch_size
        made = task_of(first.method).random_batch(first, method_of(first.method), size)
        if made is None:
            raise ValueError(f"{first.method} has no random examples")
        (model,) = build_models([first], made.shapes)

        def draw(noises: Noises, name: str) -> dict[str, Tensor]:
            return draw_noise(noises, name, device=device)

        batch = tree_map(lambda tensor: tensor.to(device), dict(made.batch))
        inputs = Inputs(batch, draw(model.noise(size), "noise"), draw(model.after_step_noise(), "after_step"))
        return cls(configs, made.shapes, inputs, device)

    def first(self, count: int) -> "Workload":
        """The same with fewer members."""
        return self._replace(configs=self.configs[:count])

    def in_layout(self, layout: torch.memory_format) -> "Workload":
        """The same with images in another memory format."""
        return self._replace(inputs=self.inputs.in_layout(layout))

    def member(self, index: int) -> "Workload":
        """The same with this member alone."""
        return self._replace(configs=self.configs[index : index + 1])

    def stack(self, find: Callable[[StepTask], Library] | None = None) -> Stack:
        """One stack of all members; with `find` its steps are compiled, and an error of `find` is raised by the first
        of them."""
        find_library: FindLibrary | None = None
        if find:
            compile_step = find

            def find_library(step: StepShape) -> Library:
                return compile_step(StepTask.of(self.configs[0], self.shapes, step))

        models, streams = build_models(self.configs, self.shapes), [0] * len(self.configs)
        stack = build_stack(models, self.configs, streams, self.device, find_library=find_library)
        if not isinstance(stack, Stack):
            raise ValueError(f"{self.configs[0].method} does not learn by gradients")
        return stack

    def step(self, stack: Stack) -> Tensor:
        """Make a step; return the losses before it, `[K]`."""
        batch, noise, after_noise = self.inputs
        return stack.step([batch], [noise], [after_noise], 1.0).total


class LoadedLibrary(NamedTuple):
    """A compiled step of this process."""

    parts: tuple[str, ...]
    run: Run

    def load(self, device: str) -> Run:
        return self.run


class StepsOfThisProcess:
    """Traces steps as sweeps do, and compiles them in this process. Each is compiled once; an error is kept as well."""

    def __init__(self, compile_graph: Compile) -> None:
        self._compile, self._done = compile_graph, dict[str, Library | Exception]()
        self.seconds = 0.0
        """What all compilations took together."""

    def __call__(self, task: StepTask) -> Library:
        key = task.digest([task.config["method"]])
        if key not in self._done:
            begun = time.perf_counter()
            try:
                self._done[key] = self._library(task)
            except Exception as error:  # whatever a compiler raises
                self._done[key] = error.with_traceback(None)  # which holds tensors
            self.seconds += time.perf_counter() - begun
        done = self._done[key]
        if isinstance(done, Exception):
            raise done
        return done

    def _library(self, task: StepTask) -> Library:
        graph, arguments, names = trace(task)
        compiled = self._compile(graph, arguments)
        return LoadedLibrary(tuple(names), lambda tensors: list(compiled(*tensors)))


def inductor(graph: GraphModule, arguments: list[Tensor]) -> Callable[..., Any]:
    """Compile with PyTorch's default compiler."""
    import torch._inductor

    with torch.no_grad():
        compiled: Callable[..., Any] = torch._inductor.compile(graph, [*arguments])
    return compiled


def uncompiled(graph: GraphModule, arguments: list[Tensor]) -> Callable[..., Any]:
    """The traced step as it is, for tests: it takes no compiler."""
    return graph
