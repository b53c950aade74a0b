"""Runs on a real MLflow server, on the loopback and in a folder of its own."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeper.storage.load import load_history
from tests.sweeper.record.tracked import FIRST, SECOND, row_of

pytestmark = pytest.mark.slow

START_SECONDS = 180.0
"""Longest time, in seconds, that the server may take to start."""
SERVER_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed: pip install -e '.[test]'")
    pytest.importorskip("flask", reason="MLflow's server needs Flask: pip install -e '.[test]'")
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    options = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    stores = ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--default-artifact-root", str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *options, *stores],
            cwd=folder,
            env=os.environ | SERVER_ENVIRONMENT,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(port):
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def answers(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def tracker(server: str, sweep: str) -> Any:
    from sweeper.record.mlflow import MLflow

    return MLflow(server, sweep)


def runs(server: str, sweep: str) -> dict[str, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(server)
    found = client.search_runs([client.get_experiment_by_name(sweep).experiment_id])
    assert len({run.data.tags["sweeper.trial"] for run in found}) == len(found), "one run per trial"
    return {run.data.tags["sweeper.trial"]: run for run in found}


def history(server: str, run: Any, metric: str) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    return [(point.step, point.value) for point in MlflowClient(server).get_metric_history(run.info.run_id, metric)]


def test_a_trial_has_its_parameters_history_final_metrics_and_status(server: str) -> None:
    first = tracker(server, "whole")
    for trial in (FIRST, SECOND):
        assert first.start(trial, anew=False) == -1
        first.report(trial, {1: {"loss": 2.0}, 2: {"loss": 1.0, "auroc": 0.75}})
    first.end(FIRST, row_of(FIRST))
    first.end(SECOND, row_of(SECOND, status="diverged", error="not finite"))
    found = runs(server, "whole")
    run = found[FIRST.id]
    assert run.data.params == {"beta": "0.5", "nu": "inf", "normal_class": "none"}
    assert run.info.run_name == FIRST.name and run.info.status == "FINISHED"
    assert history(server, run, "loss") == [(1, 2.0), (2, 1.0)] and history(server, run, "auroc") == [(2, 0.75)]
    assert run.data.metrics["seconds"] == 1.5 and run.data.tags["host"] == "here"
    assert found[SECOND.id].info.status == "FAILED" and found[SECOND.id].data.tags["error"] == "not finite"
    assert set(tracker(server, "whole").ended()) == {FIRST.id, SECOND.id}


def test_a_run_that_was_cut_off_is_continued_and_one_of_an_earlier_training_is_replaced(server: str) -> None:
    first = tracker(server, "parts")
    first.start(FIRST, anew=False)
    first.report(FIRST, {1: {"loss": 2.0}})
    first.close()
    assert runs(server, "parts")[FIRST.id].info.status == "KILLED"
    second = tracker(server, "parts")
    assert second.start(FIRST, anew=False) == 1 and runs(server, "parts")[FIRST.id].info.status == "RUNNING"
    second.report(FIRST, {2: {"loss": 1.0}})
    second.end(FIRST, row_of(FIRST))
    assert history(server, runs(server, "parts")[FIRST.id], "loss") == [(1, 2.0), (2, 1.0)]
    third = tracker(server, "parts")
    assert third.start(FIRST, anew=True) == -1
    assert runs(server, "parts")[FIRST.id].data.metrics == {}


def test_thousands_of_points_are_sent_in_batches(server: str) -> None:
    many = tracker(server, "many")
    many.start(FIRST, anew=False)
    many.report(FIRST, {epoch: {"loss": 1.0, "auroc": 0.5} for epoch in range(700)})
    assert len(history(server, runs(server, "many")[FIRST.id], "auroc")) == 700


def test_a_server_that_is_gone_is_an_error_within_seconds(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.exceptions import MlflowException

    tracker(server, "whole")  # sets the environment of MLflow
    assert int(os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]) == 1
    with pytest.raises(MlflowException, match="failed with exception"):
        tracker(f"http://127.0.0.1:{free_port()}", "whole")


@pytest.mark.parametrize(
    "target", ["http://me:SECRET/PW@127.0.0.1:{}", "http://127.0.0.1:{}/?x=1&api_token=SECRET", "me:SECRETPW@127.0.0.1"]
)
def test_no_line_shows_the_password_of_a_server(target: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed: pip install -e '.[test]'")
    import sweeper.run as run
    from tests.fake_executor import without_ray
    from tests.sweeper.small_sweeps import small_grid

    arguments = [*small_grid(tmp_path), "--track", f"mlflow={target.format(free_port())}"]
    with without_ray(tmp_path):
        assert run.main([*arguments, "--track", "mlflow=http://me:SECRETPW@host"]) == 2
        assert run.main(arguments) == 0
    out, err = capfd.readouterr()
    assert "tracker mlflow failed" in out and "127.0.0.1" in out
    assert "SECRET" not in out + err + repr(run.parse_command(arguments)), out + err


def test_the_store_of_a_sweep_is_sent_to_a_server(server: str, tmp_path: Path) -> None:
    """A sweep that ended without the tracker is there after the same command with `--track`."""
    import sweeper.run as run
    from tests.fake_executor import without_ray
    from tests.sweeper.small_sweeps import rows, small_grid

    arguments = small_grid(tmp_path / "store")
    with without_ray(tmp_path):
        assert run.main(arguments) == 0
    for _ in range(2):
        assert run.main([*arguments, "--track", f"mlflow={server}"]) == 0
    found, stored = runs(server, "anomaly_grid"), rows(tmp_path / "store", "anomaly_grid")
    reports = load_history("anomaly_grid", tmp_path / "store")
    assert set(found) == set(stored.index) and {run.info.status for run in found.values()} == {"FINISHED"}
    for trial_id, row in stored.iterrows():
        assert found[str(trial_id)].data.metrics["auroc_joint"] == row["auroc_joint"]
        assert found[str(trial_id)].data.params["beta"] == str(row["beta"])
        own = reports[(reports["trial_id"] == trial_id) & (reports["metric"] == "loss")]
        assert history(server, found[str(trial_id)], "loss") == [*zip(own["epoch"], own["value"], strict=True)]
