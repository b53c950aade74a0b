"""A Ray cluster to run on: one that is there, or a local one sized to the machine that ends with the sweep."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweeper.errors import ClusterError
from sweeper.execution.scratch import ScratchError, scratch_folder

ANSWER_SECONDS = 5.0
RESTORE_SECONDS = 0.001
"""Seconds for which a signal may find the disposition that Ray has set in the place of ours."""
SIGACTION_BYTES = 256
"""Room for the C library's `struct sigaction`, whose size differs between systems (152 bytes on Linux)."""
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

LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
}
"""Environment in which a local cluster listens on the loopback alone, as Ray does elsewhere than on Linux, and has no
metrics, whose ports ask for no token."""


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
    Ray job is unpacked anew when a node comes that shares it. What was started here is ended here. Signal handlers
    stay the caller's. ClusterError where Ray cannot be started or joined.
    """
    local = address in (None, "local")
    wanted = {**QUIET, **LOOPBACK} if local else QUIET
    os.environ.update({name: value for name, value in wanted.items() if name not in os.environ})
    import ray  # after the environment is set: Ray reads it when it is imported

    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        try:
            scratch = str(stack.enter_context(scratch_folder()))
        except (ScratchError, OSError) as error:
            raise ClusterError(f"cannot make a scratch folder: {error}") from error
        stack.callback(_shut_down)
        if local:
            make_token(Path.home(), os.environ)
        try:
            with _own_signal_handlers():
                ray.init(log_to_driver=False, configure_logging=False, **_where(address, scratch))
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            what = "start Ray here" if local else f"join the Ray cluster at {address}"
            raise ClusterError(f"cannot {what}: {first_line(error, type(error).__name__)}") from error
        stack.enter_context(contextlib.chdir(scratch))
        yield scratch


def _shut_down() -> None:
    """`ray.shutdown`, which sets SIGTERM to the system's default, and then takes seconds to end Ray's processes."""
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    try:
        with _kept_disposition(signal.SIGTERM):
            ray.shutdown()
    finally:
        _install(signal.SIGTERM, handler)


@contextlib.contextmanager
def _kept_disposition(number: signal.Signals) -> Iterator[None]:
    """What the system does at this signal stays as it is now: a thread restores it every `RESTORE_SECONDS`.

    Python installs handlers on the main thread only, which is busy in Ray's code; the C library does so on any.
    """
    library, kept, over = ctypes.CDLL(None), ctypes.create_string_buffer(SIGACTION_BYTES), threading.Event()
    library.sigaction(int(number), None, kept)

    def restore() -> None:
        while not over.wait(RESTORE_SECONDS):
            library.sigaction(int(number), kept, None)

    thread = threading.Thread(target=restore, name="disposition", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _install(number: signal.Signals, handler: Any) -> None:
    if handler is not None:  # one that was not installed from Python cannot be put back
        signal.signal(number, handler)


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """`ray.init` installs a SIGTERM handler that raises SystemExit. Ours come back after it, and a SIGTERM that has met
    Ray's is delivered to them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    terminated = False
    try:
        yield
    except SystemExit as left:
        terminated = left.code == signal.SIGTERM
        raise
    finally:
        for number, handler in before.items():
            _install(number, handler)
        if terminated:
            signal.raise_signal(signal.SIGTERM)


def make_token(home: Path, environment: Mapping[str, str]) -> None:
    """Make Ray's token `HOME/.ray/auth_token` if there is none, and close it to other users (mode 0600).

    Ray would make it itself, but readable by everybody the umask lets, for as long as Ray takes to start.
    """
    if environment.get("RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = home / ".ray/auth_token"
    with contextlib.suppress(OSError):  # a home that takes no files: Ray says so
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unnamed = path.with_name(f"auth_token.{secrets.token_hex(8)}")
            unnamed.touch(mode=0o600, exist_ok=False)
            unnamed.write_text(secrets.token_hex(32))
            with contextlib.suppress(FileExistsError):  # another driver was first
                os.link(unnamed, path)
            unnamed.unlink()
        path.chmod(0o600)


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
