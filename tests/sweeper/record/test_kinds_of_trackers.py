"""What TensorBoard, MLflow and W&B have of trials, each read by its own reader.

MLflow's is a real server, on the loopback and in a folder of its own. W&B is offline: its file has blocks of 32 KiB,
with records of a header of 7 bytes and a protobuf.
"""

import json
import math
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.commands import run
from sweeper.record.tensorboard import TensorBoard
from sweeper.record.tracker import TrackedTrial
from sweeper.storage.load import load_history
from tests.cases import for_each
from tests.fake_executor import without_ray
from tests.sweeper.record.test_trackers import FIRST, SECOND, row_of
from tests.sweeper.small_sweeps import rows, small_grid
from trainables.worker.messages import CohortTask

pytestmark = pytest.mark.usefixtures("unreported")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that ended without a tracker."""
    folder = tmp_path_factory.mktemp("finished")
    with without_ray(folder):
        assert run.main(small_grid(folder / "store")) == 0
    return folder / "store"


def training(trial: TrackedTrial) -> TrackedTrial:
    """A trial before it has a row: not all of its hyperparameters are known."""
    return replace(trial, hyperparameters={"beta": trial.hyperparameters["beta"]})


# ---- TensorBoard


def events_of(folder: Path) -> Any:
    """What TensorBoard's own reader finds in the folder."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install -e '.[test]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return accumulator


def folder_of(root: Path, trial_id: str) -> Path:
    (folder,) = root.glob(f"*-{trial_id}")
    return folder


def curve(accumulator: Any, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in accumulator.Scalars(name)]


def test_a_trial_has_its_history_hyperparameters_and_final_metrics(tmp_path: Path) -> None:
    tracker = TensorBoard(tmp_path)
    for trial in (FIRST, SECOND):
        assert tracker.start(trial, anew=False) == -1
    tracker.report(FIRST, {1: {"loss": 2.0}})
    tracker.report(SECOND, {1: {"loss": 4.0}})
    tracker.report(FIRST, {2: {"loss": 1.0, "auroc": 0.75}})
    tracker.end(FIRST, row_of(FIRST))
    events = events_of(folder_of(tmp_path, FIRST.id))
    assert curve(events, "loss") == [(1, 2.0), (2, 1.0)] and curve(events, "auroc") == [(2, 0.75)]
    assert curve(events, "seconds") == [(2, 1.5)], "what was not reported is added at the end"
    assert curve(events_of(folder_of(tmp_path, SECOND.id)), "loss") == [(1, 4.0)]
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"beta" in content and b"inf" in content and b"finished" in content
    assert set(tracker.ended()) == {FIRST.id} and math.isinf(float(str(FIRST.hyperparameters["nu"])))


def test_a_trial_that_is_started_again_has_no_point_twice(tmp_path: Path) -> None:
    for _ in range(2):
        tracker = TensorBoard(tmp_path)
        assert tracker.start(FIRST, anew=False) == -1
        tracker.report(FIRST, {1: {"loss": 2.0}, 2: {"loss": 1.0}})
    assert curve(events_of(folder_of(tmp_path, FIRST.id)), "loss") == [(1, 2.0), (2, 1.0)]
    assert tracker.ended() == {}


@pytest.mark.slow
def test_a_sweep_that_was_interrupted_continues_its_tensorboard_runs(tmp_path: Path) -> None:
    command, attempts = [*small_grid(tmp_path / "store"), "--track", f"tensorboard={tmp_path / 'runs'}"], 0

    def interrupt(task: CohortTask) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            raise KeyboardInterrupt

    with without_ray(tmp_path, interrupt):
        assert run.main(command) == 130
    with without_ray(tmp_path):
        assert run.main(command) == 0
    history = load_history("anomaly_grid", tmp_path / "store")
    for trial_id, row in rows(tmp_path / "store", "anomaly_grid").iterrows():
        events = events_of(folder_of(tmp_path / "runs/anomaly_grid", str(trial_id)))
        own = history[history["trial_id"] == trial_id]
        assert {"loss", "auroc_joint"} <= set(own["metric"])
        for metric, reports in own.groupby("metric"):
            points = curve(events, str(metric))
            assert [epoch for epoch, _ in points] == reports["epoch"].tolist()
            assert [value for _, value in points] == pytest.approx(reports["value"].tolist())
        assert curve(events, "auroc_joint")[-1][1] == pytest.approx(row["auroc_joint"])


# ---- MLflow

START_SECONDS = 180.0
"""Longest time, in seconds, that the server may take to start."""
SERVER_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
SERVER_ENVIRONMENT |= {"MLFLOW_ALLOW_FILE_STORE": "true"}  # a new database takes most of the server's start


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
    stores = ["--backend-store-uri", f"file://{folder}/runs", "--default-artifact-root", str(folder)]
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


def mlflow_tracker(server: str, sweep: str) -> Any:
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


@pytest.mark.slow
def test_mlflow_has_the_parameters_history_final_metrics_and_status_of_a_trial(server: str) -> None:
    first = mlflow_tracker(server, "whole")
    for trial in (FIRST, SECOND):
        assert first.start(training(trial), anew=False) == -1
        first.report(trial, {1: {"loss": 2.0}, 2: {"loss": 1.0, "auroc": 0.75}})
    assert runs(server, "whole")[FIRST.id].data.params == {"beta": "0.5"}
    first.end(FIRST, row_of(FIRST))
    first.end(SECOND, row_of(SECOND, status="diverged", error="not finite"))
    found = runs(server, "whole")
    first_run = found[FIRST.id]
    assert first_run.data.params == {"beta": "0.5", "nu": "inf"}
    assert first_run.info.run_name == FIRST.name and first_run.info.status == "FINISHED"
    assert history(server, first_run, "loss") == [(1, 2.0), (2, 1.0)]
    assert history(server, first_run, "auroc") == [(2, 0.75)]
    assert first_run.data.metrics["seconds"] == 1.5 and first_run.data.tags["host"] == "here"
    assert found[SECOND.id].info.status == "FAILED" and found[SECOND.id].data.tags["error"] == "not finite"
    assert set(mlflow_tracker(server, "whole").ended()) == {FIRST.id, SECOND.id}


@pytest.mark.slow
def test_a_run_that_was_cut_off_is_continued_and_one_of_an_earlier_training_is_replaced(server: str) -> None:
    first = mlflow_tracker(server, "parts")
    first.start(FIRST, anew=False)
    first.report(FIRST, {1: {"loss": 2.0}})
    first.close()
    assert runs(server, "parts")[FIRST.id].info.status == "KILLED"
    second = mlflow_tracker(server, "parts")
    other_texts = replace(FIRST, hyperparameters={**FIRST.hyperparameters, "beta": "5e-1"})
    assert second.start(other_texts, anew=False) == 1 and runs(server, "parts")[FIRST.id].info.status == "RUNNING"
    second.report(FIRST, {2: {"loss": 1.0}})
    second.end(other_texts, row_of(FIRST))
    assert history(server, runs(server, "parts")[FIRST.id], "loss") == [(1, 2.0), (2, 1.0)]
    third = mlflow_tracker(server, "parts")
    assert third.start(FIRST, anew=True) == -1
    assert runs(server, "parts")[FIRST.id].data.metrics == {}


@pytest.mark.slow
def test_thousands_of_points_are_sent_in_batches(server: str) -> None:
    many = mlflow_tracker(server, "many")
    many.start(FIRST, anew=False)
    many.report(FIRST, {epoch: {"loss": 1.0, "auroc": 0.5} for epoch in range(700)})
    assert len(history(server, runs(server, "many")[FIRST.id], "auroc")) == 700


@pytest.mark.slow
def test_a_server_that_is_gone_is_an_error_within_seconds(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.exceptions import MlflowException

    mlflow_tracker(server, "whole")  # sets the environment of MLflow
    assert int(os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]) == 1
    with pytest.raises(MlflowException, match="failed with exception"):
        mlflow_tracker(f"http://127.0.0.1:{free_port()}", "whole")


@pytest.mark.slow
@for_each(
    "target", ["http://me:SECRET/PW@127.0.0.1:{}", "http://127.0.0.1:{}/?x=1&api_token=SECRET", "me:SECRETPW@127.0.0.1"]
)
def test_no_line_shows_the_password_of_a_server(target: str, finished: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed: pip install -e '.[test]'")

    arguments = [*small_grid(finished), "--track", f"mlflow={target.format(free_port())}"]
    assert run.main([*arguments, "--track", "mlflow=http://me:SECRETPW@host"]) == 2
    assert run.main(arguments) == 0
    out, err = capfd.readouterr()
    assert "tracker mlflow failed" in out and "127.0.0.1" in out
    assert "SECRET" not in out + err + repr(run.parse_command(arguments)), out + err


@pytest.mark.slow
def test_the_store_of_a_sweep_is_sent_to_a_server(server: str, finished: Path) -> None:
    """A sweep that ended without the tracker is there after the same command with `--track`."""

    for _ in range(2):
        assert run.main([*small_grid(finished), "--track", f"mlflow={server}"]) == 0
    found, stored = runs(server, "anomaly_grid"), rows(finished, "anomaly_grid")
    reports = load_history("anomaly_grid", finished)
    assert set(found) == set(stored.index) and {run.info.status for run in found.values()} == {"FINISHED"}
    for trial_id, row in stored.iterrows():
        assert found[str(trial_id)].data.metrics["auroc_joint"] == row["auroc_joint"]
        assert found[str(trial_id)].data.params["beta"] == str(row["beta"])
        own = reports[(reports["trial_id"] == trial_id) & (reports["metric"] == "loss")]
        assert history(server, found[str(trial_id)], "loss") == [*zip(own["epoch"], own["value"], strict=True)]


# ---- W&B

WRITE_SECONDS = 60.0
"""Longest time, in seconds, that W&B may take to write a run that has ended."""
BLOCK, HEADER = 32768, 7
WHOLE, FIRST_PART, LAST_PART = 1, 2, 4
"""Types of the parts of a record that does not fit into a block."""


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    pytest.importorskip("wandb", reason="wandb is not installed: pip install -e '.[test]'")


def wandb_tracker() -> Any:
    from sweeper.record.wandb import WandB

    return WandB("project")


def records(file: Path) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, content = file.read_bytes(), HEADER, b""
    while position + HEADER <= len(data):
        rest = BLOCK - position % BLOCK
        if rest < HEADER:
            position += rest
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + HEADER])
        part = data[position + HEADER : position + HEADER + length]
        content, position = part if kind in (WHOLE, FIRST_PART) else content + part, position + HEADER + length
        if kind in (WHOLE, LAST_PART) and position <= len(data):
            yield Record.FromString(content)


def run_of(folder: Path, trial_id: str) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], int]:
    """Configuration, history, summary and exit status of the only run of a trial, once it is written: W&B's own process
    still writes when `finish` has returned."""
    deadline = time.monotonic() + WRITE_SECONDS
    while (status := (found := run_so_far(folder, trial_id))[3]) is None:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return *found[:3], status


def run_so_far(folder: Path, trial_id: str) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], int | None]:
    """What is written so far of the only run of a trial; the exit status is None before its end."""
    config: dict[str, Any] = {}
    history: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    status = None
    files = list(folder.glob(f"wandb/offline-run-*-{trial_id}/*.wandb"))
    assert len(files) <= 1
    for record in (record for file in files for record in records(file)):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "config":
            config |= values(record.config.update)
        elif kind == "history":
            history.append(values(record.history.item))
        elif kind == "summary":
            summary |= values(record.summary.update)
        elif kind == "exit":
            status = record.exit.exit_code
    return config, history, summary, status


def values(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_wandb_has_the_configuration_history_summary_and_status_of_a_trial(tmp_path: Path) -> None:
    first = wandb_tracker()
    for trial in (FIRST, SECOND):
        assert first.start(training(trial), anew=False) == -1
    for trial in (FIRST, SECOND):
        first.report(trial, {1: {"loss": 2.0}, 2: {"loss": 1.0}})
    first.end(FIRST, row_of(FIRST))
    first.end(SECOND, row_of(SECOND, status="failed", error="out of luck"))
    config, history, summary, status = run_of(tmp_path, FIRST.id)
    assert {key: config[key] for key in FIRST.hyperparameters} == {"beta": 0.5, "nu": "inf"}
    assert [(point["_step"], point["loss"]) for point in history] == [(1, 2.0), (2, 1.0)]
    assert (summary["auroc"], summary["status"], status) == (0.75, "finished", 0)
    assert run_of(tmp_path, SECOND.id)[2]["error"] == "out of luck" and run_of(tmp_path, SECOND.id)[3] == 1
    assert set(wandb_tracker().ended()) == {FIRST.id, SECOND.id}


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_a_wandb_run_that_is_started_again_is_one_run_with_all_points_once(tmp_path: Path) -> None:
    first = wandb_tracker()
    first.start(FIRST, anew=False)
    first.report(FIRST, {1: {"loss": 2.0}})
    first.close()
    assert first.ended() == {}
    second = wandb_tracker()
    assert second.start(FIRST, anew=False) == -1, "offline a run is written again as a whole"
    second.report(FIRST, {1: {"loss": 2.0}, 2: {"loss": 1.0}})
    second.end(FIRST, row_of(FIRST))
    assert [point["_step"] for point in run_of(tmp_path, FIRST.id)[1]] == [1, 2]
