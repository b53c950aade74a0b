"""Ways to make one step of K members on a device: in turn or stacked, eager, compiled, or as CUDA graphs.

Graphs read inputs that stay where they are; to copy each batch there would come on top.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tests.benchmarks.steps import Workload
from trainables.learners.compiled import CompiledStep, Library, StepShape
from trainables.learners.stack import Stack
from trainables.training.compilation.task import StepTask

WARM_UP = 3
"""Steps before a capture: libraries choose and load their kernels in them."""
Find = Callable[[StepTask], Library]
Step = Callable[[], Tensor]
"""Makes a step of all members; returns the losses before it, `[K]`."""


class Running(NamedTuple):
    """Members on their way."""

    step: Step
    made: int = 0
    """Steps that they have made."""


class Tools(NamedTuple):
    """What forms are built with."""

    find: Find
    """Finds or makes compiled steps."""
    streams: int
    """CUDA streams at most."""


@dataclass(frozen=True)
class Form:
    """A way to make a step."""

    build: Callable[[Workload, Tools], Running]
    stacked: Literal["", "NCHW", "NHWC"] = ""
    """Layout of the images for a stack; empty where members step one after the other, in a layout of choice."""
    compiled: bool = False
    graph: bool = False
    """Whether it needs CUDA graphs."""


def eager(work: Workload, tools: Tools) -> Running:
    """Members in turn."""
    return _in_turn([work.member(index).stack() for index in range(len(work.configs))], work)


def compiled(work: Workload, tools: Tools) -> Running:
    """Members in turn, each by a compiled step, as a cohort calls it."""
    return _in_turn([work.member(index).stack(tools.find) for index in range(len(work.configs))], work)


def stacked(work: Workload, tools: Tools) -> Running:
    """One stack, eager."""
    return _in_turn([work.stack()], work)


def stacked_channels_last(work: Workload, tools: Tools) -> Running:
    """One stack, eager. vmap cannot pass such images to cuDNN's BatchNorm, so PyTorch's own kernel is used."""
    stack, batch_norm = work.stack(), nn.functional.batch_norm

    def without_cudnn(*arguments: Any, **options: Any) -> Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            return batch_norm(*arguments, **options)

    def step() -> Tensor:
        with mock.patch.object(nn.functional, "batch_norm", without_cudnn):
            return work.step(stack)

    return Running(step)


def graph(work: Workload, tools: Tools) -> Running:
    """Members in turn, each by a CUDA graph of its compiled step, on one stream."""
    return _replayed(work, tools, streams=1)


def graph_on_streams(work: Workload, tools: Tools) -> Running:
    """As `graph`, with members on several streams."""
    return _replayed(work, tools, streams=min(tools.streams, len(work.configs)))


def stacked_graph(work: Workload, tools: Tools) -> Running:
    """A CUDA graph of an eager step of one stack."""
    stack = work.stack()
    captured, losses = _capture(lambda: work.step(stack), torch.cuda.Stream(work.device))

    def step() -> Tensor:
        captured.replay()
        return losses

    return Running(step, WARM_UP)


FORMS = {
    "eager": Form(eager),
    "compiled": Form(compiled, compiled=True),
    "graph": Form(graph, compiled=True, graph=True),
    "graph + streams": Form(graph_on_streams, compiled=True, graph=True),
    "stacked NCHW": Form(stacked, stacked="NCHW"),
    "stacked NHWC": Form(stacked_channels_last, stacked="NHWC"),
    "stacked graph": Form(stacked_graph, stacked="NCHW", graph=True),
}
"""Name -> form. The last one shows how much of the time of `stacked NCHW` goes into launches."""


def _in_turn(stacks: Sequence[Stack], work: Workload) -> Running:
    return Running(lambda: torch.cat([work.step(stack) for stack in stacks]))


def _replayed(work: Workload, tools: Tools, streams: int) -> Running:
    stacks = [work.member(index).stack() for index in range(len(work.configs))]
    used = [torch.cuda.Stream(work.device) for _ in range(streams)]
    # Each is captured on the stream that it is replayed on: graphs that run at a time must not share a workspace.
    captures = [
        (*_capture(_compiled_step(stack, work, tools), used[index % streams]), used[index % streams])
        for index, stack in enumerate(stacks)
    ]

    def step() -> Tensor:
        current = torch.cuda.current_stream(work.device)
        for stream in used:
            stream.wait_stream(current)
        for captured, _, stream in captures:
            with torch.cuda.stream(stream):
                captured.replay()
        for stream in used:
            current.wait_stream(stream)
        return torch.cat([losses for _, losses, _ in captures])

    return Running(step, WARM_UP)


def _compiled_step(stack: Stack, work: Workload, tools: Tools) -> Step:
    """The compiled step of a stack of one, without the copy of the learning rate's share to the device."""
    rate = torch.ones((), dtype=torch.float64, device=work.device)
    inputs = (*work.inputs, rate)
    shape = StepShape.of("step", stack.size, True, inputs, work.device)
    library = tools.find(StepTask.of(work.configs[0], work.shapes, shape))
    run = CompiledStep(library, tree_leaves(stack.step_tensors()), shape)
    return lambda: run(*inputs)[0]


def _capture(step: Step, stream: torch.cuda.Stream) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Record a step; return its graph and the losses that each replay writes."""
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.synchronize(stream.device)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=stream):
        losses = step()
    return captured, losses
