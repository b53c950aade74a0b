"""A cluster that starts without nodes: they are added for pending cohorts, shared by them, and removed when idle."""

from pathlib import Path

import psutil
import pytest

from sweeper.execution.session import LOOPBACK
from tests.cluster.files import FOLDER
from tests.end_to_end.heads import head, wait_until
from tests.end_to_end.sweeps import Sweeps, listening, resume, rows, tells_metrics

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ARGUMENTS = (
    *("--axis", "beta=0.5,1,2", "--set", "nu=0.5"),
    *("--set", "normal_class=0", "--set", "epochs=20", "--cohort", "1", "--gpu-fraction", "0.5"),
)
"""Three cohorts, of which two share a GPU."""


def test_nodes_come_for_pending_cohorts_are_shared_and_go_when_idle(
    sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its ports are on the loopback. `test_a_gpu_is_requested_of_a_cluster_without_workers_that_can_grow` and
    `test_a_cohort_that_waits_for_devices_holds_none_back` of the two `test_ray_backend.py` assert the demand."""
    with head(cores=0, jobs=False, scaling=FOLDER / "local.yaml", variables=LOOPBACK) as cluster:
        for name, value in (LOOPBACK | cluster.key()).items():
            monkeypatch.setenv(name, value)
        [ray_head] = cluster.started
        assert len(ray_head.raylets()) == 1  # the head's own, which has no cores
        sweep = sweeps.start(tmp_path, *ARGUMENTS, "--address", cluster.gcs)
        nodes, sharing = 1, 0
        suspended = list[psutil.Process]()

        def both_nodes_train() -> bool:
            """Training is suspended meanwhile: on a slow machine cohorts would end before the second node has come."""
            nonlocal nodes, sharing
            suspended.extend(ray_head.suspend())
            nodes = max(nodes, len(ray_head.raylets()))
            sharing = max(sharing, ray_head.most_trainers_on_a_node())
            return nodes >= 3 and sharing == 2  # the head's own among them

        sweep.wait_until(both_nodes_train, "two nodes, and two cohorts that share one")
        resume(suspended)
        ports = listening(ray_head.processes())
        assert {listener.address for listener in ports} == {"127.0.0.1"}
        assert [listener for listener in ports if tells_metrics(listener.port)] == []
        outcome = sweep.outcome()
        assert outcome.status == 0 and "3 finished of 3 trials" in outcome.out, outcome
        frame = rows(tmp_path)
        assert set(frame["status"]) == {"finished"} and frame["cohort"].nunique() == 3
        wait_until(lambda: len(ray_head.raylets()) == 1, "end of the idle nodes")
