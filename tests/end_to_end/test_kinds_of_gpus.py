"""A sweep on a cluster with two kinds of fake GPU, from their measurement to the rows."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from tests.end_to_end.sweeps import rows
from trainables.worker.ray_train import SIMULATED

ARGUMENTS = [
    *("--axis", "normal_class=0", "--axis", "beta=0.5,1", "--axis", "nu=0.5,3,20"),
    *("--set", "epochs=2", "--set", "report_every=2"),
]
"""6 trials in 3 cohorts."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="k-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)  # `Cluster` writes its address into `ray` below it, which must exist
        home = Path(folder, "ray")
        home.mkdir()
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "temp_dir": str(home)}
        )
        try:
            cluster.add_node(num_cpus=2, num_gpus=1, resources={"accelerator_type:A": 1, SIMULATED: 1})
            cluster.add_node(num_cpus=1, num_gpus=1, resources={"accelerator_type:B": 1, SIMULATED: 1})
            yield cluster.address
        finally:
            cluster.shutdown()


def _run(*arguments: str) -> str:
    """The output of a command that ends well, in a new process: this one may have used a cluster with a token, and then
    none without one can call it."""
    command = [sys.executable, "-m", "sweeper.run", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0 and ended.stderr == "", ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow
@pytest.mark.soak
def test_each_kind_is_measured_and_cohorts_go_to_both(address: str, tmp_path: Path) -> None:
    """`test_gpus_are_told_apart_and_cores_beside_them_are_theirs` of `test_cluster.py` and the tests of
    `test_allocate.py` assert the kinds, `test_a_gpu_is_measured_by_a_worker_that_has_it_for_itself_and_then_ends` the
    measurement."""
    arguments = ["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), *ARGUMENTS, "--cohort", "2"]
    out = _run(*arguments, "--address", address)
    assert set(rows(tmp_path)["status"]) == {"finished"}
    devices = json.loads(next((tmp_path / "profiles/devices").iterdir()).read_text())
    assert [(info["kind"]["accelerator"], info["kind"]["cores"]) for info in devices] == [("A", 2.0), ("B", 1.0)]
    profiles = [json.loads(path.read_text()) for path in (tmp_path / "profiles").glob("*.json")]
    assert sorted(profile["threads"] for profile in profiles) == [1, 2]
    assert all(profile["measured"] for profile in profiles)
    overlaps = {profile["threads"]: profile["overlap"] for profile in profiles}
    assert not overlaps[1] and overlaps[2] and all(list(ratios) == ["2"] for ratios in overlaps[2].values())
    planned = [*arguments, "--address", address, "--fresh", "--plan", "--json", "--node-price", "3600"]
    plan = json.loads(_run(*planned))
    assert f"{plan['at_a_time']} at a time" in out and plan["hours"] > 0
    assert plan["cost"] == pytest.approx(3600 * plan["hours"] * len(plan["places"]))
