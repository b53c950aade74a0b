"""Connects to a Ray cluster: an existing one, or a local one that is started here and ends with the sweep."""

import contextlib
import ctypes
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.errors import ClusterError
from sweeper.execution.driver.early_imports import imported_meanwhile
from sweeper.execution.driver.ray_environment import LOOPBACK, QUIET, environment_of_workers
from sweeper.execution.driver.scratch import ScratchError, scratch_folder
from sweeper.packing.cluster import is_local
from sweeper.spec import user_code

ANSWER_SECONDS = 5.0
"""Seconds to wait for a connection to a cluster's address."""
RESTORE_SECONDS = 0.001
"""Seconds between two restorations of a signal's disposition while Ray may replace it."""
SIGACTION_BYTES = 256
"""Buffer size for the C library's `struct sigaction`, whose size differs between systems (152 bytes on Linux)."""


def check_address(address: str | None) -> None:
    """Raise ClusterError if no cluster answers at `address`: `host:port` or `ray://host:port`.

    `auto`, `local` and None are accepted without a connection.
    """
    if address in (None, "auto", "local"):
        return
    host, _, port = str(address).removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(f"--address must be host:port, ray://host:port, auto or local, but got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:  # the last two for a port with thousands of digits
        raise ClusterError(f"no Ray cluster answers at {address}: {error}") from error


def session_address() -> str | None:
    """`host:port` of the cluster that this process is connected to, such as a notebook's; None if there is none."""
    ray = sys.modules.get("ray")  # importing it here would be too early for its environment
    if ray is None or not getattr(ray, "is_initialized", lambda: False)():
        return None
    address: str = ray.get_runtime_context().gcs_address
    return address


def starts_cluster(address: str | None) -> bool:
    """Whether `connected` starts a cluster, which ends with it: the address is no cluster's, nor is this a session."""
    return is_local(address) and session_address() is None


@contextlib.contextmanager
def connected(address: str | None, meanwhile: Sequence[str] = ()) -> Iterator[str]:
    """Connect to the cluster at `address`, or start a local one if that is None or `local`. The modules `meanwhile` are
    imported while Ray starts.

    Yields a folder of this machine for Ray's scratch files. It is the working directory meanwhile, because that of a
    Ray job is unpacked again when a node that shares it joins. Ray is shut down at the end, unless this process was
    connected before, and the signal handlers stay the caller's. Raises ClusterError if Ray cannot be started or joined.

    Where this process was connected before, workers on this machine import the user's modules from their folders; a
    cluster must have got them by the `runtime_env` of `ray.init`.
    """
    local, session = is_local(address), session_address()
    if session and address not in (session, "auto"):
        raise ClusterError(
            f"this process is connected to Ray at {session}, but --address asks for {address or 'local'}; call "
            "ray.shutdown() first"
        )
    defaults = {**QUIET, **LOOPBACK} if local else QUIET
    os.environ.update({name: value for name, value in defaults.items() if name not in os.environ})
    import ray  # noqa: F401 (Ray reads the environment when it is imported)

    with contextlib.ExitStack() as stack:
        for logger in map(logging.getLogger, ("ray", "ray.tune", "ray.train", "ray.data")):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        try:
            scratch = str(stack.enter_context(scratch_folder()))
        except (ScratchError, OSError) as error:
            raise ClusterError(f"cannot make a scratch folder: {error}") from error
        if not session:
            stack.callback(_shut_down)
            if local:
                stack.enter_context(environment_of_workers())
            with imported_meanwhile(meanwhile):
                _start_or_join(address, scratch)
        stack.enter_context(contextlib.chdir(scratch))
        yield scratch


def _start_or_join(address: str | None, scratch: str) -> None:
    """Start a local cluster, or join the one at `address`. Raises ClusterError if that fails."""
    import ray

    from sweeper.execution.driver.local_node import lean_start  # here: it imports Ray

    if is_local(address):
        make_token(Path.home(), os.environ)
    try:
        with _own_signal_handlers(), lean_start() if is_local(address) else contextlib.nullcontext():
            ray.init(log_to_driver=False, configure_logging=False, **_init_arguments(address, scratch))
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        what = "start Ray here" if is_local(address) else f"join the Ray cluster at {address}"
        raise ClusterError(f"cannot {what}: {first_line(error, type(error).__name__)}") from error


def _shut_down() -> None:
    """Call `ray.shutdown` and keep the SIGTERM handler.

    Ray resets SIGTERM to the system's default, and then takes seconds to end its processes.
    """
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    try:
        with _kept_disposition(signal.SIGTERM):
            ray.shutdown()
    finally:
        _install(signal.SIGTERM, handler)


@contextlib.contextmanager
def _kept_disposition(number: signal.Signals) -> Iterator[None]:
    """Keep the system's action at a signal: a thread restores it every `RESTORE_SECONDS`.

    Python installs handlers from the main thread only, which is busy in Ray's code; the C library does so from any.
    """
    library, action, over = ctypes.CDLL(None), ctypes.create_string_buffer(SIGACTION_BYTES), threading.Event()
    library.sigaction(int(number), None, action)

    def restore() -> None:
        while not over.wait(RESTORE_SECONDS):
            library.sigaction(int(number), action, None)

    thread = threading.Thread(target=restore, name="disposition", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _install(number: signal.Signals, handler: Any) -> None:
    if handler is not None:  # None: the handler was not installed from Python, which cannot put it back
        signal.signal(number, handler)


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Restore this process's handlers after `ray.init`, which installs a SIGTERM handler that raises SystemExit.

    A SIGTERM that Ray's handler received is delivered again to the restored one.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    terminated = False
    try:
        yield
    except SystemExit as error:
        terminated = error.code == signal.SIGTERM
        raise
    finally:
        for number, handler in before.items():
            _install(number, handler)
        if terminated:
            signal.raise_signal(signal.SIGTERM)


def make_token(home: Path, environment: Mapping[str, str]) -> None:
    """Make Ray's token `HOME/.ray/auth_token` if it does not exist, and close it to other users (mode 0600).

    Ray would make it itself, but until it has started the file would be readable by every user that the umask allows.
    """
    if environment.get("RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = home / ".ray/auth_token"
    with contextlib.suppress(OSError):  # Ray reports a home folder that cannot be written to
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unnamed = path.with_name(f"auth_token.{secrets.token_hex(8)}")
            unnamed.touch(mode=0o600, exist_ok=False)
            unnamed.write_text(secrets.token_hex(32))
            with contextlib.suppress(FileExistsError):  # another driver was first
                os.link(unnamed, path)
            unnamed.unlink()
        path.chmod(0o600)


def _init_arguments(address: str | None, scratch: str) -> dict[str, Any]:
    """Return the arguments of `ray.init`. A local cluster has no dashboard.

    A cluster elsewhere is sent the user's modules and our code, which the working directory of a Ray job has already.
    """
    if is_local(address):
        return {"address": "local", "include_dashboard": False, "_temp_dir": scratch}
    modules = [*user_code.modules()]
    if address == os.environ.get("RAY_ADDRESS"):
        modules = [module for module in modules if Path(module).parent != Path.cwd()]
    else:
        modules += [str(Path(__file__).parents[3] / name) for name in user_code.WORKER_PACKAGES]
    return {"address": address, "runtime_env": {"py_modules": modules}} if modules else {"address": address}


def first_line(text: object, otherwise: str) -> str:
    """Return the first line of a text or exception that is not blank; `otherwise` if there is none."""
    return next((line.strip() for line in str(text or "").splitlines() if line.strip()), otherwise)
