"""Why cohorts fail, and the backend that is this process."""

import io
import math
import os
import pdb
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeper.commands import run
from sweeper.execution import local_backend
from sweeper.execution.backend import Ended, Event, MessageReceived, Started, failure_of, read_exit_file
from sweeper.execution.local_backend import LocalBackend
from sweeper.packing.cluster import SlotResources
from sweeper.storage.files import Files
from tests.trainables.small import config_of
from tests.trainables.worker.alone import settings
from trainables.reports import OutOfMemory, Stopped
from trainables.worker.messages import EXIT_SUFFIX, CohortReport, CohortSpec, CohortTask, Failure, write_failure
from trainables.worker.worker import Dispatch

HUNG = Failure("hung", "hung: at x.py:3 step")


@pytest.mark.parametrize(("run", "failure"), [("now", HUNG), ("before", None)])
def test_an_exit_file_is_read_once_and_only_if_it_is_of_this_run(
    run: str, failure: Failure | None, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    write_failure(files.write, "c.pt", run, HUNG)
    assert [read_exit_file(files, "c.pt", "now") for _ in range(2)] == [failure, None]
    assert not list(tmp_path.iterdir()), "it is deleted"


def test_a_damaged_exit_file_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / f"c.pt{EXIT_SUFFIX}").write_bytes(b"\xff{")
    assert read_exit_file(Files(tmp_path), "c.pt", "now") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file; run the tests as another user")
def test_an_exit_file_that_cannot_be_read_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / f"c.pt{EXIT_SUFFIX}").write_bytes(b"{}")
    (tmp_path / f"c.pt{EXIT_SUFFIX}").chmod(0)
    assert read_exit_file(Files(tmp_path), "c.pt", "now") is None


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ValueError("no luck\nmore about it"), Failure("error", "ValueError: no luck")),
        (KeyError(), Failure("error", "KeyError")),
        (OutOfMemory("needs more"), Failure("memory", "OutOfMemory: needs more")),
        (Stopped("it makes room"), Failure("machine", "stopped: it makes room")),
    ],
)
def test_an_exception_of_a_training_says_why_in_its_first_line(error: Exception, failure: Failure) -> None:
    assert failure_of(error) == failure


SLOT = SlotResources({"CPU": 1.0}, 1)


def task(name: str = "c0") -> CohortTask:
    return CohortTask(name, CohortSpec.of([config_of().flat()], 1, f"{name}.pt"), memory=1)


def events(backend: LocalBackend, folder: Path, *tasks: CohortTask) -> list[Event]:
    emitted: list[Event] = []
    with backend.training(Dispatch(settings(folder))):
        for each in tasks:
            backend.start(each, SLOT)
        for _ in tasks:
            backend.advance(emitted.append)
    return emitted


def test_cohorts_train_one_after_the_other_without_a_memory_limit(tmp_path: Path) -> None:
    emitted = events(LocalBackend("data"), tmp_path, task("a"), task("b"))
    assert [event.cohort for event in emitted if isinstance(event, Started | Ended)] == ["a", "a", "b", "b"]
    last = [
        event.message
        for event in emitted
        if isinstance(event, MessageReceived) and isinstance(event.message, CohortReport)
    ][-1]
    assert last.report.done and emitted[-1] == Ended("b")


def test_a_cohort_is_not_ended_if_it_makes_no_step(tmp_path: Path) -> None:
    """It may stand at a breakpoint."""
    backend = LocalBackend("data")
    with backend.training(Dispatch(settings(tmp_path))):
        assert backend._dispatch and backend._dispatch.settings.step_timeout == math.inf


@pytest.mark.parametrize("debug", [False, True])
def test_an_exception_of_a_training_is_its_failure_and_is_printed_to_debug(
    debug: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[Any] = []

    def fail(*_: object, **__: object) -> None:
        raise ValueError("out of luck")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(local_backend, "train_cohort", fail)
    monkeypatch.setattr(pdb.Pdb, "interaction", lambda self, frame, traceback: opened.append(traceback))
    monkeypatch.setattr(sys, "stdin", Terminal())
    emitted = events(LocalBackend("data", debug=debug), tmp_path, task())
    assert emitted[-1] == Ended("c0", Failure("error", "ValueError: out of luck"))
    assert len(opened) == debug and ("Traceback" in capsys.readouterr().err) == debug


def test_an_exception_of_who_takes_a_message_is_no_failure_of_the_cohort(tmp_path: Path) -> None:
    backend = LocalBackend("data")

    def emit(event: Event) -> None:
        if isinstance(event, MessageReceived):
            raise OSError("the disk is full")
        assert not isinstance(event, Ended)

    with backend.training(Dispatch(settings(tmp_path))), pytest.raises(OSError, match="the disk is full"):
        backend.start(task(), SLOT)
        backend.advance(emit)


@pytest.mark.slow
def test_a_sweep_is_debugged_in_this_process_where_prints_are_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = local_backend.train_cohort

    def train_and_print(*arguments: Any, **options: Any) -> None:
        print("a print of the training")
        train(*arguments, **options)

    monkeypatch.setattr(local_backend, "train_cohort", train_and_print)
    options = ["--debug", "--cohort", "2", "--set", "epochs=1", "--set", "normal_class=0", "--axis", "beta=0,1"]
    status = run.main(["anomaly_grid", "--preset", "digits", "--axis", "nu=1", "--store", str(tmp_path), *options])
    printed = capsys.readouterr().out
    assert status == 0 and "training in this process" in printed and "a print of the training" in printed
    assert list(pd.read_parquet(tmp_path / "trials/sweep=anomaly_grid")["status"]) == ["finished"] * 2


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--address", "auto"], "--debug trains in this process; it cannot be combined with --address or --plan"),
        (["--plan"], "--debug trains in this process; it cannot be combined with --address or --plan"),
        (["--set", "workers=2"], "--debug trains in one process, so workers=1 must hold; add --set workers=1"),
    ],
)
def test_what_needs_other_processes_is_refused(
    options: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), "--debug", *options]) == 2
    assert capsys.readouterr().err == f"error: {line}\n"
