"""The memory of this process, as Linux counts it."""

from __future__ import annotations

from pathlib import Path


def of_process(name: str) -> int | None:
    """Bytes of this process by Linux's name for them: `VmData`, what RLIMIT_DATA counts; `VmHWM`, the most that were
    resident. None elsewhere."""
    try:
        return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        return None
