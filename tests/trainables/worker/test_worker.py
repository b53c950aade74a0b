"""Cohorts that are trained in this process: what they report, keep and resume."""

import contextlib
import math
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.small import HERE, TracingCompiler, config_of, content_of, three
from tests.trainables.training.judged import without_seconds
from tests.trainables.worker import alone
from tests.trainables.worker.alone import Alone, settings, task_of
from tests.trainables.worker.test_logs import KeptLogs
from trainables.reports import CheckpointError, ModelError
from trainables.training.train import Checkpointing, train
from trainables.worker import worker
from trainables.worker.messages import (
    CohortReport,
    CohortSpec,
    CohortTask,
    Comparison,
    Message,
    ModelRequest,
    parse_failure,
)
from trainables.worker.worker import WorkerSettings, read_checkpoint, train_cohort

pytestmark = pytest.mark.slow

Start = Callable[[str, Path], Alone]


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", alone.__name__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:  # fmt: skip
        yield process


@pytest.fixture
def start(server: subprocess.Popen[str]) -> Iterator[Start]:
    """Starts a process that runs a case in a folder, and ends it after the test."""
    with contextlib.ExitStack() as ends:

        def start(case: str, folder: Path) -> Alone:
            process = Alone(server, case, folder)
            ends.callback(process.kill)
            return process

        yield start


def _reason(folder: Path) -> str:
    failure = parse_failure((folder / "c.why").read_bytes(), "run")
    assert failure
    return failure.reason


@pytest.mark.parametrize("line", ["step 1 0", "reported"])
def test_sigterm_leaves_a_checkpoint_and_a_reason_within_a_step(start: Start, tmp_path: Path, line: str) -> None:
    process = start("plain", tmp_path)
    process.until(line)
    process.send(signal.SIGTERM)
    status, printed, _ = process.end()
    _, notice, afterwards = printed.partition("asked")
    assert notice and afterwards.count("step") <= 1 and "over" not in afterwards and status == 1
    standing = content_of((tmp_path / "c").read_bytes())["standing"]
    assert (
        _reason(tmp_path) == f"stopped: SIGTERM; checkpoint saved at epoch {standing['epoch']} step {standing['step']}"
    )
    resumed = list(train(three(), HERE, width=3, checkpointing=Checkpointing((tmp_path / "c").read_bytes())))
    assert without_seconds(resumed) == without_seconds(list(train(three(), HERE, width=3)))


def test_a_cohort_that_waits_at_a_rung_saves_and_ends_and_goes_on_with_the_verdict(tmp_path: Path) -> None:
    """As if it had never ended."""
    rung, asked = 4, list[tuple[int, Mapping[int, float | None]]]()

    def decide(epoch: int, values: Mapping[int, float | None]) -> Mapping[int, str] | None:
        asked.append((epoch, values))
        return {1: "lower"} if len(asked) != 1 else None

    def reports() -> list[CohortReport]:
        sent: list[Message] = []
        task = task_of(three(), 3, "c", comparison=Comparison("loss", frozenset({rung}), decide))
        train_cohort(task, settings(tmp_path), torch.device("cpu"), sent.append)
        return [message for message in sent if isinstance(message, CohortReport)]

    *before, at_rung = reports()
    assert [message.waits for message in before] == [False] and at_rung.waits and not at_rung.report.done
    values = {index: member.metrics["loss"] for index, member in enumerate(at_rung.report.members)}
    standing = content_of((tmp_path / "c").read_bytes())["standing"]
    assert asked == [(rung, values)] and standing["epoch"] == rung - 1 and not (tmp_path / "c.why").exists()
    continued = reports()
    assert asked[1] == asked[0] and len(asked) == 2
    (tmp_path / "c").unlink()
    assert without_seconds([message.report for message in continued]) == without_seconds(
        [message.report for message in reports()]
    )
    assert [member.status for member in continued[-1].report.members] == ["finished", "pruned", "finished"]


def test_a_metric_that_no_member_reports_is_named_at_the_rung(tmp_path: Path) -> None:
    task = task_of(three(), 3, "c", comparison=Comparison("auroc", frozenset({2})))
    with pytest.raises(ValueError, match=r"pruning needs the metric 'auroc' at epoch 2; there are: .*loss"):
        train_cohort(task, settings(tmp_path), torch.device("cpu"), lambda message: None)


def test_sigterm_ends_a_process_that_trains_nothing_at_once(start: Start, tmp_path: Path) -> None:
    process = start("idle", tmp_path)
    process.until("over")
    process.send(signal.SIGTERM)
    assert process.end()[0] != 0
    assert not (tmp_path / "c.why").exists()


def test_a_process_that_hangs_ends_itself_and_says_where(start: Start, tmp_path: Path) -> None:
    process = start("hang", tmp_path)
    process.until("step 1 0")
    assert process.end()[0] == 1
    reason = _reason(tmp_path)
    assert reason.startswith("hung: no step was completed within 1.5 s, at worker/alone.py:") and "hang" in reason
    assert "\n" not in reason


def test_a_process_that_holds_the_interpreter_is_ended_too(start: Start, tmp_path: Path) -> None:
    process = start("hold", tmp_path)
    process.until("step 1 0")
    status, _, errors = process.end()
    assert status == 1
    assert "hold" in errors and not (tmp_path / "c.why").exists()


def test_exceeding_the_memory_limit_raises_and_the_process_trains_on(start: Start, tmp_path: Path) -> None:
    status, out, errors = start("overrun", tmp_path).end()
    assert status == 0, errors
    first, *rest = out.splitlines()
    assert first.startswith("OutOfMemory: a cohort of 16 in stacks of 16 may use 80 MiB, but needed more; the process ")
    assert rest == ["reported", "caught", "caught"]


class _Unreadable:
    """Storage in which only the `readable` checkpoints can be read."""

    def __init__(self, **readable: bytes) -> None:
        self.readable = readable

    def read(self, path: str) -> bytes | None:
        if path not in self.readable:
            raise CheckpointError(f"store /s: cannot read '{path}': Input/output error")
        return self.readable[path]

    def write(self, path: str, data: bytes, trials: Sequence[str]) -> None: ...


class _Full:
    """Storage that takes no model of the first trial, and says when it was asked to try again."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    def write(self, trial: str, data: bytes, *, retry: bool) -> None:
        self.asked.append((trial, retry))
        if trial == "t0":
            raise ModelError("store full")

    def has(self, trial: str) -> bool:
        return trial in dict(self.asked)


def test_after_a_model_that_cannot_be_written_the_others_have_one_attempt_each() -> None:
    models, sent = _Full(), list[Any]()
    settings = WorkerSettings("run", str(HERE), _Unreadable(own=b""), step_timeout=math.inf, models=models)
    task = replace(task_of(three(), 3, "own"), models=ModelRequest("best"), trials=("t0", "t1", "t2"))
    train_cohort(task, settings, torch.device("cpu"), sent.append)
    assert models.asked == [("t0", True), ("t1", False), ("t2", False)]
    *earlier, last = [message for message in sent if isinstance(message, CohortReport)]
    assert earlier and not any(report.without_models for report in earlier)
    assert last.report.done and last.without_models == ("t0",)
    assert (last.notice or "").endswith("its models cannot be stored: store full")


def test_what_is_printed_is_in_the_logs_before_the_last_report() -> None:
    logs, sent, seen = KeptLogs(), list[Any](), list[dict[str, bytes]]()
    settings = WorkerSettings("run", str(HERE), _Unreadable(own=b""), step_timeout=math.inf, logs=logs)

    def send(message: Message) -> None:
        sent.append(message)
        seen.append(dict(logs.of))
        os.write(1, b"sent\n")

    train_cohort(replace(task_of(three(), 3, "own"), trials=("t0", "t1", "t2")), settings, torch.device("cpu"), send)
    assert sent[-1].report.done and seen[-1] == dict.fromkeys(("t0", "t1", "t2"), b"sent\n" * (len(sent) - 1))
    assert logs.of["t0"] == b"sent\n" * len(sent)


def test_a_checkpoint_that_cannot_be_read_counts_as_absent() -> None:
    lines: list[str] = []
    assert read_checkpoint("own", _Unreadable(), lines.append) is None
    assert lines == ["its checkpoint cannot be read: store /s: cannot read 'own': Input/output error"]


def reports(folder: Path, compiled: bool) -> list[CohortReport]:
    """The reports of a stack of two members."""
    task = CohortTask("c0", CohortSpec.of([config.flat() for config in three(epochs=1)[:2]], 2, "c", compiled))
    sent: list[Message] = []
    worker.train_cohort(task, settings(folder), torch.device("cpu"), sent.append)
    return [message for message in sent if isinstance(message, CohortReport)]


def test_reports_say_whether_steps_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "StepCompiler", lambda notify: TracingCompiler())
    compiled, eager = reports(tmp_path / "a", True), reports(tmp_path / "b", False)
    assert [report.origin.compiled for report in compiled + eager] == [True] * len(compiled) + [False] * len(eager)
    for one, other in zip(compiled[-1].report.members, eager[-1].report.members, strict=True):
        assert one.metrics["auroc_joint"] == pytest.approx(other.metrics["auroc_joint"], abs=0.01)


def test_without_a_compiler_it_trains_with_eager_steps_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "/nowhere/g++")
    sent = reports(tmp_path, True)
    reasons = [report.about_steps for report in sent if report.about_steps]
    assert reasons == ["steps are not compiled: there is no C++ compiler (g++) on this machine"]
    assert not any(report.notice for report in sent)
    assert not any(report.origin.compiled for report in sent)
    assert sent[-1].report.done and {member.status for member in sent[-1].report.members} == {"finished"}


def test_a_cohort_is_sent_with_shared_values_once_and_arrives_whole() -> None:
    configs = [config_of(seed=seed, lr=0.1) for seed in range(3)]
    spec = CohortSpec.of([config.flat() for config in configs], 2, "c.pt")
    assert spec.own == tuple({"seed": seed} for seed in range(3)) and spec.shared["lr"] == 0.1
    assert pickle.loads(pickle.dumps(spec)).configs() == configs


def test_a_cohort_of_one_shares_all() -> None:
    spec = CohortSpec.of([config_of(seed=7).flat()], 1, "c.pt")
    assert spec.own == ({},) and spec.configs() == [config_of(seed=7)]
