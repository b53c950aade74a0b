"""A Ray cluster to run on: one that is there, or a local one sized to the machine that ends with the sweep."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ANSWER_SECONDS = 5.0
LONGEST_HOME = 24
"""Characters of a temporary folder in which Ray's sockets find room (macOS and batch systems have longer ones)."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_MAX_PENDING_TRIALS_PG": "64",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
}
"""Environment of this process and the workers: no telemetry, no logs or snapshots of Tune's own, Ctrl-C left to us."""

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Environment in which a local cluster listens on the loopback alone, as Ray does elsewhere than on Linux."""


class ClusterError(Exception):
    """There is no cluster to run on: one line that says why."""


class NodeLost(ClusterError):
    """The node of this driver has died."""

    def __init__(self) -> None:
        super().__init__("Ray's node on this machine, which this process hangs on, has died")


def check_address(address: str | None) -> None:
    """ClusterError if nobody answers at `address` (`host:port`, `ray://host:port`, or `auto`); None is never asked."""
    if address in (None, "auto", "local"):
        return
    host, _, port = str(address).removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(f"--address must be host:port, ray://host:port, auto or local, but got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:  # of a port with thousands of digits, say
        raise ClusterError(f"no Ray cluster answers at {address}: {error}") from error


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[str]:
    """Ray, connected: to `address`, or to a local cluster of our own where it is None or `local`.

    Yields a folder of this machine for Ray's own scratch files, which is the working directory meanwhile: that of a
    Ray job is unpacked anew when a node comes that shares it. What was started here is ended here.
    """
    local = address in (None, "local")
    wanted = {**QUIET, **LOOPBACK} if local else QUIET
    os.environ.update({name: value for name, value in wanted.items() if name not in os.environ})
    import ray  # after the environment is set: Ray reads it when it is imported

    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="sweep-", dir=_scratch_home(), ignore_cleanup_errors=True) as scratch:
        try:
            ray.init(log_to_driver=False, configure_logging=False, **_where(address, scratch))
        except (OSError, RuntimeError, ValueError) as error:
            what = "start Ray here" if local else f"join the Ray cluster at {address}"
            raise ClusterError(f"cannot {what}: {first_line(error, type(error).__name__)}") from error
        if local:
            _close_token()
        try:
            with contextlib.chdir(scratch):
                yield scratch
        finally:
            ray.shutdown()


def node_lives() -> bool:
    """Whether Ray's node of this driver is there; True where nobody can say, as before and after Ray runs."""
    ray = sys.modules.get("ray")  # imported here, its environment would not be set
    try:
        mine = [child for child in psutil.Process().children() if child.name() == "raylet"]
        if any(child.status() == psutil.STATUS_ZOMBIE for child in mine):  # a cluster hears of it much later
            return False
        if ray is None or not ray.is_initialized():
            return True
        own = ray.get_runtime_context().get_node_id()
        return all(node["Alive"] for node in ray.nodes() if node["NodeID"] == own)
    except Exception:  # half imported, or just shut down
        return True


def _close_token() -> None:
    """To others of this machine: Ray makes the token where there is none, readable by whom the umask lets."""
    with contextlib.suppress(OSError):
        Path.home().joinpath(".ray/auth_token").chmod(0o600)


def _scratch_home() -> str | None:
    """None for the usual place; `/tmp` where that is too deep for Ray's sockets, whose paths have 107 bytes at most."""
    return "/tmp" if len(tempfile.gettempdir()) > LONGEST_HOME else None


def _where(address: str | None, scratch: str) -> dict[str, Any]:
    """Arguments of `ray.init`. A local cluster has no dashboard; one elsewhere is sent our code."""
    if address in (None, "local"):
        return {
            "address": "local",
            "include_dashboard": False,
            "_temp_dir": scratch,
        }
    if address == os.environ.get("RAY_ADDRESS"):  # inside a Ray job, which has brought its working directory
        return {"address": address}
    packages = [str(Path(__file__).parents[1] / name) for name in ("sweeper", "trainables", "search_spaces")]
    return {"address": address, "runtime_env": {"py_modules": packages}}


def first_line(said: object, otherwise: str) -> str:
    """What stands first in a text, or in an exception's; `otherwise` where it is empty."""
    return next((line.strip() for line in str(said or "").splitlines() if line.strip()), otherwise)
