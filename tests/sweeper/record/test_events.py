"""The events of a run as lines of JSON, and the command that a run ends with."""

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from sweeper.commands import on_end, run
from sweeper.errors import SpecError
from sweeper.record.events import EVENTS, name_of
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import small_grid
from trainables.worker.messages import CohortTask

pytestmark = pytest.mark.usefixtures("unreported")
OF_EVENT: Mapping[str, set[str]] = {
    name_of(kind): {"event", "time", *(each.name for each in fields(kind))} for kind in EVENTS
}


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def fail_once(failed: list[str]) -> Any:
    """Fails the first attempt at the first cohort, and all attempts at trials with a beta of 1."""

    def fail(task: CohortTask) -> None:
        if not failed or any(config.flat()["beta"] == 1.0 for config in task.spec.configs()):
            failed.append(task.cohort)
            raise RuntimeError("out of luck")

    return fail


def test_a_run_prints_an_object_for_each_event_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with without_ray(tmp_path, fail_once([])):
        assert run.main(small_grid(tmp_path / "store", "--json", "--retries", "1")) == 1
    out, err = capsys.readouterr()
    found = lines(out)
    assert "4 finished, 2 failed of 6 trials" in err and "best auroc_joint" in err
    for each in found:
        assert {*each} == OF_EVENT[each["event"]], each["event"]
    events = [each["event"] for each in found]
    assert events[0] == "run_begun" and events[-1] == "run_ended"
    assert {"cohort_started", "cohort_retried", "cohort_split", "cohort_failed", "trial_ended"} <= {*events}
    begun, end = found[0], found[-1]
    assert (begun["sweep"], begun["request"], begun["total"], begun["left"]) == (
        *("anomaly_grid", "digits, epochs=2 seed=0,1"),
        *(6, 6),
    )
    assert (end["exit_status"], end["reason"], end["counts"], end["left"]) == (1, None, {"finished": 4, "failed": 2}, 2)
    assert Path(begun["log"]).exists() and begun["log"] == end["log"]
    assert Path(end["page"]).exists() and end["best"].startswith("best auroc_joint")
    trials = {each["trial"]: each for each in found if each["event"] == "trial_ended"}
    assert len(trials) == 6
    for each in trials.values():
        keys = {*each["hyperparameters"]}
        assert {"beta", "seed", "method"} <= keys and not keys & {*each["metrics"], "preset", "status"}
        if each["status"] == "finished":
            assert 0 <= each["metrics"]["auroc_joint"] <= 1 and each["error"] is None
        else:
            assert each["error"] == "RuntimeError: out of luck"
    split = next(each for each in found if each["event"] == "cohort_split")
    assert (split["cause"], split["reason"], len(split["parts"])) == ("error", "RuntimeError: out of luck", 2)


def test_an_interrupted_run_says_so_in_its_last_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_: CohortTask) -> None:
        raise KeyboardInterrupt

    with without_ray(tmp_path, interrupt):
        assert run.main(small_grid(tmp_path / "store", "--json")) == 130
    end = lines(capsys.readouterr().out)[-1]
    assert (end["event"], end["exit_status"], end["reason"]) == ("run_ended", 130, "interrupted")
    assert (end["counts"], end["left"], end["best"]) == ({}, 6, None)


def test_a_request_that_is_refused_prints_no_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([*small_grid(tmp_path), "--json", "--axis", "lr=x"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ")


def test_the_command_at_the_end_gets_the_last_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "a notice"
    program.write_text(f"#!{sys.executable}\nimport sys\nopen(sys.argv[1], 'w').write(sys.stdin.read())\nprint('sent')")
    program.chmod(0o700)
    command = shlex.join([str(program), str(tmp_path / "it's ended; $HOME")])
    with without_ray(tmp_path):
        assert run.main(small_grid(tmp_path / "store", "--on-end", command)) == 0
    end = json.loads((tmp_path / "it's ended; $HOME").read_text())
    assert {*end} == OF_EVENT["run_ended"] and (end["exit_status"], end["counts"]) == (0, {"finished": 6})
    out, err = capsys.readouterr()
    assert "sent" in err and "6 finished of 6 trials" in out


def test_a_command_that_fails_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    on_end.run([sys.executable, "-c", "import sys; sys.exit(3)"], "{}")
    on_end.run(["/nowhere/notify"], "{}")
    monkeypatch.setattr(on_end, "LONGEST", 0.2)
    on_end.run([sys.executable, "-c", "import time; time.sleep(60)"], "{}")
    failed, absent, late = capsys.readouterr().err.splitlines()
    assert failed == f"error: --on-end {sys.executable} ended with status 3"
    assert absent.startswith("error: --on-end /nowhere/notify cannot be run: ")
    assert late == f"error: --on-end {sys.executable} was ended after 0 s"


def test_a_command_that_does_not_exist_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--on-end must name a program on PATH or the path of one, but got 'notfy'"):
        on_end.check(["notfy", "me"])
    assert run.main(small_grid(tmp_path / "store", "--on-end", "/nowhere/notify")) == 2
    assert not (tmp_path / "store").exists()


def test_the_guide_has_the_fields_of_every_object() -> None:
    text = (Path(__file__).parents[3] / "sweeper/guides/operations.md").read_text()
    for kind in EVENTS:
        (line,) = re.findall(rf"^\| `{name_of(kind)}` .*$", text, re.MULTILINE)
        assert all(f"`{each.name}`" in line for each in fields(kind))
