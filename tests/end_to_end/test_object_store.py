"""A sweep into an object store, as it would run with S3; and the ports that its cluster opens meanwhile."""

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

from sweeper.errors import StoreError
from sweeper.run import main
from sweeper.storage import load
from sweeper.storage.files import Files
from sweeper.storage.store import check_free_space, check_writable
from tests.end_to_end.sweeps import Sweeps, listening, resume, tells_metrics

SMALL = [
    *("--axis", "beta=0.5,1", "--axis", "nu=0.5,3", "--set", "normal_class=0", "--set", "epochs=40"),
    *("--cohort", "2", "--save-every", "0.05"),
]
"""4 trials in 2 cohorts."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of a store in a bucket of a real S3 server, whose key is in the environment alone."""
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


def ask(address: str, **variables: str) -> subprocess.Popen[str]:
    """Ask the head at this address for its keys, in a process with these variables."""
    code = "import ray, sys; print(ray._raylet.GcsClient(address=sys.argv[1]).internal_kv_keys(b'', b'', timeout=60))"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, "-c", code, address],
        env={**inherited, "RAY_gcs_rpc_server_connect_timeout_s": "2", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_a_sweep_into_s3_that_goes_on_from_its_checkpoint_and_is_read(
    sweeps: Sweeps,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where Ray makes a token
    files = Files(bucket)
    sweep = sweeps.start(bucket, *SMALL, cores=1)
    trainers = list[psutil.Process]()

    def caught() -> bool:
        """No cohort ends while the head is asked."""
        trainers[:] = sweep.suspend()
        if trainers and files.list("checkpoints/sweep=anomaly_grid"):
            return True
        resume(trainers)
        return False

    sweep.wait_until(caught, "a checkpoint in the bucket")
    ports = listening(sweep.processes())
    open_metrics = [listener for listener in ports if tells_metrics(listener.port)]
    [gcs] = [f"{listener.address}:{listener.port}" for listener in ports if listener.process == "gcs_server"]
    clients = [
        ask(gcs, RAY_AUTH_MODE="token"),  # Ray reads the token from this home
        ask(gcs, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="f" * 64),
        ask(gcs, RAY_AUTH_MODE="disabled"),
    ]
    outputs = [client.communicate()[0] for client in clients]
    trainers[0].kill()
    outcome = sweep.outcome()

    assert {listener.address for listener in ports} == {"127.0.0.1"} and open_metrics == [], ports
    assert [client.returncode == 0 for client in clients] == [True, False, False], outputs
    assert stat.S_IMODE((tmp_path / ".ray/auth_token").stat().st_mode) == 0o600

    assert main(["anomaly_grid", "--preset", "digits", "--store", bucket, *SMALL, "--plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["to run"] == 0
    assert outcome.status == 0 and "4 finished of 4 trials" in outcome.out, outcome
    assert "goes on from its checkpoint" in outcome.out, outcome
    assert (
        "HUSH" not in outcome.out
        and "rows: s3://bucket1/results/trials/sweep=anomaly_grid?endpoint_override=" in outcome.out
    )
    rows = load.load("anomaly_grid", bucket)
    assert len(rows) == 4 and set(rows["status"]) == {"finished"} and rows["auroc_joint"].notna().all()
    (views,) = files.list("heatmaps/anomaly_grid")
    pictures = files.list(f"heatmaps/anomaly_grid/{views}")
    assert {"auroc_joint.parquet", "auroc_joint.png"} <= set(pictures), pictures
    assert files.list("checkpoints/sweep=anomaly_grid") == []


def test_google_cloud_storage_is_opened_and_named_where_it_does_not_answer() -> None:
    """No server is available, so this checks only that the endpoint is asked, and the error that names the store."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        options = f"endpoint_override=127.0.0.1:{bound.getsockname()[1]}&scheme=http&retry_limit_seconds=0.2"
        files = Files(f"gs://anonymous@bucket1/results?{options}")
        with pytest.raises(
            StoreError, match=r"store gs://bucket1/results\?[^ ]*: cannot write '\.probe-.*connect to server"
        ):
            check_writable(files)
    check_free_space(files)  # an object store has no disk that could be full
    assert files.uri_of("a/b") == f"gs://anonymous@bucket1/results/a/b?{options}"
