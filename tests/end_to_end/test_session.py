"""Sweeps from a session of Python with a real Ray: joined, started, interrupted and continued."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.sweeps import ROOT, environment


@pytest.mark.slow
@pytest.mark.soak
def test_a_session_runs_several_sweeps_and_stays_usable(tmp_path: Path) -> None:
    """`test_an_interrupt_stops_in_order_and_the_same_call_continues` of `test_api.py` asserts the same without Ray, and
    `test_workers_of_a_local_cluster_inherit_the_folders` of `tests/sweeper/execution/test_session.py` what Ray adds."""
    command = [sys.executable, "-m", "tests.end_to_end.session", str(tmp_path / "store")]
    completed = subprocess.run(command, cwd=ROOT, env=environment(cores=1), capture_output=True, text=True, timeout=600)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    lines = completed.stdout.splitlines()
    assert lines[-1] == "done" and "interrupted" in lines
    assert any(line.startswith("stopped: ") and "of 4 trials are in" in line for line in lines)
