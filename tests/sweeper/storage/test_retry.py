"""Retries of transient errors, and calls to a store that does not answer."""

import contextlib
import errno
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import StoreError
from sweeper.runtime import REAL, THREADS
from sweeper.storage import files as files_module
from sweeper.storage import retry
from sweeper.storage.files import Files
from sweeper.storage.retry import (
    LONG_RETRIES,
    NO_RETRIES,
    NoAnswerError,
    RetryPolicy,
    call_remotely,
    call_with_retries,
    is_transient,
    made_progress,
)
from tests.cases import for_each

UNREACHABLE = (
    "When reading information for key 'x' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject operation"
)


class FlakyOperation:
    """An operation that fails a given number of times, with a clock that only sleeping advances."""

    def __init__(self, failures: float, error: Exception | None = None) -> None:
        self.failures, self.error = failures, error or OSError(errno.ETIMEDOUT, "timed out")
        self.now, self.slept, self.callbacks = 0.0, list[float](), list[str]()

    def act(self) -> str:
        if len(self.slept) < self.failures:
            raise self.error
        return "done"

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def call(self, policy: RetryPolicy, draw: float = 0.0) -> str:
        return call_with_retries(
            self.act,
            policy,
            lambda error, left: self.callbacks.append(str(error)),
            lambda seconds: self.callbacks.append(f"after {seconds:g}"),
            clock=lambda: self.now,
            sleep=self.sleep,
            draw=lambda: draw,
        )


def test_waits_double_up_to_the_longest():
    operation = FlakyOperation(7)
    assert operation.call(RetryPolicy(60.0, first_wait=0.5, longest_wait=4.0)) == "done"
    assert operation.slept == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0]
    assert operation.callbacks == ["[Errno 110] timed out", "after 19.5"]
    swift = FlakyOperation(3)
    swift.call(RetryPolicy(60.0, first_wait=0.5), draw=1.0)
    assert swift.slept == [0.25, 0.5, 1.0], "up to half of a wait is subtracted at random"


def test_retries_end_when_the_time_of_the_policy_is_over():
    operation = FlakyOperation(float("inf"))
    with pytest.raises(TimeoutError):
        operation.call(LONG_RETRIES)
    assert operation.now == LONG_RETRIES.seconds and len(operation.callbacks) == 1


def test_success_at_once_calls_no_callback():
    operation = FlakyOperation(0)
    assert operation.call(LONG_RETRIES) == "done" and operation.callbacks == operation.slept == []


@pytest.mark.parametrize(("policy", "error"), [(NO_RETRIES, None), (LONG_RETRIES, PermissionError(errno.EACCES, "no"))])
def test_without_a_timeout_or_for_a_permanent_error_there_is_one_attempt(policy, error):
    operation = FlakyOperation(1, error)
    with pytest.raises(OSError):
        operation.call(policy)
    assert operation.slept == operation.callbacks == []


def test_an_interrupt_ends_the_wait():
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_with_retries(
            FlakyOperation(1).act, LONG_RETRIES, lambda error, left: None, lambda seconds: None, sleep=interrupted
        )


@for_each(
    "error",
    [
        *(OSError(number, "") for number in (errno.EIO, errno.ENOSPC, errno.EROFS, errno.ETIMEDOUT, errno.ESTALE)),
        OSError(UNREACHABLE),
        OSError("AWS Error SLOW_DOWN during PutObject operation: Please reduce your request rate."),
        *(OSError(f"AWS Error UNKNOWN (HTTP status {status}) during PutObject") for status in (500, 503, 429, 408)),
        OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted in InsertObjectMedia)"),
    ],
)
def test_transient_errors(error):
    assert is_transient(error)
    wrapped = StoreError("one line")
    wrapped.__cause__ = error
    assert is_transient(wrapped)


@for_each(
    "error",
    [
        *(OSError(number, os.strerror(number)) for number in (errno.EACCES, errno.ENOTDIR)),
        OSError("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation: The specified bucket does not exist"),
        OSError("AWS Error ACCESS_DENIED during PutObject operation: Access Denied"),
        OSError("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No response body."),
        OSError("google::cloud::Status(PERMISSION_DENIED: no)"),
        ValueError("no file"),
        StoreError("of our own"),
    ],
)
def test_permanent_errors(error):
    assert not is_transient(error)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port of the loopback at which a server listens and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield server.getsockname()[1]


def address(scheme: str, port: int) -> str:
    user = {"s3": "KEY:SECRET", "gs": "anonymous"}[scheme]
    return f"{scheme}://{user}@bucket/x?endpoint_override=127.0.0.1:{port}&scheme=http"


def test_an_answer_and_an_error_are_those_of_the_call() -> None:
    said: list[float] = []
    assert call_remotely(lambda: 3, 5.0, said.append) == 3
    with pytest.raises(FileNotFoundError):
        call_remotely(lambda: Path("/absent").read_bytes(), 5.0, said.append)
    assert said == []


def test_silence_is_said_once_and_ends_and_progress_begins_it_anew() -> None:
    said, over = list[float](), threading.Event()
    with pytest.raises(NoAnswerError):
        call_remotely(lambda: over.wait(60), 0.4, said.append, silence=0.1)
    assert len(said) == 1 and 0 < said[0] <= 0.3
    over.set()

    def in_steps() -> str:
        for _ in range(8):
            threading.Event().wait(0.1)
            made_progress()
        return "done"

    assert call_remotely(in_steps, 0.6, said.append, silence=0.5) == "done" and len(said) == 1


def test_an_interrupt_leaves_a_call_that_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "ENDING_SECONDS", 0.01)
    over = threading.Event()
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call_remotely(lambda: over.wait(600), 600.0, lambda left: None)
    finally:
        signal.signal(signal.SIGINT, before)
        over.set()


def test_a_silent_store_gets_a_line_and_an_error(
    silent_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SWEEPER_STORE_TIMEOUT", "1")
    assert retry.answer_seconds(retry.NO_RETRIES) == 5.0
    monkeypatch.setattr(retry, "MIN_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(files_module, "MIN_ATTEMPT_SECONDS", 0.0)
    monkeypatch.setattr(files_module, "call_remotely", _impatient)
    with pytest.raises(StoreError, match=r"store gs://bucket/x\?.*: cannot read 'a': no answer for 1 s"):
        Files(address("gs", silent_port)).read("a")
    line = "does not answer; trying for another 0 s, Ctrl-C stops\n"
    assert capsys.readouterr().err.endswith(line)


def _impatient(operation, limit, on_silence):
    return call_remotely(operation, limit, on_silence, silence=0.6)


ROOT = Path(__file__).parents[3]
SIGNALS = (signal.SIGTERM, signal.SIGINT)
PROGRAMS = {
    "run": ["sweeper", "run", "anomaly_grid", "--preset", "digits", "--plan", "--store", "URI"],
    "compare": ["sweeper", "compare", "anomaly_grid:digits,nu=1@URI", ",nu=2"],
    "export": ["sweeper", "export", "anomaly_grid", "--best", "auroc_joint", "--store", "URI"],
    "view": ["sweeper", "view", "URI"],
}


def test_the_seconds_that_the_line_of_silence_promises_are_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client may give up by itself, soon after the line. Without a line its error is raised at once."""
    monkeypatch.setattr(files_module, "REST_SECONDS", 0.01)
    monkeypatch.setattr(files_module, "call_remotely", _impatient)
    answers: list[float] = [0.7, 0.0, 0.0]

    def operation() -> str:
        if answers:
            threading.Event().wait(answers.pop(0))
            raise TimeoutError("the client has given up")
        return "content"

    files = Files("gs://anonymous@bucket/x")
    assert files.retry("read", "a", operation) == "content"
    assert capsys.readouterr().err.count("does not answer; trying for another") == 1
    answers.append(0.0)
    with pytest.raises(StoreError, match="the client has given up"):
        files.retry("read", "a", operation)


def test_what_is_done_to_each_of_many_files_is_tried_again_where_it_failed_alone() -> None:
    """A store of many files that fails now and then was never read to the end: each attempt read all of them."""
    failures, calls = {"a": 2, "c": 1}, list[str]()

    def act(files: Files, name: str) -> str:
        calls.append(name)
        if failures.get(name, 0):
            failures[name] -= 1
            raise OSError(errno.ECONNRESET, "reset")
        return name.upper()

    sleepless = replace(REAL, sleep=lambda seconds: None, map=lambda act, names: [act(name) for name in names])
    files = Files("gs://anonymous@bucket/x", LONG_RETRIES, lambda line: None, sleepless)
    assert files.each("read", "folder", act, "abcd") == ["A", "B", "C", "D"]
    assert "".join(calls) == "aaabccd"
    failures["e"] = 1
    with pytest.raises(StoreError, match="cannot read 'folder': reset"):
        files.with_retries(NO_RETRIES).each("read", "folder", act, "e")


def test_each_of_many_files_that_a_store_answers_begins_its_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPER_STORE_TIMEOUT", "0")
    monkeypatch.setattr(retry, "MIN_ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(files_module, "MIN_ATTEMPT_SECONDS", 0.5)
    files, begun = Files("gs://anonymous@bucket/x"), time.monotonic()
    names = [str(number) for number in range(8 * THREADS)]
    assert files.each("read", "folder", lambda once, name: time.sleep(0.1), names) == [None] * len(names)
    assert time.monotonic() - begun > 0.5, "it took longer than a store may be silent"


SILENT = """
import signal, threading
from sweeper.storage.files import Files
signal.signal(signal.SIGINT, signal.default_int_handler)
read = lambda files, name: print("reads", flush=True) or threading.Event().wait()
Files("gs://anonymous@bucket/x").each("read", "folder", read, map(str, range(99)))
"""


def test_an_interrupt_while_each_of_many_files_is_read_ends_the_process() -> None:
    """The threads that read were waited for as it ended."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SILENT], cwd=ROOT, **pipes) as process, killed_after(120, process):
        assert process.stdout and process.stdout.readline().startswith("reads")
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1].endswith("KeyboardInterrupt\n")


@contextlib.contextmanager
def killed_after(seconds: float, process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill the process at the end, or after so many seconds."""
    killer = threading.Timer(seconds, process.kill)
    killer.start()
    try:
        yield
    finally:
        killer.cancel()
        process.kill()


@pytest.mark.slow
def test_programs_that_wait_for_a_silent_store_heed_a_signal(silent_port: int) -> None:
    """Without the thread that makes the call, each of them ignored signals for as long as the store was silent."""
    uri = address("gs", silent_port)
    with contextlib.ExitStack() as stack:
        processes = []  # all at once, as each waits for some seconds before it says that it does
        for module, *arguments in PROGRAMS.values():
            command = [sys.executable, "-m", module, *(word.replace("URI", uri) for word in arguments)]
            pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = stack.enter_context(subprocess.Popen(command, cwd=ROOT, **pipes))
            stack.enter_context(killed_after(300, process))
            processes.append(process)
        for program, process, number in zip(PROGRAMS, processes, itertools.cycle(SIGNALS), strict=False):
            assert process.stderr
            first = process.stderr.readline()
            process.send_signal(number)
            _, rest = process.communicate()
            assert "does not answer" in first and "SECRET" not in first, (program, first + rest)
            assert process.returncode == 130, (program, rest)
            assert rest.count("\n") == 1 and rest.startswith("interrupted"), (program, rest)
