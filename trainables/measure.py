"""How fast and how large a cohort is at several stack widths, from a few real steps on the device it will use."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from trainables.cohort import Cohort
from trainables.config import TrialConfig


@dataclass(frozen=True)
class Measurement:
    width: int
    """Members stacked."""
    seconds: float
    """Of one step of one member: a step of the stack over its width; the least of several."""
    bytes: int
    """Peak memory of the stack beyond what the process had before; on a CPU the growth of its resident memory."""


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
            measured.append(_measure(configs[:width], data, device))
        except torch.OutOfMemoryError:
            break
    return measured


def memory_at_hand(device: torch.device | str, share: float) -> int:
    """Bytes that a process may use which has this share, in (0, 1], of the device: of a GPU, or of free memory."""
    if torch.device(device).type == "cuda":
        return int(share * torch.cuda.get_device_properties(device).total_memory)
    import psutil  # here: a bare GPU box may lack it

    return int(share * psutil.virtual_memory().available)


def _widths(limit: int) -> list[int]:
    return [*(2**power for power in range(limit.bit_length()) if 2**power < limit), limit]


def _measure(configs: Sequence[TrialConfig], data: Path, device: torch.device) -> Measurement:
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
    return Measurement(len(configs), min(times[1:]) / len(configs), max(0, peak_bytes(device) - before))


def peak_bytes(device: torch.device, reset: bool = False) -> int:
    """The most bytes that were in use, since the last reset on a GPU, ever in this process on a CPU."""
    if device.type != "cuda":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if reset:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    return torch.cuda.max_memory_allocated(device)
