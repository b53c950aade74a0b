"""What is measured of a device and of stacks of members that train on it. Imports neither PyTorch nor Ray."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.json_input import Count, PositiveAmount, PositiveCount

STEPS = 4
"""Steps that a measurement makes with each stack."""


def stack_widths(members: int) -> list[int]:
    """Return the widths of the stacks that are measured: the powers of 2 below the number of members, and that."""
    return [*(2**power for power in range(members.bit_length()) if 2**power < members), members]


@dataclass(frozen=True)
class Measurement:
    """Speed and memory of a stack of one width."""

    width: PositiveCount
    """Members stacked."""
    seconds: PositiveAmount
    """Seconds per step and member: the time of a step of the stack, divided by its width. The minimum of several."""
    bytes: Count
    """Peak memory of the stack in bytes, beyond what the process used before. On a CPU, growth of resident memory."""
    held: Count
    """Bytes that each member keeps between steps, while others are stepped: weights, buffers, momentum."""


@dataclass(frozen=True)
class CompiledMeasurement:
    """A measurement of compiled steps."""

    width: int
    """Members stacked."""
    build: bool
    """Whether they are compiled if they have not been before."""


@dataclass(frozen=True)
class MeasurementWork:
    """What is measured of a device (see `trainables.worker.resources.measure_device`)."""

    configs: Sequence[Mapping[str, Any]] = ()
    """Configs of the members to train; empty to look at the device only."""
    seconds: float = 0.0
    """Time limit of the measurement of stacks of several widths; 0 leaves it out."""
    threads: int = 1
    """CPU threads that the processes use together."""
    processes: int = 0
    """Most processes that share the device, to measure how they slow each other down; 0 leaves it out."""
    widths: Sequence[int] = ()
    """Widths of the stacks that these processes step."""
    compiled: CompiledMeasurement | None = None
    """Measurement of compiled steps; None leaves it out."""


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a whole device, as a process on it sees it."""

    device: str
    """Name and memory of the device. A measurement holds for all devices with the same string."""
    bytes: Count
    """All memory of a GPU, or the available memory of the machine, in bytes."""
    overhead: Count
    """Bytes that a process takes in addition to its cohort: the context on a GPU, else its resident memory now."""


@dataclass(frozen=True)
class DeviceMeasurement:
    """Measurements on one device."""

    memory: DeviceMemory
    measurements: Sequence[Measurement] = ()
    """One for each stack width; empty where the configs could not be measured."""
    slowdowns: Mapping[int, Mapping[int, float]] | None = None
    """Slowdowns from sharing the device, as `contention.measure_slowdowns` returns them; None where these were not
    requested."""
    compiled: float | None = None
    """Seconds per step and member with compiled steps; None where these were not requested or cannot be had."""


def memory_of_process(name: str) -> int | None:
    """Return a field of `/proc/self/status` in bytes, such as `VmData` or `VmHWM`. `VmData` is the memory that
    RLIMIT_DATA limits, `VmHWM` the peak of resident memory. None on systems without it."""
    try:
        return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        return None
