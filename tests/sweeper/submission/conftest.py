"""A fake of Ray's job client, with scripted answers, and the arguments of a sweep to send."""

import enum
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

from sweeper.submission import jobs, submit
from sweeper.submission.jobs import Jobs


class Status(enum.StrEnum):
    """As Ray's `JobStatus`."""

    PENDING, RUNNING, STOPPED, SUCCEEDED, FAILED = "PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"

    def is_terminal(self) -> bool:
        return self in (Status.STOPPED, Status.SUCCEEDED, Status.FAILED)


def details(status: str, code: int | None = None, message: str | None = None, **fields: object) -> SimpleNamespace:
    return SimpleNamespace(status=Status(status), driver_exit_code=code, message=message, **fields)


class FakeClient:
    """Client with one job. `answers` are its successive states and `logs` the pieces of its log, for each connection.

    An exception among them is raised in its turn.
    """

    def __init__(self, *answers: SimpleNamespace | BaseException, logs: Sequence[Sequence[str | BaseException]] = ()):
        self.answers, self.logs = list(answers), list(logs)
        self.other_jobs: list[SimpleNamespace] = []
        self.submissions: list[dict[str, Any]] = []
        self.files: list[str] = []
        """Names of the files in the package that was sent last."""
        self.stopped: list[str] = []
        self.on_stop: Callable[[], None] = lambda: None

    def submit_job(self, **arguments: Any) -> str:
        self.submissions.append(arguments)
        with ZipFile(arguments["runtime_env"]["working_dir"]) as archive:
            self.files = archive.namelist()
        return str(arguments["submission_id"])

    def list_jobs(self) -> list[SimpleNamespace]:
        return self.other_jobs

    def get_job_info(self, job: str) -> SimpleNamespace:
        """The next answer. The last answer is repeated."""
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def stop_job(self, job: str) -> bool:
        self.stopped.append(job)
        self.on_stop()
        return True

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        for piece in self.logs.pop(0) if self.logs else ():
            if isinstance(piece, BaseException):
                raise piece
            yield piece


ROOT = Path(__file__).parents[3]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeClient:
    """A fake cluster whose jobs succeed. The process has a token and runs in the code's folder."""
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.01)
    fake = FakeClient(details("RUNNING"), details("SUCCEEDED", 0), logs=[["trained\n"]])
    monkeypatch.setattr(submit, "connect", lambda address: Jobs(address, fake))
    return fake


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    return ["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), "--set", "nu=0.5"]
