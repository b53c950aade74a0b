"""Memory limit of a training: exceeding it raises `OutOfMemory` in this process and leaves its neighbours alone."""

import contextlib
import errno
import resource
import traceback
from collections.abc import Iterator

import torch

from trainables.reports import OutOfMemory
from trainables.training.measurement import memory_of_process

THREADS = 64 * 2**20
"""Bytes of address space on top of the limit, for the stacks of threads that start during training. They are reserved
but seldom touched."""
WORDS = ("can't allocate memory", "cannot allocate memory", "bad_alloc", "out of memory", "alloc_failed")
"""Lower-case phrases that mark a plain RuntimeError as an allocation failure. Some allocators and linear algebra
libraries raise nothing more specific."""
MIB = 2**20


@contextlib.contextmanager
def limited(device: torch.device, size: int | None, who: str) -> Iterator[None]:
    """Context manager that limits the memory of its body to `size` bytes; None sets no limit.

    On a GPU the limit covers everything that PyTorch allocates in this process; the CUDA context, some hundred MiB,
    comes on top. On a CPU it covers what the process requests beyond what it has at the start, used or not. The CPU
    limit works on Linux only.

    Raises OutOfMemory, with a one-line message about `who`, where the body needs more.
    """
    try:
        with _limit(device, size):
            try:
                yield
            except Exception as error:
                if not _is_out_of_memory(error):
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


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in WORDS)


def _message(device: torch.device, size: int | None, who: str, error: Exception) -> str:
    """One line: who needed memory, its limit, what the process had, and the first line of the allocator's error."""
    used = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else memory_of_process("VmData") or 0
    limit = "all there is" if size is None else f"{size // MIB} MiB"
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    reason = first_line.rpartition("DefaultCPUAllocator: ")[2]
    return f"{who} may use {limit}, but needed more; the process had {used // MIB} MiB: {reason}"
