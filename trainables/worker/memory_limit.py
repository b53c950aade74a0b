"""What memory a training may use: beyond it there is an exception in it, and nothing happens to its neighbours."""

from __future__ import annotations

import contextlib
import errno
import resource
import traceback
from collections.abc import Iterator

import torch

from trainables.contract import OutOfMemory
from trainables.profiling.process_memory import of_process

THREADS = 64 * 2**20
"""Address space beside the cohort's own: stacks of the threads that start while it trains, seldom touched."""
WORDS = ("can't allocate memory", "cannot allocate memory", "bad_alloc", "out of memory", "alloc_failed")
"""Said by allocators, libraries of linear algebra among them, that raise a plain RuntimeError."""
MIB = 2**20


@contextlib.contextmanager
def limited(device: torch.device, size: int | None, who: str) -> Iterator[None]:
    """What runs herein may take `size` bytes of the device, None for all: on a GPU in all, a context of some hundred
    MiB apart, on a CPU beyond what the process has now. OutOfMemory in one line, about `who`, if it needs more.

    The CPU's is kept by Linux alone, for writable memory that is asked for, be it used or not.
    """
    try:
        with _limit(device, size):
            try:
                yield
            except Exception as error:
                if not _of_memory(error):
                    raise
                told = _told(device, size, who, error)
                traceback.clear_frames(error.__traceback__)  # they hold tensors
            else:
                return
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()
    raise OutOfMemory(told)


@contextlib.contextmanager
def _limit(device: torch.device, size: int | None) -> Iterator[None]:
    if size is None:
        yield
    elif device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        place = torch.cuda.current_device() if device.index is None else device.index
        total = torch.cuda.get_device_properties(place).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, size / total), place)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, place)
    elif (now := of_process("VmData")) is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = [now + size + THREADS, *(one for one in (soft, hard) if one != resource.RLIM_INFINITY)]
        resource.setrlimit(resource.RLIMIT_DATA, (min(wanted), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    else:
        yield


def _of_memory(error: Exception) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in WORDS)


def _told(device: torch.device, size: int | None, who: str, error: Exception) -> str:
    used = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else of_process("VmData") or 0
    may = "all there is" if size is None else f"{size // MIB} MiB"
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    said = first.rpartition("DefaultCPUAllocator: ")[2]
    return f"{who} may use {may}, but needed more; the process had {used // MIB} MiB: {said}"
