"""How fast and how large a cohort is at several stack widths, from a few real steps on the device it will use."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainables.config.trial import TrialConfig
from trainables.profiling.process_memory import of_process
from trainables.training.cohort import Cohort


@dataclass(frozen=True)
class Measurement:
    width: int
    """Members stacked."""
    seconds: float
    """Of one step of one member: a step of the stack over its width; the least of several."""
    bytes: int
    """Peak memory of the stack beyond what the process had before; on a CPU the growth of its resident memory."""
    held: int
    """Bytes that each member keeps for itself between its steps: weights, buffers, the optimiser's averages."""


@dataclass(frozen=True)
class Room:
    """A whole device while nobody else uses it."""

    device: str
    """Its name and its memory: what is measured on one holds for others that are called so."""
    bytes: int
    """Of a GPU all of it, else what the machine has free."""
    overhead: int
    """Bytes that a process like this one takes beside what its cohort does: a GPU's context, else all it has now."""


def measure(
    configs: Sequence[TrialConfig], data: Path, device: torch.device | str, seconds: float = 3.0
) -> list[Measurement]:
    """Widths 1, 2, 4, ... up to all of `configs` (and that), until the time is spent or a step runs out of memory.

    A width is tried only while the time for it is foreseeably there; width 1 always is. Nothing is found of configs
    that do not train, or that several processes train together.
    """
    if configs[0].training.epochs == 0 or configs[0].training.workers > 1:
        return []
    device = torch.device(device)
    measured: list[Measurement] = []
    begun = time.perf_counter()
    for width in _widths(len(configs)):
        if measured and time.perf_counter() - begun + 6 * measured[-1].seconds * width > seconds:
            break
        try:
            measured.append(_measure(configs[:width], data, device, measured[0].held if measured else None))
        except torch.OutOfMemoryError:
            break
    return measured


def _widths(limit: int) -> list[int]:
    return [*(2**power for power in range(limit.bit_length()) if 2**power < limit), limit]


def room(device: torch.device | str) -> Room:
    """What processes that share the device may use together. Only after a measurement does a process have its all."""
    device = torch.device(device)
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        name = f"{torch.cuda.get_device_name(device)}, {total >> 30} GiB"
        return Room(name, total, max(0, total - free - torch.cuda.memory_reserved(device)))
    import psutil  # here: a bare GPU box may lack it

    memory = psutil.virtual_memory()
    name = f"{_processor()}, {os.cpu_count()} cores, {memory.total >> 30} GiB"
    return Room(name, memory.available, psutil.Process().memory_info().rss)


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _measure(configs: Sequence[TrialConfig], data: Path, device: torch.device, held: int | None) -> Measurement:
    """`held` if it is known: to count it is to copy the whole state."""
    before = peak_bytes(device, reset=True)
    cohort = Cohort(configs, data, device, width=None)
    orders = cohort.orders(0)
    times = []
    for _ in range(4):
        begun = time.perf_counter()
        cohort.step(0, 0, orders, rate=0.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begun)
    width, most = len(configs), peak_bytes(device)
    held = _bytes(cohort.state()) // width if held is None else held
    return Measurement(width, min(times[1:]) / width, max(0, most - before), held)


def _bytes(state: Any) -> int:
    """Of all tensors in lists and mappings of them."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    return sum(map(_bytes, state.values() if isinstance(state, Mapping) else state))


def peak_bytes(device: torch.device, reset: bool = False) -> int:
    """The most bytes that were in use since the last reset, which returns those in use then.

    On a CPU of a process's resident memory; where that cannot be reset (anywhere but on Linux), ever.
    """
    if device.type != "cuda":
        if reset:
            gc.collect()
            with contextlib.suppress(OSError, AttributeError):  # another C library, another system
                ctypes.CDLL(None).malloc_trim(0)
                Path("/proc/self/clear_refs").write_text("5")
        return _resident()
    if reset:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    return torch.cuda.max_memory_allocated(device)


def _resident() -> int:
    """The most bytes of resident memory: Linux's own figure, which can be reset, or that since the process began."""
    if (most := of_process("VmHWM")) is not None:
        return most
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
