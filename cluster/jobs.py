"""The jobs of a Ray cluster, through its job server: send, follow to the end, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.access import MODE
from sweeper.cli.arguments import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from sweeper.errors import ClusterError, JobLost
from sweeper.execution.connection import first_line

STOP_SECONDS = 60
"""What a driver has to write what it has before it is killed; Ray's own default is 3."""
PATIENCE = 60.0
"""Seconds without an answer after which a cluster is given up."""
PAUSE = 1.0
"""Seconds between two questions."""
SILENT = "it does not say why"


@dataclass(frozen=True)
class End:
    """How a job has ended."""

    status: int
    """The exit status of its command; 130 where it was stopped, 1 where the command never ended by itself."""
    what: str
    """For a person."""


class Jobs:
    """Those of one cluster. Every method raises ClusterError, one line, where the cluster does not do what is asked."""

    def __init__(self, address: str, client: Any) -> None:
        self.address, self._client = address, client
        self._shown: dict[str, int] = {}

    def send(self, job: str, command: str, package: Path, about: Mapping[str, str]) -> None:
        """Begin `job`: `command`, a line for a shell, in a copy of the packed working directory."""
        environment = {"working_dir": str(package), "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}}
        with _said_plainly(self.address):
            self._client.submit_job(
                entrypoint=command, submission_id=job, runtime_env=environment, metadata=dict(about)
            )

    def running(self, about: Mapping[str, str]) -> str | None:
        """A job that was begun with the same `about` and has not ended."""
        with _said_plainly(self.address):
            found = self._client.list_jobs()
        same = (one for one in found if one.metadata and about.items() <= one.metadata.items())
        return next((one.submission_id for one in same if not one.status.is_terminal()), None)

    def end(self, job: str) -> End | None:
        """How it has ended; None while it goes on."""
        with _said_plainly(self.address):
            details = self._client.get_job_info(job)
        return _end(details) if details.status.is_terminal() else None

    def stop(self, job: str) -> None:
        """Ask its command to end by SIGTERM; after STOP_SECONDS comes SIGKILL."""
        with _said_plainly(self.address):
            self._client.stop_job(job)

    def wait(self, job: str) -> End:
        """Until it has ended."""
        while not (end := self._end_if_any(job)):
            time.sleep(PAUSE)
        return end

    def follow(self, job: str, check: Callable[[], None] = lambda: None) -> End:
        """Print what the job prints, from where the last `follow` was cut off, until it has ended. `check` may raise:
        an exception of a signal's handler can get lost in code that is not ours."""
        while True:
            asyncio.run(self._print(job))
            check()
            if end := self._end_if_any(job):
                return end
            time.sleep(PAUSE)

    def _end_if_any(self, job: str) -> End | None:
        """`end`, asked again while the cluster does not answer."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.end(job)
            except JobLost as error:
                if time.monotonic() > deadline:
                    raise JobLost(f"{error}; job {job} may go on, and --logs {job} follows it") from error
                time.sleep(PAUSE)

    async def _print(self, job: str) -> None:
        """The log, which the cluster tells from its beginning, until it or the connection ends."""
        log, passed = self._client.tail_job_logs(job), 0
        while True:
            try:
                text = await anext(log)
            except StopAsyncIteration:
                return
            except Exception:  # whatever has cut the connection: what the job does now says how to go on
                return
            new = text[max(0, self._shown.get(job, 0) - passed) :]
            passed += len(text)
            if new:
                print(new, end="", flush=True)
                self._shown[job] = passed


def connect(address: str) -> Jobs:
    """The jobs of the cluster whose dashboard is at `address`; asked with a token unless RAY_AUTH_MODE says not."""
    os.environ.setdefault(MODE, "token")
    os.environ["RAY_API_SERVER_ADDRESS"] = address  # Ray heeds its variables before its arguments
    from ray.job_submission import JobSubmissionClient  # after the environment is set: Ray reads it on import

    for name in ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        with _said_plainly(address):
            return Jobs(address, JobSubmissionClient(address))
    except JobLost as error:
        raise ClusterError(
            f"{error}; start it, or forward its dashboard's port to this machine (`ray dashboard FILE`, `kubectl "
            "port-forward`)"
        ) from error


@contextlib.contextmanager
def _said_plainly(address: str) -> Iterator[None]:
    """What Ray's client raises, as one line."""
    try:
        yield
    except OSError as error:
        raise JobLost(f"no Ray cluster answers at {address}") from error
    except (RuntimeError, ValueError) as error:
        if "ray[default]" in str(error):
            raise ClusterError(
                "jobs are sent by ray[default]; install it with `pip install -e '.[cluster]'`"
            ) from error
        raise ClusterError(f"the Ray cluster at {address} refuses: {first_line(error, SILENT)}") from error
    except Exception as error:
        from ray.exceptions import AuthenticationError

        if not isinstance(error, AuthenticationError):
            raise
        raise ClusterError(f"the Ray cluster at {address} does not let us in: {first_line(error, SILENT)}") from error


def _end(details: Any) -> End:
    """Of a job that has ended, by what the job server says of it."""
    code = details.driver_exit_code
    if details.status == "SUCCEEDED":
        return End(EXIT_OK, "has succeeded")
    if details.status == "STOPPED":
        return End(EXIT_INTERRUPTED, "was stopped")
    if code is None:
        return End(EXIT_FAILED, f"was ended by the cluster: {first_line(details.message, SILENT)}")
    return End(128 - code, f"was killed by signal {-code}") if code < 0 else End(code, f"ended with status {code}")
