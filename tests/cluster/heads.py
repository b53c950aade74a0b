"""A real head of a Ray cluster on this machine, with its job server and token authentication, for tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which what should have happened is given up."""


class Head:
    """`ray start --head`, in a folder and on ports of its own."""

    def __init__(self, cores: int = 2) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="h-", dir="/tmp"))  # short: Ray's sockets are below it
        self.token = self.home / "token"
        self.token.write_text("0123456789abcdef" * 2)
        port, dashboard, agent, client = _free_ports(4)
        self.address = f"http://127.0.0.1:{dashboard}"
        words = [
            *("--head", "--block", f"--num-cpus={cores}", f"--temp-dir={self.home / 'ray'}", "--disable-usage-stats"),
            *(f"--port={port}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"),
            *(f"--ray-client-server-port={client}", "--node-ip-address=127.0.0.1", "--include-dashboard=true"),
        ]
        with (self.home / "out").open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *words],
                cwd=self.home,
                env=self.environment(),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._wait()

    def environment(self) -> dict[str, str]:
        """Of a terminal that has the token, and of the head itself: this Python is `python`, our code on no path."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**kept, "PATH": path, "RAY_AUTH_TOKEN_PATH": str(self.token), "OMP_NUM_THREADS": "1"} | {
            "RAY_AUTH_MODE": "token"
        }

    def end(self) -> None:
        """It and all that descends from it."""
        mine = [*psutil.Process(self._process.pid).children(recursive=True)] if self._process.poll() is None else []
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        for process in [*mine, self._process]:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                process.kill()
        psutil.wait_procs(mine, timeout=5)
        shutil.rmtree(self.home, ignore_errors=True)

    def _wait(self) -> None:
        request = urllib.request.Request(
            f"{self.address}/api/jobs/", headers={"Authorization": f"Bearer {self.token.read_text()}"}
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(request, timeout=5).close()
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                told = (self.home / "out").read_text()
                self.end()
                raise AssertionError(f"no head: {told}")
            time.sleep(0.2)


class Submission:
    """`python -m cluster.submit WORDS`, from a terminal."""

    def __init__(self, head: Head, *words: str, token: str | None = None) -> None:
        where = () if "--address" in words else ("--address", head.address)
        self._files = [head.home / f"{uuid.uuid4().hex}.{stream}" for stream in ("out", "err")]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cluster.submit", *words, *where],
                cwd=ROOT,
                env=head.environment() | ({"RAY_AUTH_TOKEN": token} if token else {}),
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def told(self) -> tuple[str, str]:
        """What it has written to stdout and to stderr."""
        out, err = (file.read_text() for file in self._files)
        return out, err

    def ctrl_c(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def running(self) -> bool:
        return self._process.poll() is None

    def outcome(self) -> tuple[int, str, str]:
        """Exit status, stdout and stderr at its end."""
        try:
            return self._process.wait(timeout=PATIENCE), *self.told
        finally:
            self._process.kill()


def head() -> Iterator[Head]:
    """For a fixture of any scope."""
    made = Head()
    try:
        yield made
    finally:
        made.end()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
