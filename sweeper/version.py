"""The version of the code, which every row records."""

import subprocess
from pathlib import Path

VERSION = "0.1.0"


def code_version() -> str:
    """Return the package's version, followed by the commit if the code runs from a git checkout.

    Examples: `0.1.0`, `0.1.0+abc1234`, and `0.1.0+abc1234.dirty` for a checkout with uncommitted changes.
    """
    try:
        describe = subprocess.run(
            ["git", "describe", "--always", "--dirty=.dirty", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return VERSION
    return f"{VERSION}+{describe.stdout.strip()}" if describe.returncode == 0 else VERSION
