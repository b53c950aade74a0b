"""The command line in this process: plans, the list of sweeps, and a store that is gone. No Ray is started."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.commands import preview, run
from sweeper.commands.arguments import parse
from sweeper.commands.command_line import EXIT_FAILED
from sweeper.commands.sweep_run import SweepRun
from sweeper.errors import StoreError
from sweeper.execution.signals import StopSignal
from sweeper.storage.files import Files


def plan(store: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What `--plan --json` says, in this process."""
    command = ["anomaly_grid", "--preset", "digits", "--store", str(store), *arguments, "--plan", "--json"]
    assert run.main(command) == 0
    content: dict[str, object] = json.loads(capsys.readouterr().out)
    return content


def test_a_plan_runs_nothing_and_counts_trials_and_cohorts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = plan(tmp_path, [], capsys)
    assert (planned["trials"], planned["to run"], planned["cohorts"]) == (560, 560, None)
    planned = plan(tmp_path, ["--cohort", "56"], capsys)
    assert (planned["cohorts"], planned["cohort_sizes"]) == (10, [56])
    assert list(tmp_path.iterdir()) == []


def test_data_are_looked_for_in_the_folder_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While Ray is connected the working folder is another, for a plan that measures, too."""
    monkeypatch.setattr(preview, "outline", lambda request, *_: {"data": request.data})
    monkeypatch.setattr(preview, "text", lambda outline, _: outline["data"])
    monkeypatch.chdir(tmp_path)
    arguments = ["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), "--data", "here", "--plan"]
    assert run.main(arguments) == 0 and capsys.readouterr().out == f"{tmp_path / 'here'}\n"


def test_a_plan_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), "--plan"]) == 0
    out, err = capsys.readouterr()
    assert "560: 0 finished" in out and "560 to run" in out and err == "" and list(tmp_path.iterdir()) == []


def test_the_list_names_every_sweep_with_its_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == 0
    out, _ = capsys.readouterr()
    assert "anomaly_grid: " in out and "paper (560 trials), digits (560 trials)" in out


def test_the_loss_of_the_store_is_one_line_that_says_how_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("store gone: cannot write 'x'")

    request = parse(["anomaly_grid", "--preset", "digits", "--store", str(tmp_path)])
    started = SweepRun.planned(request).begin(StopSignal())
    monkeypatch.setattr(SweepRun, "_train_all", fail)
    for method in ("list", "list_files", "list_versions"):
        monkeypatch.setattr(Files, method, fail)
    assert started.execute() == EXIT_FAILED
    out, error = capsys.readouterr()
    assert error == "error: store gone: cannot write 'x'\n"
    assert out == f"stopped: what is in {tmp_path} cannot be read now; the same command continues\n"


@pytest.mark.slow
def test_a_wrong_name_is_refused_before_pytorch_is_imported() -> None:
    """Which takes seconds."""
    code = "import sys; from sweeper.commands import run; print(run.main(['anomaly_gird']), 'torch' in sys.modules)"
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert refused.stdout.split() == ["2", "False"] and "did you mean 'anomaly_grid'" in refused.stderr
