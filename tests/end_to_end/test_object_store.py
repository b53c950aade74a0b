"""A sweep into an object store, as it would run with S3."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeper.commands.run import main
from sweeper.errors import StoreError
from sweeper.storage import load
from sweeper.storage.files import Files
from sweeper.storage.store import check_free_space, check_writable
from tests.fake_executor import without_ray
from trainables.training.cohort import TrainingCohort

SMALL = [
    *("--axis", "beta=0.5,1", "--axis", "nu=0.5,3", "--set", "normal_class=0", "--set", "epochs=20"),
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


@pytest.mark.slow
def test_a_sweep_into_s3_that_goes_on_from_its_checkpoint_and_is_read(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files, first_steps, failures = Files(bucket), 0, 0
    train_step = TrainingCohort.step

    def fail_once(cohort: TrainingCohort, epoch: int, step: int, *arguments: Any) -> Any:
        """Fail once there is a checkpoint in the bucket."""
        nonlocal first_steps, failures
        first_steps += epoch == step == 0
        if not failures and step == 0 and files.list("checkpoints/sweep=anomaly_grid"):
            failures += 1
            raise RuntimeError("out of luck")
        return train_step(cohort, epoch, step, *arguments)

    monkeypatch.setattr(TrainingCohort, "step", fail_once)
    command = ["anomaly_grid", "--preset", "digits", "--store", bucket, *SMALL]
    with without_ray(tmp_path):
        status = main(command)
    out, err = capsys.readouterr()
    assert status == 0 and err == "" and "4 finished of 4 trials" in out, out + err
    assert "goes on from its checkpoint" in out and "HUSH" not in out, out
    assert 'rows: pd.read_parquet("s3://bucket1/results/trials/sweep=anomaly_grid?endpoint_override=' in out, out
    assert failures == 1 and first_steps == 2, "each of the two cohorts begins once"
    assert main([*command, "--plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["to run"] == 0
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
            StoreError, match=r"store gs://bucket1/results\?[^ ]*: cannot write '\.write-check-.*connect to server"
        ):
            check_writable(files)
    check_free_space(files)  # an object store has no disk that could be full
    assert files.uri_of("a/b") == f"gs://anonymous@bucket1/results/a/b?{options}"
