"""What is measured of a form with K members: time, memory and losses; and what a device can do at most."""

import gc
import statistics
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks.gpu_forms import Form, Running, Step, Tools
from tests.benchmarks.loops import now
from tests.benchmarks.steps import Workload
from trainables.training.profiling import peak_bytes

CHECKED = 5
"""The step whose losses are compared with those of the eager step."""
REPEATS = 5


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
