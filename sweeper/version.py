"""Which code wrote a row."""

from __future__ import annotations

import subprocess
from pathlib import Path

VERSION = "0.1.0"


def code_version() -> str:
    """The package's version, with the commit where it runs from a checkout (`+abc1234`, `.dirty` if it is changed)."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=.dirty", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return VERSION
    return f"{VERSION}+{described.stdout.strip()}" if described.returncode == 0 else VERSION
