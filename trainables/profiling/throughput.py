"""Measure the step time and memory of a cohort at several stack widths, with a few real steps on its device."""

import contextlib
import ctypes
import gc
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trainables.config.trial_config import TrialConfig
from trainables.profiling.measurement import STEPS, DeviceMemory, Measurement, memory_of_process, stack_widths
from trainables.training.cohort import Cohort
from trainables.training.compilation.compiler import StepCompiler


def measure(
    configs: Sequence[TrialConfig], data: Path, device: torch.device | str, seconds: float = 3.0
) -> list[Measurement]:
    """Measure stacks of width 1, 2, 4, ... and finally all of `configs`, for at most about `seconds`. Width 1 is always
    measured. A larger width is skipped, with all after it, if its estimated time exceeds the limit or the device runs
    out of memory. Returns nothing for configs that do not train or that use several workers."""
    if configs[0].training.epochs == 0 or configs[0].training.processes > 1:
        return []
    device = torch.device(device)
    measured: list[Measurement] = []
    begun = time.perf_counter()
    with _frozen_objects():
        for width in stack_widths(len(configs)):
            if measured and time.perf_counter() - begun + 6 * measured[-1].seconds * width > seconds:
                break
            try:
                measured.append(_measure(configs[:width], data, device, measured[0].held if measured else None))
            except torch.OutOfMemoryError:
                break
    return measured


@contextlib.contextmanager
def _frozen_objects() -> Iterator[None]:
    """Context in which the garbage collector passes over the objects that exist: millions, where Ray is imported, and
    it runs once before each width. In a process that has frozen objects of its own they stay frozen."""
    frozen_before = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen_before:
            gc.unfreeze()


def device_memory(device: torch.device | str) -> DeviceMemory:
    """The memory that processes sharing the device may use together. Call it after a measurement: only then has the
    process loaded everything that counts as overhead."""
    device = torch.device(device)
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        name = f"{torch.cuda.get_device_name(device)}, {total >> 30} GiB"
        return DeviceMemory(name, total, max(0, total - free - torch.cuda.memory_reserved(device)))
    import psutil  # imported here because it may not be installed on a machine with GPUs

    memory = psutil.virtual_memory()
    name = f"{_processor()}, {os.cpu_count()} cores, {memory.total >> 30} GiB"
    return DeviceMemory(name, memory.available, psutil.Process().memory_info().rss)


def _processor() -> str:
    """Model name of the CPU."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _measure(configs: Sequence[TrialConfig], data: Path, device: torch.device, held: int | None) -> Measurement:
    """Measure one stack of all `configs`. Pass `held` if it is known: counting it copies the whole state."""
    bytes_before = peak_bytes(device, reset=True)
    cohort = Cohort(configs, data, device, width=None)
    seconds = _step_seconds(cohort, device)
    width, peak = len(configs), peak_bytes(device)
    held = _tensor_bytes(cohort.state()) // width if held is None else held
    return Measurement(width, seconds, max(0, peak - bytes_before), held)


def _step_seconds(cohort: Cohort, device: torch.device) -> float:
    """Seconds per step and member, the minimum of several. On one core only the time that this thread computes counts,
    so that other processes, which may share the core now, do not."""
    clock = time.thread_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    orders, times = cohort.orders(0), []
    for _ in range(STEPS):
        begun = clock()
        cohort.step(0, 0, orders, rate=0.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(clock() - begun)
    return min(times[1:]) / len(cohort.members)


def measure_compiled(
    configs: Sequence[TrialConfig],
    data: Path,
    device: torch.device | str,
    *,
    build: bool,
    wait: Callable[[], None] = lambda: None,
) -> float | None:
    """Seconds per step and member of one stack of all `configs`, with compiled steps; None if they cannot be had. With
    `build=False` only steps that were compiled before are measured. `wait` is called while steps are compiled, and may
    raise to end that."""
    device, compiler = torch.device(device), StepCompiler(build=build)
    seconds = _step_seconds(Cohort(configs, data, device, None, raise_if_stopped=wait, compiler=compiler), device)
    return seconds if compiler.compiled else None


def _tensor_bytes(state: Any) -> int:
    """Bytes of all tensors in nested lists and mappings."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    return sum(map(_tensor_bytes, state.values() if isinstance(state, Mapping) else state))


def peak_bytes(device: torch.device, reset: bool = False) -> int:
    """Peak memory in use since the last reset, in bytes. With `reset=True` the peak is reset first. On a CPU it is
    resident memory of the process. Outside Linux that peak cannot be reset: it counts from the start of the process."""
    if device.type != "cuda":
        if reset:
            gc.collect()
            with contextlib.suppress(OSError, AttributeError):  # another C library, another system
                ctypes.CDLL(None).malloc_trim(0)
                Path("/proc/self/clear_refs").write_text("5")
        if (peak := memory_of_process("VmHWM")) is not None:
            return peak
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if reset:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    return torch.cuda.max_memory_allocated(device)
