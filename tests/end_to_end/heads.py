"""Real Ray clusters on this machine, with a job server and token authentication, for tests that submit and kill."""

import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.end_to_end.sweeps import POLL, TRAINERS, suspend, title

ROOT = Path(__file__).parents[2]
TIMEOUT = 600.0
"""Seconds after which a wait fails."""
QUICK = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_FAKE_CLUSTER": "1",
}
"""Settings with which a cluster notices sooner than by default that a node has died, or is needed."""
LEAN = ("--disable-usage-stats", "--include-log-monitor=False")
"""Options of `ray start`. The log monitor, a process on each node, sends workers' output to drivers that ask for it, as
ours do not."""


class RayProcess:
    """`ray start ARGUMENTS --block` and all its descendants: a head, or a node beside it."""

    def __init__(self, home: Path, environment: dict[str, str], *arguments: str) -> None:
        self.log = home / f"{uuid.uuid4().hex}.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *LEAN, *arguments],
                cwd=home,
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def up(self) -> bool:
        return "Ray runtime started" in self.log.read_text()

    def running(self) -> bool:
        return self.process.poll() is None

    def outcome(self) -> str:
        return self.log.read_text()

    def processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def raylets(self) -> list[psutil.Process]:
        """One raylet for each node."""
        return [process for process in self.processes() if title(process).split(" ")[0].endswith("/raylet")]

    def trainers(self) -> list[psutil.Process]:
        """Processes that are training a cohort."""
        return _trainers(self.processes())

    def suspend(self) -> list[psutil.Process]:
        """Suspend the training processes until they are resumed or killed, and return them."""
        return suspend(self.trainers())

    def most_trainers_on_a_node(self) -> int:
        """The largest number of cohorts that a single node is training. Ray's workers are children of the raylet."""
        counts = [0]
        for raylet in self.raylets():
            with contextlib.suppress(psutil.NoSuchProcess):
                counts.append(len(_trainers(raylet.children())))
        return max(counts)

    def kill(self) -> None:
        """Send SIGKILL to all its processes at once, as in a power failure."""
        descendants = self.processes()
        for process in [*descendants, self.process]:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                process.kill()
        self.process.wait()
        psutil.wait_procs(descendants, timeout=5)


class Head:
    """The head of a cluster, in a folder and on ports of its own, and the nodes that are started beside it.

    `jobs`: with a job server, which needs ray[default]. `scaling`: a cluster file with fake nodes that come and go.
    `variables`: additional variables of its environment.
    """

    def __init__(
        self, cores: int = 2, jobs: bool = True, scaling: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> None:
        self._variables = dict(variables or {})
        self.home = Path(tempfile.mkdtemp(prefix="h-"))  # short: Ray's sockets are below it
        self.token = self.home / "token"
        self.token.write_text(secrets.token_hex(16))
        port, dashboard, agent = _free_ports(3)
        self.address, self.gcs = f"http://127.0.0.1:{dashboard}", f"127.0.0.1:{port}"
        arguments = [
            *("--head", f"--num-cpus={cores}", f"--temp-dir={self.home / 'ray'}"),
            *(f"--port={port}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"),
            f"--include-dashboard={jobs}",
        ]
        if scaling:
            arguments.append(f"--autoscaling-config={self._write_cluster_file(scaling)}")
        self.started = [RayProcess(self.home, self.environment(), *arguments)]
        try:
            wait_until(lambda: self.started[0].up() and (not jobs or self._answers()), "head", self.started[0])
        except AssertionError:
            self.end()
            raise

    def node(self, cores: int = 1) -> RayProcess:
        """Start a node and wait until it is part of the cluster. Nodes that start together would take the same socket's
        name."""
        process = RayProcess(self.home, self.environment(), f"--address={self.gcs}", f"--num-cpus={cores}")
        self.started.append(process)
        wait_until(process.up, "node", process)
        return process

    def environment(self) -> dict[str, str]:
        """Environment of the nodes, and of a terminal that has the token. Neither this Python nor our code is on any
        path, as after `.venv/bin/ray start`."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON"))}
        own_folder = str(Path(sys.executable).parent)
        path = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if folder != own_folder)
        return {**inherited, **QUICK, **self._variables, **self.key(), "PATH": path, "OMP_NUM_THREADS": "1"}

    def key(self) -> dict[str, str]:
        """Variables that a driver outside the cluster needs."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}

    def kill(self) -> None:
        for process in self.started:
            process.kill()

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def _write_cluster_file(self, scaling: Path) -> Path:
        """Write the cluster file with this head's port and with a short timeout for idle nodes."""
        content: dict[str, Any] = yaml.safe_load(scaling.read_text())
        content |= {"provider": content["provider"] | {"gcs_address": self.gcs}, "idle_timeout_minutes": 0.1}
        (self.home / "scaling.yaml").write_text(yaml.safe_dump(content))
        return self.home / "scaling.yaml"

    def _answers(self) -> bool:
        request = urllib.request.Request(
            f"{self.address}/api/jobs/", headers={"Authorization": f"Bearer {self.token.read_text()}"}
        )
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=5).close()
            return True
        return False


class Submission:
    """`sweeper submit ARGUMENTS`, from a terminal."""

    def __init__(self, head: Head, *arguments: str, token: str | None = None) -> None:
        address = () if "--address" in arguments else ("--address", head.address)
        self._files = [head.home / f"{uuid.uuid4().hex}.{stream}" for stream in ("out", "err")]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sweeper", "submit", *arguments, *address],
                cwd=ROOT,
                env=head.environment() | ({"RAY_AUTH_TOKEN": token} if token else {}),
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def output(self) -> tuple[str, str]:
        """Return what it has written to stdout and to stderr so far."""
        out, err = (file.read_text() for file in self._files)
        return out, err

    def ctrl_c(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def running(self) -> bool:
        return self._process.poll() is None

    def outcome(self) -> tuple[int, str, str]:
        """Wait for its end, and return its exit status, stdout and stderr."""
        try:
            return self._process.wait(timeout=TIMEOUT), *self.output
        finally:
            self._process.kill()


def wait_until(condition: Callable[[], object], description: str, *processes: RayProcess | Submission) -> None:
    """Wait until `condition()` is true. AssertionError if one of the processes ends first, or after TIMEOUT."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        for process in processes:
            assert process.running(), f"ended before {description}: {process.outcome()}"
        assert time.monotonic() < deadline, f"no {description} in {TIMEOUT:.0f} s"
        time.sleep(POLL)


@contextlib.contextmanager
def head(
    cores: int = 2, jobs: bool = True, scaling: Path | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[Head]:
    cluster = Head(cores, jobs, scaling, variables)
    try:
        yield cluster
    finally:
        cluster.end()


def _trainers(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if title(process).startswith(TRAINERS)]


def _free_ports(count: int) -> list[int]:
    """Draw ports above those that Ray gives to its workers and below those that the system gives to connections, one of
    which could take a port before Ray does."""
    ports = set[int]()
    while len(ports) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            ports.add(port)
    return sorted(ports)
