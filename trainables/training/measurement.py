"""Measurements of a device and of stacks of members that train on it. Imports neither PyTorch nor Ray."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.json_input import Count, PositiveAmount, PositiveCount

STEPS = 4
"""Number of steps that a measurement makes with each stack."""


def stack_widths(members: int) -> list[int]:
    """Return the widths of the measured stacks: the powers of 2 below the number of members, and that number."""
    return [*(2**power for power in range(members.bit_length()) if 2**power < members), members]


@dataclass(frozen=True)
class Measurement:
    """Speed and memory of a stack of one width."""

    width: PositiveCount
    """Number of stacked members."""
    seconds: PositiveAmount
    """Seconds per step and member: the time of a step of the stack, divided by its width. The minimum of several."""
    bytes: Count
    """Peak memory of the stack in bytes, beyond what the process used before. On a CPU, growth of resident memory."""
    held: Count
    """Bytes that each member occupies between steps, while others are stepped: weights, buffers, momentum."""


@dataclass(frozen=True)
class CompiledMeasurement:
    """A measurement of compiled steps."""

    width: int
    """Number of stacked members."""
    build: bool
    """Whether to compile steps that were not compiled before."""


@dataclass(frozen=True)
class MeasurementWork:
    """What to measure on a device (see `trainables.worker.resources.measure_device`)."""

    configs: Sequence[Mapping[str, Any]] = ()
    """Configs of the members to train; empty to describe only the device."""
    seconds: float = 0.0
    """Time limit, in seconds, for measuring stacks of several widths; 0 skips this."""
    threads: int = 1
    """CPU threads that the processes use together."""
    processes: int = 0
    """Maximum number of processes that share the device, to measure how they slow each other down; 0 skips this."""
    widths: Sequence[int] = ()
    """Widths of the stacks that the sharing processes step."""
    compiled: CompiledMeasurement | None = None
    """Measurement of compiled steps; None skips it."""


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a whole device, as seen by a process on it."""

    device: str
    """Name and memory of the device. A measurement is valid for all devices with the same string."""
    bytes: Count
    """Memory of a GPU without what other processes use, or the available memory of the machine, in bytes."""
    overhead: Count
    """Bytes that a process takes in addition to its cohort: the context on a GPU, otherwise its current resident
    memory."""


@dataclass(frozen=True)
class DeviceMeasurement:
    """Measurements on one device."""

    memory: DeviceMemory
    measurements: Sequence[Measurement] = ()
    """One measurement per stack width; empty if the configs could not be measured."""
    slowdowns: Mapping[int, Mapping[int, float]] | None = None
    """Slowdowns from sharing the device, as returned by `profiling.measure_slowdowns`; None if not requested."""
    compiled: float | None = None
    """Seconds per step and member with compiled steps; None if not requested or not available."""


def memory_of_process(name: str) -> int | None:
    """Return a field of `/proc/self/status` in bytes, such as `VmData` or `VmHWM`. `VmData` is the memory that
    RLIMIT_DATA limits, `VmHWM` the peak of resident memory. None on systems without it."""
    try:
        return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        return None
