"""Heads and nodes that die under a sweep, with notice and without: its rows are those of an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.heads import ROOT, Head, Started, head
from tests.sweeper.sweeps import Sweeps, assert_same_results, row_files, rows, sweeps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

GRID = [
    *("--axis", "beta=0.5,1,2", "--axis", "nu=0.5,3", "--axis", "normal_class=0,1"),
    *("--set", "epochs=240", "--cohort", "2", "--save-every", "0.2", "--retries", "1"),
]
"""12 trials in 6 cohorts, some 8 s each on one core, longer than a process takes to start: else one node's process is
given all of them before the other's is there. SIGTERM costs no retry; a node without notice may, where Ray misses its
process first."""


@pytest.fixture
def run() -> Iterator[Sweeps]:
    yield from sweeps()


def give_notice(cluster: Head, node: Started) -> subprocess.CompletedProcess[str]:
    """What a node's container does when its machine is to be taken away."""
    [raylet] = node.raylets()
    command = [sys.executable, "cluster/spot_notice.py", "--now", "--grace", "15", "--raylet", str(raylet.pid)]
    return subprocess.run(command, cwd=ROOT, env=cluster.environment(), capture_output=True, text=True)


def test_a_head_and_its_nodes_die(run: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    calm = run.start(tmp_path / "calm", *GRID).outcome()
    assert calm.status == 0, calm
    with head(cores=2, jobs=False) as first:
        for name, value in first.key().items():
            monkeypatch.setenv(name, value)
        sweep = run.start(store, *GRID, "--address", first.gcs)
        sweep.wait_until(lambda: row_files(store), "rows")
        first.kill()
        sweep.kill()
    before = {path: path.stat().st_mtime_ns for path in row_files(store)}
    assert 0 < len(before) < 6
    with head(cores=0, jobs=False) as second:
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(second.token))
        warned, struck = second.node(), second.node()
        sweep = run.start(store, *GRID, "--address", second.gcs)
        sweep.wait_until(lambda: warned.trainers() and struck.trainers(), "training on both nodes")
        notice = give_notice(second, warned)
        assert notice.returncode == 0 and "0 processes were still there" in notice.stdout, notice
        done = len(row_files(store))
        sweep.wait_until(lambda: len(row_files(store)) > done, "more rows")
        assert struck.trainers() and warned.trainers() == []  # Ray has placed nothing there, free though it was
        warned.kill()
        struck.kill()
        fresh = second.node(cores=2)
        sweep.wait_until(fresh.trainers, "training on the node that came")
        outcome = sweep.outcome()
    assert outcome.status == 0 and "its checkpoint: stopped: SIGTERM; checkpoint saved at epoch" in outcome.out, outcome
    assert "halves" not in outcome.out, outcome
    assert_same_results(rows(store), rows(tmp_path / "calm"))
    assert len(rows(store)) == 12 and set(rows(store)["status"]) == {"finished"}
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what was there was not trained again
    assert not list(store.glob("checkpoints/*/*.pt"))
