"""The memory of this process, as Linux counts it."""

from __future__ import annotations

from pathlib import Path


def memory_of_process(name: str) -> int | None:
    """Return a field of `/proc/self/status` in bytes, such as `VmData` or `VmHWM`.

    `VmData` is the memory that RLIMIT_DATA limits, `VmHWM` the peak of resident memory. None on systems without it.
    """
    try:
        return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        return None
