"""Commands in other languages, each a process."""

import contextlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest
import torch

from tests.cases import for_each
from trainables import catalog
from trainables.config import keys, resolve
from trainables.functions.cohort import FunctionCallbacks, FunctionCohort
from trainables.functions.command import Command, keys_of
from trainables.functions.method import FunctionMethod
from trainables.reports import EpochRanking, Member, Report, Stopped, Verdict
from trainables.sections import Value

PYTHON = sys.executable
COUNT = """
import json, os, sys
report, folder = os.environ["SWEEPER_REPORT"], os.environ["SWEEPER_CHECKPOINT"]
state = os.path.join(folder, "epoch")
start = int(open(state).read()) if os.path.exists(state) else 0
print("begins after", start, flush=True)
for epoch in range(start + 1, int(sys.argv[1]) + 1):
    with open(state + ".new", "w") as file:
        file.write(str(epoch))
    os.rename(state + ".new", state)
    with open(report, "a") as file:
        print(json.dumps({"epoch": epoch, "loss": 1 / epoch}), file=file)
    if len(sys.argv) > 2:
        __import__("time").sleep(float(sys.argv[2]))
"""


def run(
    command: str,
    folder: Path,
    checkpoint: bytes | None = None,
    callbacks: Mapping[str, Any] = MappingProxyType({}),
    **values: Value,
) -> tuple[Member, list[tuple[int, Any]], list[bytes]]:
    """The member of a trial of a command, its reports, and its checkpoints."""
    method = catalog.import_method(command, {key: [value] for key, value in values.items()})
    assert issubclass(method, FunctionMethod)
    reports, saved = list[Report](), list[bytes]()
    config = resolve({"method": command, **values})
    own = FunctionCallbacks(reports.append, save=saved.append, **{"save_every": 0.0, **callbacks})
    ranking = EpochRanking("loss", maximize=False)
    cohort = FunctionCohort([config], method, torch.device("cpu"), own, ranking=ranking, folder=str(folder))
    with contextlib.suppress(Stopped):
        cohort.train(checkpoint)
    records = {record.epoch: record.metrics for report in reports for record in report.new}
    return cohort._members[0].as_member(), sorted(records.items()), saved


@pytest.fixture
def count(tmp_path: Path) -> Path:
    (tmp_path / "count.py").write_text(COUNT)
    return tmp_path


def test_keys_are_the_names_in_braces_with_the_types_of_their_values() -> None:
    command = Command("train {lr} --seed={seed} {name} {both} {{literal}}")
    catalog.import_method(command, {"lr": [1, 0.5], "seed": [1, 2], "name": ["a", 1], "both": [True]})
    known = keys(command)
    assert {key: known[key] for key in keys_of("{lr} {seed} {name} {both}")} == {
        "lr": float, "seed": int, "name": str, "both": bool
    }  # fmt: skip


@for_each("line", ["train", "train {}", "train {0}", "train {a.b}", "train '{lr}", "train {lr"])
def test_a_line_without_keys_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="a command must"):
        Command(line)


def test_a_command_reports_by_its_file(count: Path) -> None:
    member, reports, _ = run(Command(f"{PYTHON} count.py {{epochs}}"), count, epochs=3)
    assert (member.status, member.epochs_run, member.metrics) == ("finished", 3, {"loss": 1 / 3})
    assert reports == [(epoch, {"loss": 1 / epoch}) for epoch in (1, 2, 3)]


def test_no_value_is_read_by_a_shell(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(
        "import json, sys\nprint(json.dumps({'loss': len(sys.argv), 'length': len(sys.argv[1])}))"
    )
    command = Command(f"{PYTHON} words.py {{text}} --x={{text}} {{{{a}}}}", metrics_from="stdout")
    for text in ("a b", "$(touch pwned)", "'; touch pwned; '", '"', "{lr}", "*", "", "`id`", "\\n"):
        member, _, _ = run(command, tmp_path, text=text)
        assert (member.status, member.metrics) == ("finished", {"loss": 4.0, "length": float(len(text))}), member.error
    assert not (tmp_path / "pwned").exists()


def test_other_lines_of_standard_output_are_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "say.py").write_text("print('hello'); print('{\"loss\": 1}'); print('[1]'); print('bye')")
    member, _, _ = run(Command(f"{PYTHON} say.py {{seed}}", metrics_from="stdout"), tmp_path, seed=0)
    assert member.metrics == {"loss": 1.0} and capsys.readouterr().out == "hello\n[1]\nbye\n"


@for_each(("code", "error"), [
    ("import sys; print('one', file=sys.stderr); sys.exit('no data')", "ended with status 1: no data"),
    ("import os; os.kill(os.getpid(), 9)", "ended with status -9: it printed no error"),
    ("import os; open(os.environ['SWEEPER_REPORT'], 'w').write('loss 1')", "must be a JSON object of numbers"),
    ("import os; open(os.environ['SWEEPER_REPORT'], 'w').write('[1]')", "must be a JSON object of numbers"),
    ("import os; open(os.environ['SWEEPER_REPORT'], 'w').write('{\"loss\": \"low\"}')", "loss is str 'low'"),
    ("", "but it ended without a report"),
])  # fmt: skip
def test_what_goes_wrong_is_its_error(code: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(code)
    member, _, _ = run(Command(f"{PYTHON} code.py {{seed}}"), tmp_path, seed=0)
    assert member.status == "failed" and error in str(member.error)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    member, _, _ = run(Command("no-such-program {seed}"), tmp_path, seed=0)
    assert (member.status, member.error) == (
        "failed",
        "no-such-program cannot be started: No such file or directory",
    )


def test_a_format_of_a_key_has_no_keys_of_its_own() -> None:
    assert keys_of("train {rate:.3f}") == ("rate",)
    with pytest.raises(ValueError, match="a command must contain a key in braces"):
        Command("train {rate:{width}}")


def test_a_command_goes_on_from_its_folder(count: Path) -> None:
    """It is stopped where it has reported some epochs, and continued from every checkpoint that was written."""
    command = Command(f"{PYTHON} count.py {{epochs}} 0.05")
    asked = iter([False] * 20)
    _, before, saved = run(command, count, epochs=12, callbacks={"stop": lambda: next(asked, True)})
    assert saved and len(before) < 12
    for checkpoint in saved[:: max(1, len(saved) // 3)]:
        member, reports, _ = run(command, count, epochs=12, checkpoint=checkpoint)
        assert member.status == "finished" and [epoch for epoch, _ in reports] == [*range(1, 13)]


def test_a_pruned_command_ends_with_all_its_processes(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open('child', 'w').write(str(child.pid))\n"
        "open(os.environ['SWEEPER_REPORT'], 'w').write('{\"epoch\": 1, \"loss\": 1}\\n')\n"
        "time.sleep(600)\n"
    )
    judge = {"judge": lambda report: Verdict(pruned={0: "too high"}), "compared": lambda epoch: epoch == 1}
    member, _, _ = run(Command(f"{PYTHON} slow.py {{seed}}"), tmp_path, seed=0, callbacks=judge)
    assert member.status == "pruned"
    child, deadline = int((tmp_path / "child").read_text()), time.monotonic() + 60
    while _lives(child):  # the kernel ends what was killed a moment later; by itself it sleeps ten minutes
        assert time.monotonic() < deadline, "a process of the command goes on"
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
