"""The version of the code, which every row records."""

import os
import subprocess
from pathlib import Path

__version__ = "0.2.0"
SUBMITTED = "SWEEPER_CODE_VERSION"
"""Environment variable of a submitted job, which runs in a copy without the history of git: the version of the code."""


def code_version() -> str:
    """Return the package's version, followed by the commit if the code runs from a git checkout.

    Examples: `0.2.0`, `0.2.0+abc1234`, and `0.2.0+abc1234.dirty` for a checkout with uncommitted changes. A package
    that is installed somewhere inside another project's checkout does not take that project's commit for its own. In a
    submitted job, whose files have no history, the version is that of the code which was submitted.
    """
    own = _git("ls-files", "--error-unmatch", Path(__file__).name)
    commit = own and _git("describe", "--always", "--dirty=.dirty", "--exclude=*")
    submitted = os.environ.get(SUBMITTED, "")
    return f"{__version__}+{commit}" if commit else submitted if submitted.startswith(__version__) else __version__


def _git(*arguments: str) -> str | None:
    """Return what git says of the folder of this file; None if it fails or there is no git."""
    try:
        answer = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
