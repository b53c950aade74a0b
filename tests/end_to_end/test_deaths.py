"""Nodes that die under a sweep, with notice and without: its rows are those of an undisturbed run."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.heads import ROOT, Head, RayProcess, head
from tests.end_to_end.sweeps import Sweeps, resume, row_files
from tests.end_to_end.undisturbed import GRID, assert_undisturbed

pytestmark = pytest.mark.slow

ARGUMENTS = [*GRID, "--retries", "1"]
"""SIGTERM costs no retry. A node that dies without notice may cost one, if Ray notices the lost process first."""


def give_notice(cluster: Head, node: RayProcess) -> subprocess.CompletedProcess[str]:
    """Do what a node's container does when its machine is about to be taken away."""
    [raylet] = node.raylets()
    command = [sys.executable, "cluster/spot_notice.py", "--now", "--grace", "120", "--raylet", str(raylet.pid)]
    return subprocess.run(command, cwd=ROOT, env=cluster.environment(), capture_output=True, text=True)


def test_nodes_die(sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node gets a notice, one dies without, and a new one joins."""
    with head(cores=0, jobs=False) as cluster:
        for name, value in cluster.key().items():
            monkeypatch.setenv(name, value)
        warned, struck = cluster.node(), cluster.node()
        sweep = sweeps.start(tmp_path, *ARGUMENTS, "--address", cluster.gcs)

        def both_train() -> bool:
            """Suspend the node that trains first until the other has a cohort, too: it might train all of them."""
            return all([node.suspend() for node in (warned, struck)])

        sweep.wait_until(both_train, "training on both nodes")
        resume(warned.trainers())
        notice = give_notice(cluster, warned)
        assert notice.returncode == 0 and "0 processes still ran" in notice.stdout, notice
        file_count = len(row_files(tmp_path))
        resume(struck.trainers())
        sweep.wait_until(
            lambda: len(row_files(tmp_path)) > file_count and struck.trainers(), "more rows and another cohort"
        )
        assert warned.trainers() == []  # Ray has placed nothing there, free though it was
        warned.kill()
        struck.kill()
        fresh = cluster.node()
        sweep.wait_until(fresh.trainers, "training on the node that came")
        outcome = sweep.outcome()
    assert outcome.status == 0 and "stopped: SIGTERM; checkpoint saved at epoch" in outcome.out, outcome
    assert "halves" not in outcome.out, outcome
    assert_undisturbed(tmp_path)
