"""A sweep into an object store, as it would go into S3; and what the cluster that trains it opens meanwhile."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sweeper import store
from sweeper.files import Files, StoreError
from tests.sweeper.sweeps import ROOT, Sweep, Sweeps, sweeps

SMALL = [
    *("--axis", "beta=0.5,1", "--axis", "nu=0.5,3", "--set", "normal_class=0", "--set", "epochs=300"),
    *("--cohort", "2", "--save-every", "0.2"),
]
"""4 trials in 2 cohorts."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of a store in a bucket of a real S3 server; the key to it is in the environment alone."""
    server_module = pytest.importorskip("moto.server")
    from pyarrow import fs

    for name, value in {"AWS_ACCESS_KEY_ID": "KEY", "AWS_SECRET_ACCESS_KEY": "HUSH"}.items():
        monkeypatch.setenv(name, value)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        fs.S3FileSystem(
            endpoint_override=f"{host}:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
        ).create_dir("bucket1")
        yield f"s3://bucket1/results?endpoint_override={host}%3A{port}&scheme=http&region=us-east-1"
    finally:
        server.stop()


@pytest.fixture
def run() -> Iterator[Sweeps]:
    yield from sweeps()


def listening(sweep: Sweep) -> dict[str, set[str]]:
    """Name of a process -> the addresses at which it takes connections, of all processes of a sweep."""
    found: dict[str, set[str]] = {}
    for process in sweep.processes():
        for one in process.net_connections(kind="inet"):
            if one.status == psutil.CONN_LISTEN:
                found.setdefault(process.name(), set()).add(f"{one.laddr.ip.removeprefix('::ffff:')}:{one.laddr.port}")
    return found


def ask(address: str, **mine: str) -> subprocess.Popen[str]:
    """Somebody asks the head what it knows."""
    code = "import ray, sys; print(ray._raylet.GcsClient(address=sys.argv[1]).internal_kv_keys(b'', b'', timeout=3))"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, "-c", code, address],
        env={**kept, "RAY_gcs_rpc_server_connect_timeout_s": "2", **mine},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_sweep_into_s3_that_is_continued_and_read(
    run: Sweeps, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # the figures' fonts are known
    monkeypatch.setenv("HOME", str(tmp_path))  # where Ray makes a token
    files = Files(bucket)
    sweep = run.start(bucket, *SMALL)
    sweep.wait_until(lambda: files.list("checkpoints/sweep=anomaly_grid"), "a checkpoint in the bucket")
    open_at = listening(sweep)
    [gcs] = open_at["gcs_server"]
    asked = [
        ask(gcs, RAY_AUTH_MODE="token"),  # who is at home here has it
        ask(gcs, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="f" * 64),
        ask(gcs, RAY_AUTH_MODE="disabled"),
    ]
    told = [one.communicate()[0] for one in asked]
    sweep.kill()

    assert {address.rsplit(":", 1)[0] for one in open_at.values() for address in one} == {"127.0.0.1"}, open_at
    assert [one.returncode == 0 for one in asked] == [True, False, False], told
    assert stat.S_IMODE((tmp_path / ".ray/auth_token").stat().st_mode) == 0o600

    command = [sys.executable, "-m", "sweeper.run", "anomaly_grid", "--preset", "digits", "--store", bucket, *SMALL]
    plan = subprocess.run([*command, "--plan", "--json"], cwd=ROOT, capture_output=True, text=True)
    assert json.loads(plan.stdout)["to run"] == 4, plan
    outcome = run.run(bucket, *SMALL)
    assert outcome.status == 0 and "4 finished of 4 trials" in outcome.out, outcome
    assert "HUSH" not in outcome.out and "rows: s3://bucket1/results/trials/sweep=anomaly_grid\n" in outcome.out
    rows = store.load("anomaly_grid", bucket)
    assert len(rows) == 4 and set(rows["status"]) == {"finished"} and rows["auroc_joint"].notna().all()
    (views,) = files.list("heatmaps/anomaly_grid")
    pictures = files.list(f"heatmaps/anomaly_grid/{views}")
    assert {"auroc_joint.parquet", "auroc_joint.png"} <= set(pictures), pictures
    assert files.list("checkpoints/sweep=anomaly_grid") == []


def test_google_cloud_storage_is_opened_and_named_where_it_does_not_answer() -> None:
    """There is none to test against: that it is asked, and what is said of it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        options = f"endpoint_override=127.0.0.1:{bound.getsockname()[1]}&scheme=http&retry_limit_seconds=0.2"
        files = Files(f"gs://anonymous@bucket1/results?{options}")
        with pytest.raises(StoreError, match=r"store gs://bucket1/results: cannot write '\.probe-.*connect to server"):
            files.check_writable()
    assert files.free_bytes() is None and files.address("a/b") == f"gs://anonymous@bucket1/results/a/b?{options}"
