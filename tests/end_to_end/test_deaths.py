"""Nodes that die under a sweep, with notice and without: its rows are those of an undisturbed run."""

import contextlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.heads import ROOT, Head, RayProcess, head, wait_until
from tests.end_to_end.sweeps import Sweeps, resume, row_files
from tests.end_to_end.undisturbed import COHORTS, GRID, assert_undisturbed

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ARGUMENTS = [*GRID, "--retries", "1"]
"""SIGTERM costs no retry. A node that dies without notice may cost one, if Ray notices the lost process first."""


def give_notice(cluster: Head, node: RayProcess) -> tuple[int, str]:
    """Do what a node's container does when its machine is about to be taken away. Returns the exit status and stdout.

    The node's suspended training is resumed when SIGTERM has been sent to it, so that it cannot end before.
    """
    [raylet] = node.raylets()
    module = [sys.executable, "-m", "sweeper.submission.spot_notice"]
    command = [*module, "--now", "--grace", "120", "--raylet", str(raylet.pid)]
    training = node.trainers()
    notice = subprocess.Popen(command, cwd=ROOT, env=cluster.environment(), stdout=subprocess.PIPE, text=True)
    wait_until(lambda: all(map(terminating, training)) or notice.poll() is not None, "SIGTERM for the suspended node")
    resume(training)
    output, _ = notice.communicate()
    return notice.returncode, output


def terminating(process: psutil.Process) -> bool:
    """Whether SIGTERM has been sent to a suspended process, which receives it once it is resumed."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    [pending] = re.findall(r"^ShdPnd:\s*(\w+)$", status, re.MULTILINE)
    return bool(int(pending, 16) >> (signal.SIGTERM - 1) & 1)


class BothTrain:
    """Suspends the nodes `warned` and `struck` once they train, `warned` after it has saved a checkpoint.

    Both are suspended because the node that begins first might train all cohorts. While `struck` is suspended, or has
    nothing to train, all new checkpoints are from `warned`.
    """

    def __init__(self, store: Path, warned: RayProcess, struck: RayProcess) -> None:
        self._store, self._warned, self._struck = store, warned, struck
        self._struck_trains = self._warned_saved = False
        self._checkpoints = set[tuple[Path, int]]()

    def __call__(self) -> bool:
        """Suspend what can be suspended by now. Returns whether both nodes are suspended."""
        struck_trained_before, self._struck_trains = self._struck_trains, bool(self._struck.suspend())
        earlier, self._checkpoints = self._checkpoints, self._list_checkpoints()
        if struck_trained_before == self._struck_trains and self._checkpoints - earlier and self._warned.suspend():
            self._warned_saved = True
        return self._warned_saved and self._struck_trains

    def _list_checkpoints(self) -> set[tuple[Path, int]]:
        """Path and time of modification of all checkpoints."""
        checkpoints = set[tuple[Path, int]]()
        for path in self._store.glob("checkpoints/*/*.pt"):
            with contextlib.suppress(FileNotFoundError):
                checkpoints.add((path, path.stat().st_mtime_ns))
        return checkpoints


def test_nodes_die(sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node gets a notice, one dies without, and a new one joins. `test_worlds_hold` (`tests/simulation/`) asserts
    the same of simulated nodes, and `test_ray_is_notified_of_the_node_before_its_training_is_stopped` the notice."""
    with head(cores=0, jobs=False) as cluster:
        for name, value in cluster.key().items():
            monkeypatch.setenv(name, value)
        warned, struck = cluster.node(), cluster.node()
        sweep = sweeps.start(tmp_path, *ARGUMENTS, "--address", cluster.gcs)
        sweep.wait_until(BothTrain(tmp_path, warned, struck), "training on both nodes")
        status, output = give_notice(cluster, warned)
        assert status == 0 and "0 processes still ran" in output, output
        file_count = len(row_files(tmp_path))
        resume(struck.trainers())
        sweep.wait_until(
            lambda: len(row_files(tmp_path)) > file_count and struck.suspend(), "more rows and another cohort"
        )
        assert warned.trainers() == []  # Ray has placed nothing there, free though it was
        warned.kill()
        struck.kill()
        assert len(row_files(tmp_path)) < COHORTS  # the rest is trained by the node that comes: there is no other
        cluster.node()
        outcome = sweep.outcome()
    assert outcome.status == 0 and "stopped: SIGTERM; checkpoint saved at epoch" in outcome.out, outcome
    assert "halves" not in outcome.out, outcome
    assert_undisturbed(tmp_path)
