"""A cluster of no nodes that train: they come for cohorts that wait, are shared by them, and go when there are none."""

from pathlib import Path

import psutil
import pytest

from sweeper.execution.driver.connection import LOOPBACK
from tests.cluster.files import FOLDER
from tests.cluster.ports import listening, tells_metrics
from tests.end_to_end.heads import head, wait_until
from tests.end_to_end.sweeps import Sweeps, resume, rows

pytestmark = pytest.mark.slow

WORDS = (
    *("--axis", "beta=0.5,1", "--axis", "nu=0.5,3"),
    *("--set", "normal_class=0", "--set", "epochs=20", "--cohort", "1", "--gpu-fraction", "0.5"),
)
"""Four cohorts, two for each GPU."""


def test_nodes_come_for_pending_cohorts_are_shared_and_go_when_idle(
    sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it on the loopback."""
    with head(cores=0, jobs=False, scaling=FOLDER / "local.yaml", more=LOOPBACK) as cluster:
        for name, value in (LOOPBACK | cluster.key()).items():
            monkeypatch.setenv(name, value)
        [begun] = cluster.started
        assert len(begun.raylets()) == 1  # the head's own, which has no cores
        sweep = sweeps.start(tmp_path, *WORDS, "--address", cluster.gcs)
        nodes, sharing = 1, 0
        held = list[psutil.Process]()

        def both_seen() -> bool:
            """What trains waits for it: on a slow machine cohorts would end before the second node has come."""
            nonlocal nodes, sharing
            held.extend(begun.suspend())
            nodes = max(nodes, len(begun.raylets()))
            sharing = max(sharing, begun.together())
            return nodes >= 3 and sharing == 2  # the head's own among them

        sweep.wait_until(both_seen, "two nodes, and two cohorts that share one")
        resume(held)
        ports = listening(begun.processes())
        assert {one.address for one in ports} == {"127.0.0.1"}
        assert [one for one in ports if tells_metrics(one.port)] == []
        outcome = sweep.outcome()
        assert outcome.status == 0 and "4 finished of 4 trials" in outcome.out, outcome
        found = rows(tmp_path)
        assert set(found["status"]) == {"finished"} and found["cohort"].nunique() == 4
        wait_until(lambda: len(begun.raylets()) == 1, "end of the idle nodes")
