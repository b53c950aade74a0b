"""Milliseconds a model-step, share of the measured matmul peak and memory, for each way to step K members on a GPU.

python -m tests.benchmarks.bench_gpu [--device cpu] [--networks mlp,convnet] [--members 1,2] [--forms eager,graph]

VJE at its presets, on random images that lie on the device; `bench_views` measures views. A form that fails is a line
with the reason, and so is what does not fit into `--minutes`. Counted are the FLOP of one model's step, also in stacks,
by torch.utils.flop_counter. It needs neither Ray nor data.

Forms are steps in turn or stacked, eager, compiled, or as CUDA graphs. Graphs read inputs that stay where they are; to
copy each batch there would come on top.
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from search_spaces._protocols import ONE_CLASS, ONE_CLASS_DIGITS, VJE_DIGITS
from tests.benchmarks.loops import StepsOfThisProcess, Workload, inductor, now
from trainables.config import resolve
from trainables.learners.compiled import CompiledStep, Library, StepShape
from trainables.learners.stack import Stack
from trainables.sections import Value
from trainables.training.compile_step import StepTask
from trainables.training.compiled_steps import LibraryFolder
from trainables.training.profiling import peak_bytes

NETWORKS = {"mlp": ONE_CLASS_DIGITS, "convnet": VJE_DIGITS, "resnet18": ONE_CLASS}
"""Encoder -> a preset with it: 8x8 pixels and batches of 48 and 60, and 3x32x32 with batches of 64."""
LAYOUTS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
COMPILING = 60.0
"""Seconds that a compilation is assumed to take."""
HEADER = "network   form             K   ms/model-step   of peak       MiB   of eager   loss differs by"
Find = Callable[[StepTask], Library]
Step = Callable[[], Tensor]
"""Makes a step of all members; returns the losses before it, `[K]`."""
WARM_UP = 3
"""Steps before a capture: libraries choose and load their kernels in them."""
CHECKED = 5
"""The step whose losses are compared with those of the eager step."""
REPEATS = 5


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


class Cell(NamedTuple):
    """What was measured of a form with K members."""

    milliseconds: float
    """A model-step."""
    bytes: int
    losses_K: Tensor
    """At step CHECKED."""


def measure(form: Form, work: Workload, tools: Tools, seconds: float) -> Cell:
    """Measure a form with all members of `work`, for `seconds` after it is built."""
    device = work.device
    before = _memory(device, reset=True)
    running = form.build(work, tools)
    losses_K = _checked(running)
    step_seconds = _seconds(running.step, device, seconds)
    used = _memory(device) - before
    return Cell(1e3 * step_seconds / len(work.configs), used, losses_K)


def matmul_peak(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """FLOP a second of a large square matmul of random numbers."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / _seconds(lambda: left @ right, device, 1.0)


def flop_of_step(work: Workload) -> int:
    """FLOP of the eager step of one model."""
    stack = work.stack()
    with FlopCounterMode(display=False) as counter:
        work.step(stack)
    return counter.get_total_flops()


def _checked(running: Running) -> Tensor:
    """The losses at step CHECKED, on the CPU."""
    for _ in range(CHECKED - running.made):
        losses_K = running.step()
    return losses_K.detach().float().cpu()


def _seconds(step: Step, device: torch.device, seconds: float) -> float:
    """Seconds of a step, the median of REPEATS measurements that take `seconds` together."""

    def timed(steps: int) -> float:
        begun = now(device)
        for _ in range(steps):
            step()
        return (now(device) - begun) / steps

    timed(1)
    steps = max(1, int(seconds / REPEATS / max(timed(1), 1e-6)))
    return statistics.median(timed(steps) for _ in range(REPEATS))


def _memory(device: torch.device, reset: bool = False) -> int:
    """Bytes that the process occupies at its peak: of a GPU those reserved, which graphs keep."""
    if reset:
        gc.collect()
    peak = peak_bytes(device, reset=reset)
    if device.type != "cuda":
        return peak
    return torch.cuda.memory_reserved(device) if reset else torch.cuda.max_memory_reserved(device)


@dataclass
class Clock:
    """The time that a run may take."""

    seconds: float
    begun: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begun)


class Settings(NamedTuple):
    """What all cells of a run have in common."""

    device: torch.device
    layout: str
    """Of the images of members in turn."""
    peak: float
    """FLOP a second of a large matmul."""
    seconds: float
    """Of each measurement."""
    clock: Clock
    tools: Tools


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="default %(default)s")
    parser.add_argument("--forms", default=",".join(FORMS), help="default %(default)s")
    parser.add_argument("--members", default="1,2,4,8", help="default %(default)s")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), help="default bfloat16, on a CPU float32")
    parser.add_argument("--layout", choices=LAYOUTS, help="of members in turn; default NHWC, on a CPU and for mlp NCHW")
    parser.add_argument("--batch", type=int, help="images of a batch, else those of the presets")
    parser.add_argument("--streams", type=int, default=4, help="CUDA streams, default 4")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement, default 0.5")
    parser.add_argument("--minutes", type=float, default=7.0, help="of the whole run, default 7")
    parser.add_argument("--ahead", action="store_true", help="compile ahead of time, in a process, as sweeps do")
    arguments = parser.parse_args()
    clock, device = Clock(60 * arguments.minutes), torch.device(arguments.device)
    cuda = device.type == "cuda"
    if cuda and not torch.cuda.is_available():
        parser.error("there is no GPU; --device cpu measures the forms that a CPU has")
    precision = arguments.precision or ("bfloat16" if cuda else "float32")
    layout = arguments.layout or ("NHWC" if cuda else "NCHW")
    members = [int(count) for count in arguments.members.split(",")]
    peak = matmul_peak(device, getattr(torch, precision), 8192 if cuda else 1024)
    name = torch.cuda.get_device_name(device) if cuda else f"cpu, {torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}, {precision}, members in turn in {layout}")
    print(f"peak: {peak / 1e12:.4g} TFLOP/s in a matmul of {precision}\n\n{HEADER}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        here = StepsOfThisProcess(inductor)
        find = LibraryFolder(Path(folder) / "steps").find_or_compile if arguments.ahead else here
        tools = Tools(find, arguments.streams)
        settings = Settings(device, layout, peak, arguments.seconds, clock, tools)
        changes: dict[str, Value] = {"batch_size": arguments.batch} if arguments.batch else {}
        for network in arguments.networks.split(","):
            work = workload(network, max(members), device, {"precision": precision, **changes})
            compare(network, work, arguments.forms.split(","), members, settings)
    print(f"\n{time.monotonic() - clock.begun:.0f} s, of which compiling in this process took {here.seconds:.0f}")


def workload(network: str, count: int, device: torch.device, changes: dict[str, Value]) -> Workload:
    """Members of a preset that differ in beta."""
    fixed = {**NETWORKS[network], **changes}
    return Workload.of([resolve({**fixed, "beta": 0.25 * (1 + index)}) for index in range(count)], device)


def compare(network: str, work: Workload, forms: Sequence[str], members: Sequence[int], settings: Settings) -> None:
    """Print the lines of a network: a form with K members each."""
    eager: dict[int, Cell] = {}
    flop = flop_of_step(work.member(0))
    for name in forms:
        form = FORMS[name]
        if reason := _unsuited(network, form, settings.device):
            print(f"{network:9} {name:16} -   skipped: {reason}", flush=True)
            continue
        laid_out = work.in_layout(LAYOUTS[form.stacked or ("NCHW" if network == "mlp" else settings.layout)])
        milliseconds = eager[min(eager)].milliseconds if eager else 0.0
        for count in members:
            start = f"{network:9} {name:16} {count}"
            if reason := _no_time(form, milliseconds * count / 1e3, not milliseconds or count == members[0], settings):
                print(f"{start}   skipped: {reason}", flush=True)
                break
            try:
                cell = measure(form, laid_out.first(count), settings.tools, settings.seconds)
            except Exception as error:  # what a form that never ran may raise
                print(f"{start}   failed, and not tried with more: {_reason(error)}", flush=True)
                break
            milliseconds = cell.milliseconds
            if name == "eager":
                eager[count] = cell
            print(f"{start}   {_line(cell, flop / settings.peak, eager.get(count))}", flush=True)


def _unsuited(network: str, form: Form, device: torch.device) -> str:
    """Why a form makes no sense; empty if it does."""
    if form.graph and device.type != "cuda":
        return f"there are no CUDA graphs on a {device.type.upper()}"
    return "mlp flattens its images" if network == "mlp" and form.stacked == "NHWC" else ""


def _no_time(form: Form, step_seconds: float, first: bool, settings: Settings) -> str:
    """Why there is no time for a cell; empty if there is."""
    compiling = COMPILING if form.compiled and first else 0.0
    needed = compiling + settings.seconds + (CHECKED + REPEATS + 2) * step_seconds
    left = settings.clock.left()
    return "" if left >= needed else f"it needs {needed:.0f} s, but {max(0.0, left):.0f} s are left"


def _line(cell: Cell, least: float, eager: Cell | None) -> str:
    """The numbers of a cell. `least`: seconds of a model-step at the peak."""
    line = f"{cell.milliseconds:13.4f} {least / cell.milliseconds * 1e3:9.2%} {cell.bytes / 2**20:9.0f}"
    if eager is None:
        return line
    differs = ((cell.losses_K - eager.losses_K) / eager.losses_K).abs().max().item()
    return f"{line} {cell.milliseconds / eager.milliseconds:10.3f}   {differs:.0e}"


def _reason(error: Exception) -> str:
    """What went wrong, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = f"{type(error).__name__}: {lines[0] if lines else 'no reason was given'}"[:200]
    first = error.__context__  # a capture that fails raises an error of its own at its end
    return f"{reason}; after {_reason(first)}" if isinstance(first, Exception) else reason


if __name__ == "__main__":
    main()
