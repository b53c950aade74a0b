"""The connection to Ray: that of this process, an existing cluster, or a local one that ends with the sweep.

Ray is imported when a connection is made, because it reads its environment then.

A local cluster has a scratch folder `sweep-XXXXXXXX` in the temporary folder. It has mode 0700 and contains

- `driver.lock`, which the driver keeps locked (flock) while it lives. The operating system releases the lock when the
  driver dies, so a lock that can be taken means that no driver needs the folder any more, and the next run removes it;
- `r`, the folder for Ray. Ray opens its own folders to every user (mode 0777), but no other user can reach them here.
"""

import contextlib
import fcntl
import importlib
import os
import secrets
import shutil
import socket
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from sweeper.definition import user_code
from sweeper.errors import ClusterError, first_line
from sweeper.execution.ray_logs import captured_files, captured_loggers
from sweeper.execution.signals import hangup_blocked
from sweeper.execution.startup import imported_meanwhile
from sweeper.packing.cluster import is_local
from trainables.cache import OpenFolderError, check_parents

ANSWER_SECONDS = 10.0
"""Seconds to wait for a connection to a cluster's address, and for an answer there."""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What clients of gRPC, which Ray's servers speak, send first (RFC 9113, section 3.4). A server answers with a frame of
its own settings, whose fourth byte is 4."""
TLS = "RAY_USE_TLS"
"""Ray's environment variable for encryption. The greeting would be encrypted, too."""


def check_address(address: str | None) -> None:
    """Raise ClusterError if no cluster answers at `address`: `host:port` or `ray://host:port`. Ray itself would try for
    minutes, and print warnings meanwhile.

    `auto`, `local` and None are accepted without a connection.
    """
    if address in (None, "auto", "local"):
        return
    host, _, port = str(address).removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(f"--address must be host:port, ray://host:port, auto or local, but got {address!r}")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as connection:
            speaks_grpc = os.environ.get(TLS, "0").lower() in ("1", "true") or _speaks_grpc(connection)
    except (OSError, OverflowError, ValueError) as error:  # the last two for a port with thousands of digits
        raise ClusterError(f"no Ray cluster answers at {address}: {error}") from error
    if not speaks_grpc:
        raise ClusterError(
            f"no Ray cluster answers at {address}: another program listens there; give the head's port, which is 6379 "
            "by default, or ray:// with that of Ray Client, 10001; the dashboard's port is for sweeper submit"
        )


def _speaks_grpc(connection: socket.socket) -> bool:
    """Whether a server of gRPC is at the other end."""
    connection.sendall(GREETING)
    answer = b""
    while len(answer) < 4 and (received := connection.recv(4 - len(answer))):
        answer += received
    return answer[3:] == b"\x04"


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
    set_environment(local)
    importlib.import_module("ray")  # here: it reads the environment, and sets its loggers up
    with contextlib.ExitStack() as stack:
        stack.enter_context(captured_loggers())
        scratch = str(stack.enter_context(scratch_folder()))
        if not session:
            if local:
                stack.enter_context(captured_files(Path(scratch)))
            stack.callback(shut_down)
            if local:
                stack.enter_context(environment_of_workers())
            with imported_meanwhile(meanwhile):
                start_or_join(address, scratch)
        stack.enter_context(contextlib.chdir(scratch))
        yield scratch


def start_or_join(address: str | None, scratch: str) -> None:
    """Start a local cluster, or join the one at `address`. Raises ClusterError if that fails."""
    import ray

    from sweeper.execution.ray_internals import captured_lines, lean_start, own_sigterm

    if is_local(address):
        make_token(Path.home(), os.environ)
    sends_lines = not is_local(address) and not str(address).startswith("ray://")
    try:
        with (
            own_sigterm(),
            hangup_blocked(),
            lean_start() if is_local(address) else quiet_stderr(),
            captured_lines() as captured,
        ):
            arguments = _init_arguments(address, scratch)
            ray.init(log_to_driver=sends_lines and captured, configure_logging=False, **arguments)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        what = "start Ray here" if is_local(address) else f"join the Ray cluster at {address}"
        raise ClusterError(f"cannot {what}: {first_line(error, type(error).__name__)}") from error


def shut_down() -> None:
    """Leave the cluster; a local one ends."""
    import ray

    from sweeper.execution.ray_internals import own_sigterm

    with own_sigterm():
        ray.shutdown()


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
        modules += [str(Path(__file__).parents[2] / name) for name in user_code.PACKAGES]
    return {"address": address, "runtime_env": {"py_modules": modules}} if modules else {"address": address}


QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",
}
"""Environment of this process and the workers: no telemetry, no process beside each group of workers that looks for
nodes about to go, which send SIGTERM (see `sweeper.submission.spot_notice`), and no cluster that starts because Ray is
called after it was shut down: nobody would end it, and the next sweep of this process would run on it."""

LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
}
"""Environment of a local cluster. It listens on the loopback interface only, which Ray does by itself except on Linux,
and has no metrics, because their ports ask for no token."""

NO_SERVER = "http://127.0.0.1:1"
"""An address that refuses at once. Ray Train asks the dashboard's server whether a group of workers lives, and looks
for its address for 20 s where there is none, as in a local cluster; a group that ends sooner would wait for that."""


def set_environment(local: bool) -> None:
    """Set what is not set yet of the environment that Ray reads when it is imported; `local`: for a local cluster."""
    defaults = {**QUIET, **LOOPBACK} if local else QUIET
    os.environ.update({name: value for name, value in defaults.items() if name not in os.environ})


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Context in which what Ray's C++ code and its warnings print is dropped; what Python writes to `sys.stderr` is
    not. While Ray looks for a cluster that does not answer, they repeat what its exception then says."""
    sys.stderr.flush()
    with (
        os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace") as ours,
        open(os.devnull, "w") as nothing,
        warnings.catch_warnings(action="ignore"),
    ):
        os.dup2(nothing.fileno(), 2)
        try:
            with contextlib.nullcontext() if _is_captured() else contextlib.redirect_stderr(ours):
                yield
        finally:
            os.dup2(ours.fileno(), 2)


def _is_captured() -> bool:
    """Whether `sys.stderr` is not this process's standard error, as in a notebook."""
    try:
        return sys.stderr.fileno() != 2
    except OSError:
        return True


@contextlib.contextmanager
def environment_of_workers() -> Iterator[None]:
    """The environment that the workers of a local cluster inherit: with it they import the user's modules, and do not
    look for the dashboard's server."""
    folders = [*user_code.folders(), *filter(None, [os.environ.get("PYTHONPATH")])]
    values = {"PYTHONPATH": os.pathsep.join(folders), "RAY_API_SERVER_ADDRESS": NO_SERVER}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: value for name, value in values.items() if value})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


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


PREFIX, LOCK, INNER = "sweep-", "driver.lock", "r"
LONGEST_HOME = 22
"""Most characters of a temporary folder that leave room for Ray's socket paths, which have at most 107 bytes on Linux
and 103 on macOS. Temporary folders of macOS and of batch systems are often longer."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder that no other user can reach, and remove it at the end.

    Folders of drivers that were killed are removed first. Raises ClusterError if it cannot be made, or if other users
    can replace the contents of the temporary folder.
    """
    home = scratch_home()
    with _making():
        _check_home(home)
        remove_abandoned(home)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))  # mode 0700
        lock = _locked(folder)
    try:
        inner = folder / INNER
        with _making():
            inner.mkdir(mode=0o700)
        yield inner
    finally:
        _remove(folder)
        os.close(lock)


@contextlib.contextmanager
def _making() -> Iterator[None]:
    """Context that raises ClusterError instead of OSError."""
    try:
        yield
    except OSError as error:
        raise ClusterError(f"cannot make a scratch folder: {error}") from error


def scratch_home() -> Path:
    """Return the temporary folder, or `/tmp` if its path is too long for Ray's sockets."""
    home = os.path.realpath(tempfile.gettempdir())
    return Path("/tmp" if len(home) > LONGEST_HOME else home)


def _check_home(home: Path) -> None:
    """Raise ClusterError if another user can rename what is in `home`, `home` itself or a folder above it."""
    law = "folders above scratch files must belong to you or to root and be writable for no one else, or be sticky"
    try:
        check_parents(home / PREFIX, law, "TMPDIR")
    except OpenFolderError as error:
        raise ClusterError(f"cannot make a scratch folder: {error}") from error


def remove_abandoned(home: Path) -> None:
    """Remove this user's scratch folders in `home` whose driver has died and that no process uses any more."""
    for folder in home.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, without a lock file, or gone meanwhile
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    """Raises BlockingIOError if the folder's driver lives, FileNotFoundError if no driver has made the folder."""
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():  # a link, or somebody else's
        return
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not any(users_of(folder / INNER)):
            _remove(folder)
    finally:
        os.close(lock)


def _locked(folder: Path) -> int:
    """Make and lock the folder's lock file, and return its file descriptor.

    The file gets its name after it is locked, so other drivers never see it unlocked while this process lives.
    """
    unnamed = folder / f"{LOCK}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unnamed.rename(folder / LOCK)
    return lock


def users_of(folder: Path) -> Iterator[psutil.Process]:
    """Yield the processes of this user, other than this one, that use the folder. Ray's processes outlive a killed
    driver by some seconds."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.uids().real == os.getuid() and _mentions(process, f"{folder}/"):
                yield process


def _mentions(process: psutil.Process, below: str) -> bool:
    """Whether a process has a path with `below` in its command line, as working directory or as open file."""
    paths = (*process.cmdline(), process.cwd(), *(file.path for file in process.open_files()))
    return any(below in f"{path}/" for path in paths)


def _remove(folder: Path) -> None:
    """Remove a scratch folder, its lock file last: a folder that cannot be removed now is still known as a driver's."""
    shutil.rmtree(folder / INNER, ignore_errors=True)
    if not (folder / INNER).exists():
        shutil.rmtree(folder, ignore_errors=True)
