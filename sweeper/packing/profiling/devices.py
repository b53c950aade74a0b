"""Devices of one kind: their number and memory, and how much slower they step when several cohorts share one.

Processes on a GPU take turns. They gain the time in which a single stack leaves the GPU idle, which only a measurement
tells; without one, n processes are assumed to take n times as long. CPU cores are not shared.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MEMORY_MARGIN = 0.8
"""Fraction of its part of a device's memory that the measured need of a cohort may fill."""


@dataclass(frozen=True)
class Devices:
    """Equal devices: GPUs of one kind, or CPU cores (see `cpu_devices`)."""

    count: int
    bytes: int
    """Memory of each device, in bytes."""
    cores: int = 1
    """CPU cores per device. No more processes than cores share a device."""
    speed: float = 1.0
    """Steps per second, relative to the device that was measured."""
    overhead: int = 0
    """Bytes that each process takes beside its tensors, such as the CUDA context."""
    slowdowns: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    """Width of a stack -> number n of processes on a device -> slowdown of a step, between 1 (as if alone) and n
    (sharing gains nothing). The ratios of a width also serve narrower stacks. Unless a fraction is requested, only the
    measured numbers of processes share a device."""
    node_price: float | None = None
    """Price of a node for an hour; None if unknown."""
    node_devices: int = 1
    """Devices per node."""

    def __post_init__(self) -> None:
        for name in ("count", "bytes", "cores", "speed", "node_devices"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name} > 0` must hold of devices, but got {name}={getattr(self, name)}")
        ratios = [ratio for ratios in self.slowdowns.values() for ratio in ratios.values()]
        if not min(ratios, default=1.0) >= 1:
            raise ValueError(f"`slowdowns >= 1` must hold of devices that are shared, but got {min(ratios)}")

    @property
    def process_counts(self) -> list[int]:
        """Numbers of processes that may share a device, ascending, regardless of memory."""
        measured = {n for ratios in self.slowdowns.values() for n in ratios}
        return sorted({1} | {n for n in measured if n <= self.cores})

    def capacity(self, processes: int) -> int:
        """Return the most bytes that a cohort may be measured to need if so many `processes` share a device."""
        return math.floor(MEMORY_MARGIN * self.bytes / processes) - self.overhead

    def slowdown(self, width: int, processes: int) -> float:
        """Return the slowdown (>= 1) of a step with so many `processes` on a device; proportional if not measured."""
        wider = [measured_width for measured_width in self.slowdowns if measured_width >= width]
        ratios = {1: 1.0} | (dict(self.slowdowns[min(wider)]) if wider else {})
        nearest = max(n for n in ratios if n <= processes)
        return ratios[nearest] * processes / nearest


def cpu_devices(
    cores: Sequence[int], memory: int, threads: int = 1, *, overhead: int = 0, node_price: float | None = None
) -> Devices:
    """Return the `cores` of each machine as devices: one for each process of `threads` threads.

    Every process gets an equal part of the `memory` (bytes) of the machine that has most cores.
    """
    if not 1 <= threads <= max(cores):
        raise ValueError(f"`1 <= threads <= cores` must hold, but got threads={threads} of {max(cores)} cores")
    processes = max(cores) // threads
    count = sum(machine_cores // threads for machine_cores in cores)
    return Devices(count, max(1, memory // processes), overhead=overhead, node_price=node_price, node_devices=processes)
