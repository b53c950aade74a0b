"""What cohorts run on: devices of one kind, their memory, and what they gain or lose by being shared.

Sharing a device does not multiply its speed. Processes on a GPU take turns; what they gain is the time in which a stack
leaves it idle, the less the wider it is, and only a measurement tells how much: see `Devices.overlap`. Unmeasured, n
processes are taken to need n times as long. Cores are not shared: each process has its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MEMORY_MARGIN = 0.8
"""What a cohort may be measured to use of its part of a device's memory."""


@dataclass(frozen=True)
class Devices:
    """Equal devices: GPUs of one kind, or `cpus`."""

    count: int
    bytes: int
    """Memory of each."""
    cores: int = 1
    """CPU cores that come with each; more processes than cores never share it."""
    speed: float = 1.0
    """Steps a second over those of the device that was measured."""
    overhead: int = 0
    """Bytes that each process takes beside its tensors: on a GPU its context."""
    overlap: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    """Width of a stack -> n -> seconds of a step while n processes share a device, over those alone: 1 where each runs
    as if alone, n where nothing is gained. A width stands for narrower stacks, too. Unless asked otherwise,
    as many share a device as were measured, or one has it alone."""
    node_price: float | None = None
    """Of a node, an hour."""
    node_devices: int = 1

    def __post_init__(self) -> None:
        for name in ("count", "bytes", "cores", "speed", "node_devices"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name} > 0` must hold of devices, but got {name}={getattr(self, name)}")
        slowed = [ratio for ratios in self.overlap.values() for ratio in ratios.values()]
        if not min(slowed, default=1.0) >= 1:
            raise ValueError(f"`overlap >= 1` must hold of devices that are shared, but got {min(slowed)}")

    @property
    def sharing(self) -> list[int]:
        """How many cohorts may share one, memory aside."""
        measured = {n for ratios in self.overlap.values() for n in ratios}
        return sorted({1} | {n for n in measured if n <= self.cores})

    def room(self, sharing: int) -> int:
        """Bytes that each of so many processes on a device may be measured to need."""
        return math.floor(MEMORY_MARGIN * self.bytes / sharing) - self.overhead

    def stretch(self, width: int, sharing: int) -> float:
        """By what a step takes longer where so many processes share a device; beyond those measured in proportion."""
        wider = [known for known in self.overlap if known >= width]
        ratios = {1: 1.0} | (dict(self.overlap[min(wider)]) if wider else {})
        nearest = max(n for n in ratios if n <= sharing)
        return ratios[nearest] * sharing / nearest

    def threads(self, sharing: int) -> int:
        """Of each of so many processes on a device."""
        return max(1, self.cores // sharing)


def cpus(
    cores: Sequence[int], memory: int, threads: int = 1, *, overhead: int = 0, node_price: float | None = None
) -> Devices:
    """Machines' cores as devices that nobody shares, one for each process of so many threads; of its machine's `memory`
    each has its part."""
    if not 1 <= threads <= max(cores):
        raise ValueError(f"`1 <= threads <= cores` must hold, but got threads={threads} of {max(cores)} cores")
    each = max(cores) // threads
    count = sum(one // threads for one in cores)
    return Devices(count, max(1, memory // each), overhead=overhead, node_price=node_price, node_devices=each)
