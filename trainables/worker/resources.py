"""The resources of this process: software, cores, memory limit, and the speed of cohorts on its device."""

import contextlib
import functools
import platform
import re
import resource
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from trainables.config import resolve_sent
from trainables.reports import OutOfMemory, UnusableGpu, is_out_of_memory, raise_gpu_fault
from trainables.training.measurement import DeviceMeasurement, Measurement, MeasurementWork, memory_of_process
from trainables.training.profiling import (
    device_memory,
    measure,
    measure_compiled,
    measure_slowdowns,
    memory_in_use,
)
from trainables.worker.messages import Environment

DRIVER = Path("/proc/driver/nvidia/version")
"""File with the version of NVIDIA's kernel module."""


@functools.cache
def environment_of(device: torch.device) -> Environment:
    """Return the environment of a process that trains on `device`. CUDA and the driver are None on a CPU."""
    gpu = device.type == "cuda"
    return Environment(
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda if gpu else None,
        driver=driver_version() if gpu else None,
    )


def driver_version(file: Path = DRIVER) -> str | None:
    """Return the version of NVIDIA's driver, such as `550.54.15`; None if the `file` does not contain it."""
    try:
        module = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", file.read_text())
    except OSError:
        return None
    return module[1] if module else None


def usable_gpu() -> torch.device:
    """Return the GPU of this process. Raises UnusableGpu, with the versions of the driver and of CUDA, without one."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    try:
        torch.cuda.init()
        reason = "torch.cuda.is_available() is False"
    except (RuntimeError, AssertionError) as error:  # the latter if PyTorch is built for CPUs alone
        reason = str(error).strip().partition("\n")[0].partition(". Please")[0]
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for CPUs only"
    raise UnusableGpu(
        f"Ray assigns a GPU, but PyTorch cannot use one: {reason} (NVIDIA driver {driver_version() or 'not found'}, "
        f"PyTorch {torch.__version__} {built})"
    )


def use_cores(cores: float) -> None:
    """Use one thread per whole core, so that workers on one machine do not compete for cores. A worker may have loaded
    NumPy before Ray set its number of cores."""
    threads = max(1, int(cores))
    torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")


THREADS = 64 * 2**20
"""Bytes of address space on top of the limit, for the stacks of threads that start during training, which are reserved
but rarely touched."""
MIB = 2**20


@contextlib.contextmanager
def limited(device: torch.device, size: int | None, who: str) -> Iterator[None]:
    """Context manager that limits the memory of its body to `size` bytes; None sets no limit.

    On a GPU the limit covers everything that PyTorch allocates in this process; the CUDA context, some hundred MiB,
    comes on top. On a CPU it covers what the process requests beyond its memory at the start, used or not. The CPU
    limit works only on Linux.

    Raises OutOfMemory, with a one-line message about `who`, if the body needs more, and UnusableGpu for an error of the
    GPU itself.
    """
    try:
        with _limit(device, size):
            try:
                yield
            except Exception as error:
                raise_gpu_fault(error)
                if not is_out_of_memory(error):
                    raise
                message = _message(device, size, who, error)
                traceback.clear_frames(error.__traceback__)  # the frames keep tensors alive
            else:
                return
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()
    raise OutOfMemory(message)


@contextlib.contextmanager
def _limit(device: torch.device, size: int | None) -> Iterator[None]:
    """Set the limit, and restore the previous one at the end."""
    if size is None:
        yield
    elif device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        device_index = torch.cuda.current_device() if device.index is None else device.index
        total = torch.cuda.get_device_properties(device_index).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, size / total), device_index)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device_index)
    elif (current := memory_of_process("VmData")) is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limits = [current + size + THREADS, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    else:
        yield


def _message(device: torch.device, size: int | None, who: str, error: Exception) -> str:
    """One line: who needed memory, the limit, the process's memory, and the first line of the allocator's error."""
    used = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else memory_of_process("VmData") or 0
    limit = "all available memory" if size is None else f"{size // MIB} MiB"
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    reason = first_line.rpartition("DefaultCPUAllocator: ")[2]
    return f"{who} may use {limit}, but needed more; the process had {used // MIB} MiB: {reason}"


def measure_device(
    work: MeasurementWork, data: str, device: torch.device, wait: Callable[[], None] = lambda: None
) -> DeviceMeasurement:
    """Describe a device of this process and measure how members train on it, with data in the folder `data`.

    If requested, several processes share the device and step a stack of each width, to measure how they slow each other
    down. `wait` is called while steps are compiled, and may raise to end the compilation. `measurements` is empty if
    training fails.
    """
    before = memory_in_use(device)
    use_cores(work.threads)
    folder, resolved = Path(data), [resolve_sent(config) for config in work.configs]
    measurements: Sequence[Measurement] = ()
    if work.seconds:
        with contextlib.suppress(Exception):  # training will raise the same error again and report it
            measurements = measure(resolved, folder, device, work.seconds)
    slowdowns = None
    if work.processes > 1:
        slowdowns = measure_slowdowns(
            resolved, folder, device, widths=work.widths, max_processes=work.processes, cores=work.threads
        )
    seconds_compiled = None
    if compiled := work.compiled:
        with contextlib.suppress(Exception):  # as above
            members = resolved[: compiled.width]
            seconds_compiled = measure_compiled(members, folder, device, build=compiled.build, wait=wait)
    return DeviceMeasurement(device_memory(device, before), measurements, slowdowns, seconds_compiled)
