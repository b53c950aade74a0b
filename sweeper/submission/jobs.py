"""Jobs of a Ray cluster: the address and the token of its job server; send, follow and stop jobs through it."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweeper.commands.command_line import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from sweeper.errors import ClusterError, JobLost, first_line
from sweeper.masking import remember
from sweeper.printing import print
from sweeper.runtime import USER, user_name
from sweeper.servers import bound_answers
from sweeper.version import SUBMITTED, code_version

LOCAL_DASHBOARD = "http://127.0.0.1:8265"
"""Address of Ray's dashboard, which takes jobs: on the head itself, or with its port forwarded to this machine."""
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Ray's environment variables for token authentication."""
CONNECT_SECONDS = 10.0
"""Seconds in which the dashboard must answer first."""
STOP_SECONDS = 60
"""Seconds that a stopped driver has to save its results before it is killed. Ray's own default is 3."""
ANSWER_SECONDS = 60.0
"""Seconds without an answer after which the cluster counts as lost."""
POLL_SECONDS = 1.0
"""Seconds between two requests."""
HAS_RAY = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"
"""Python program that exits with status 0 if Ray is installed."""
NO_REASON = "it does not say why"
"""Stands for the reason of an error that gives none."""


def dashboard_address(requested: str | None, environment: Mapping[str, str]) -> str:
    """Address to send the job to: `requested`, else that of Ray's environment variables, else `LOCAL_DASHBOARD`.

    Raises ClusterError if it is not a URL of the form `http://host:port`.
    """
    name, text = next(
        (name, text)
        for name, text in [
            ("--address", requested),
            *((name, environment.get(name)) for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")),
            ("--address", LOCAL_DASHBOARD),
        ]
        if text is not None
    )
    remember(text)
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port and not parts.query
    except ValueError:  # the port is not a number, or out of range
        valid = False
    if not valid or parts.username:
        raise ClusterError(
            f"{name} must be the URL of the cluster's dashboard, http://host:port or https://host:port"
            f"{' without a user' if '@' in text else ''}, but got {text!r}"
        )
    return text.rstrip("/")


def check_token(environment: Mapping[str, str], home: Path) -> None:
    """Raise ClusterError if token authentication is on, but there is no token.

    It is on unless `RAY_AUTH_MODE` says otherwise. `home` is the home folder, where Ray keeps a token by default.
    """
    if not token_enabled(environment) or environment.get(TOKEN, "").strip():
        return
    path = Path(environment.get(TOKEN_PATH) or home / ".ray/auth_token")
    try:
        if path.expanduser().read_text().strip():
            return
        reason = "is empty"
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise ClusterError(
        f"a cluster requires a token, but {TOKEN} is not set and {path} {reason}; put the cluster's token there, "
        f"name its file in {TOKEN_PATH}, or set {MODE}=disabled for a cluster without authentication"
    )


def token_enabled(environment: Mapping[str, str]) -> bool:
    return environment.get(MODE, "token").lower() == "token"


def is_unencrypted(url: str) -> bool:
    """Whether requests to `url` travel unencrypted to another machine."""
    parts = urlsplit(url)
    try:
        loopback = ipaddress.ip_address(str(parts.hostname)).is_loopback
    except ValueError:
        loopback = parts.hostname == "localhost"
    return parts.scheme == "http" and not loopback


@dataclass(frozen=True)
class End:
    """How a job has ended."""

    status: int
    """Exit status of its command; 130 if the job was stopped, 1 if the cluster ended it."""
    text: str
    """Text such as `has succeeded` or `ended with status 1`."""


class Jobs:
    """Jobs of one cluster. Every method raises ClusterError, with one line, if the cluster refuses the request."""

    def __init__(self, address: str, client: Any) -> None:
        self.address, self._client = address, client
        self._shown: dict[str, int] = {}
        """Job -> number of characters of its log that have been printed."""

    def send(self, job: str, command: str, package: Path, metadata: Mapping[str, str]) -> None:
        """Start a job with the id `job`.

        `command` is a shell command, run in a copy of the packed working directory. `metadata` is stored with the job.
        """
        variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS), SUBMITTED: code_version()}
        if user := user_name():
            variables[USER] = user
        environment = {"working_dir": str(package), "env_vars": variables}
        with _cluster_errors(self.address):
            self._client.submit_job(
                entrypoint=command, submission_id=job, runtime_env=environment, metadata=dict(metadata)
            )

    def running(self, metadata: Mapping[str, str]) -> str | None:
        """Id of a job that was sent with the same `metadata` and has not ended; None if there is none."""
        with _cluster_errors(self.address):
            jobs = self._client.list_jobs()
        same = (job for job in jobs if job.metadata and metadata.items() <= job.metadata.items())
        return next((job.submission_id for job in same if not job.status.is_terminal()), None)

    def end(self, job: str) -> End | None:
        """How the job has ended; None while it runs."""
        with _cluster_errors(self.address):
            details = self._client.get_job_info(job)
        return _end(details) if details.status.is_terminal() else None

    def stop(self, job: str) -> None:
        """Send the job SIGTERM, and SIGKILL after `STOP_SECONDS`."""
        with _cluster_errors(self.address):
            self._client.stop_job(job)

    def wait(self, job: str) -> End:
        while not (end := self._end_if_any(job)):
            time.sleep(POLL_SECONDS)
        return end

    def follow(self, job: str, check: Callable[[], None] = lambda: None) -> End:
        """Print the job's log until the job has ended, from where an earlier `follow` was interrupted.

        `check` is called whenever the log breaks off, and may raise. It lets a caller notice a signal whose exception
        got lost in other code.
        """
        while True:
            asyncio.run(self._print(job))
            check()
            if end := self._end_if_any(job):
                return end
            time.sleep(POLL_SECONDS)

    def _end_if_any(self, job: str) -> End | None:
        """As `end`, but repeats the request for up to `ANSWER_SECONDS` seconds while the cluster does not answer."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return self.end(job)
            except JobLost as error:
                if time.monotonic() > deadline:
                    raise JobLost(f"{error}; job {job} may go on, and --logs {job} follows it") from error
                time.sleep(POLL_SECONDS)

    async def _print(self, job: str) -> None:
        """Print the log until it or the connection ends. The cluster sends it from its beginning each time."""
        log, received = self._client.tail_job_logs(job), 0
        while True:
            try:
                text = await anext(log)
            except StopAsyncIteration:
                return
            except Exception:  # the connection was cut; `follow` asks for the job's state and tries again
                return
            new = text[max(0, self._shown.get(job, 0) - received) :]
            received += len(text)
            if new:
                print(new, end="", flush=True)
                self._shown[job] = received


def entrypoint(arguments: Sequence[str], python: str = sys.executable) -> str:
    """Shell command that replaces its shell by `python -m sweeper.run ARGUMENTS`.

    It tries two interpreters and takes the first that has Ray:

    1. `python`, the interpreter that submits the job. A head started on this machine needs no PATH for it.
    2. The `python` on the head's PATH, for a head on another machine.

    If neither has Ray, the command prints one line and exits with status 2.
    """
    no_python = (
        f"error: the cluster's head has no Python with Ray: tried {python}, and python on its PATH; start the head "
        "with its environment on PATH: PATH=VENV/bin:$PATH ray start ..."
    )
    return (
        f"for python in {shlex.quote(python)} python; do "
        f'"$python" -c {shlex.quote(HAS_RAY)} 2> /dev/null && exec "$python" -m sweeper.run {shlex.join(arguments)}; '
        f"done; echo {shlex.quote(no_python)} >&2; exit 2"
    )


def connect(address: str) -> Jobs:
    """Connect to the cluster whose dashboard is at `address`, with a token unless `RAY_AUTH_MODE` says otherwise."""
    os.environ.setdefault(MODE, "token")
    os.environ["RAY_API_SERVER_ADDRESS"] = address  # takes precedence over the client's argument
    from ray.job_submission import JobSubmissionClient  # imported here because Ray reads the environment on import

    for name in ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        with _cluster_errors(address):
            _check_answer(address)
            bound_answers()
            return Jobs(address, JobSubmissionClient(address))
    except JobLost as error:
        raise ClusterError(
            f"{error}; start it, or forward its dashboard's port to this machine (`ray dashboard FILE`, `kubectl "
            "port-forward`)"
        ) from error


def _check_answer(address: str) -> None:
    """Raise TimeoutError if what listens at the address answers nothing: Ray's client would wait for ever."""
    import requests

    try:
        requests.get(f"{address}/api/version", timeout=CONNECT_SECONDS, stream=True).close()  # its content is not read
    except requests.Timeout as error:
        raise TimeoutError from error
    except requests.RequestException:
        pass  # Ray's client says what is wrong


@contextlib.contextmanager
def _cluster_errors(address: str) -> Iterator[None]:
    """Convert errors of Ray's client to ClusterError with one line; JobLost if the cluster does not answer."""
    try:
        yield
    except OSError as error:
        raise JobLost(f"no Ray cluster answers at {address}") from error
    except (RuntimeError, ValueError) as error:
        if "ray[default]" in str(error):
            raise ClusterError(
                "sending jobs requires ray[default]; install it with `pip install -e '.[cluster]'`"
            ) from error
        raise ClusterError(
            f"the Ray cluster at {address} refuses the request: {first_line(error, NO_REASON)}"
        ) from error
    except Exception as error:
        from ray.exceptions import AuthenticationError

        if not isinstance(error, AuthenticationError):
            raise
        raise ClusterError(f"the Ray cluster at {address} refuses access: {first_line(error, NO_REASON)}") from error


def _end(details: Any) -> End:
    code = details.driver_exit_code
    if details.status == "SUCCEEDED":
        return End(EXIT_OK, "has succeeded")
    if details.status == "STOPPED":
        return End(EXIT_INTERRUPTED, "was stopped")
    if code is None:
        return End(EXIT_FAILED, f"was ended by the cluster: {first_line(details.message, NO_REASON)}")
    return End(128 - code, f"was killed by signal {-code}") if code < 0 else End(code, f"ended with status {code}")
