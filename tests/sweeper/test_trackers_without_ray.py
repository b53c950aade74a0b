"""Whole sweeps with `--track`, in this process."""

import importlib.util
from pathlib import Path

import pytest

import sweeper.run as run
from sweeper.errors import SpecError
from sweeper.record import trackers
from sweeper.record.trackers import Tracker
from sweeper.request import TrackRequest
from sweeper.storage.files import Files
from sweeper.storage.load import load_history
from sweeper.storage.store import Store
from tests.fake_executor import without_ray
from tests.sweeper.cli.refusals import command_line_of
from tests.sweeper.record.test_tensorboard import curve, folder_of, read
from tests.sweeper.small_sweeps import rows, small_grid
from trainables.worker.messages import CohortTask


def test_a_sweep_that_was_interrupted_continues_its_runs(tmp_path: Path) -> None:
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
        events = read(folder_of(tmp_path / "runs/anomaly_grid", str(trial_id)))
        own = history[history["trial_id"] == trial_id]
        assert {"loss", "auroc_joint"} <= set(own["metric"])
        for metric, reports in own.groupby("metric"):
            points = curve(events, str(metric))
            assert [epoch for epoch, _ in points] == reports["epoch"].tolist()
            assert [value for _, value in points] == pytest.approx(reports["value"].tolist())
        assert curve(events, "auroc_joint")[-1][1] == pytest.approx(row["auroc_joint"])


def test_a_tracker_that_fails_changes_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect() -> Tracker:
        raise ConnectionError("the server is gone")

    with without_ray(tmp_path):
        assert run.main(small_grid(tmp_path / "plain")) == 0
        monkeypatch.setitem(trackers._CONNECT, "mlflow", lambda *_: connect)
        assert run.main([*small_grid(tmp_path / "tracked"), "--track", "mlflow"]) == 0
    assert capsys.readouterr().out.count("the server is gone") == 1
    assert rows(tmp_path / "tracked", "anomaly_grid").equals(rows(tmp_path / "plain", "anomaly_grid"))


@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        (
            ["tensorboad"],
            "no tracker 'tensorboad' (did you mean 'tensorboard'?); there are: tensorboard, mlflow, wandb",
        ),
        (["tensorboard="], "--track tensorboard= must name a target, but got ''"),
        (["tensorboard", "tensorboard=x"], "--track must be given once per tracker, but got tensorboard twice"),
        (["mlflow"], "--track mlflow needs a server: --track mlflow=http://HOST:PORT, or set MLFLOW_TRACKING_URI"),
        (["wandb"], "--track wandb needs a key"),
    ],
)
def test_wrong_requests_are_refused(
    arguments: list[str],
    law: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    command_line = command_line_of(tmp_path, capsys, monkeypatch)
    assert law in command_line.refuse(*(word for text in arguments for word in ("--track", text))).error


def test_a_missing_package_is_refused_with_how_to_install_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refused = command_line_of(tmp_path, capsys, monkeypatch).refuse("--track", "mlflow=http://127.0.0.1:5000")
    law = "--track mlflow needs the package mlflow, which is not installed; the extra track-mlflow has it: pip install "
    assert refused.error.startswith(f"{law}'mlflow-skinny>=") or refused.error == f"{law}mlflow", "not installed"


def test_a_store_that_is_no_folder_needs_one_for_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "local_folder", None)
    with pytest.raises(SpecError, match="the store is none: --track tensorboard=DIR"):
        trackers.connections([TrackRequest("tensorboard")], "anomaly_grid", Store(tmp_path))
