"""Sweeps from a session of Python with a real Ray: joined, started, interrupted and continued."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.sweeps import ROOT, environment


@pytest.mark.slow
def test_a_session_runs_several_sweeps_and_stays_usable(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.end_to_end.session", str(tmp_path / "store")]
    completed = subprocess.run(command, cwd=ROOT, env=environment(cores=1), capture_output=True, text=True, timeout=600)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    lines = completed.stdout.splitlines()
    assert lines[-1] == "done" and "interrupted" in lines
    assert any(line.startswith("stopped: ") and "of 4 trials are in" in line for line in lines)
