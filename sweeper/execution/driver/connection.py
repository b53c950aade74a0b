"""Which Ray cluster a sweep uses: that of this process, an existing one, or a local one that ends with the sweep."""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator, Sequence

from sweeper.errors import ClusterError
from sweeper.execution.driver.ray_environment import environment_of_workers, quiet_loggers, set_environment
from sweeper.execution.driver.scratch import scratch_folder
from sweeper.execution.process.early_imports import imported_meanwhile
from sweeper.packing.cluster import is_local

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
    from sweeper.execution.driver.ray_init import shut_down, start_or_join  # here: Ray reads the environment

    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet_loggers())
        scratch = str(stack.enter_context(scratch_folder()))
        if not session:
            stack.callback(shut_down)
            if local:
                stack.enter_context(environment_of_workers())
            with imported_meanwhile(meanwhile):
                start_or_join(address, scratch)
        stack.enter_context(contextlib.chdir(scratch))
        yield scratch
