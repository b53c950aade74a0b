"""Tells whether the Ray processes on which a driver depends are alive.

Ray itself lets a driver wait for ever if the node on its machine has died, and for a minute if the head has.
"""

import socket
import sys
import time
from collections.abc import Callable

import psutil

NODE_DIED = "Ray's node on this machine, which this process depends on, has died"
HEAD_DIED = "Ray's head (gcs_server), which this process depends on, has died"
LOCAL_PROCESSES = {"raylet": NODE_DIED, "gcs_server": HEAD_DIED}
"""Name of a process of the driver's own local cluster, which is a child of the driver -> what to report if it died."""
HEAD_TIMEOUT = 30.0
"""Seconds for which the head of a joined cluster may refuse connections before it counts as dead. A head that Ray
restarts is back sooner, and Ray itself ends the driver after 60 s."""
CONNECT_SECONDS = 2.0
"""Seconds to wait for a connection to the head."""


class NodeHealth:
    """A function that returns one line about the Ray process that has died, or None.

    None means that all are alive, or that it cannot be known, as before Ray has started and after it was shut down.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silent_since: float | None = None

    def __call__(self) -> str | None:
        try:
            return _dead_child() or self._dead_elsewhere()
        except Exception:  # Ray is half imported, or just shut down
            return None

    def _dead_elsewhere(self) -> str | None:
        """Check a joined cluster: its head, and its node on this machine."""
        ray = sys.modules.get("ray")  # importing it here would be too early for its environment
        if ray is None or not ray.is_initialized():
            return None
        context = ray.runtime_context.get_runtime_context()  # ray.get_runtime_context starts a cluster if it just ended
        if not _answers(context.gcs_address):  # any call of Ray would wait for a minute now
            return self._silent_head()
        self._silent_since = None
        driver_node = context.get_node_id()
        return None if all(node["Alive"] for node in ray.nodes() if node["NodeID"] == driver_node) else NODE_DIED

    def _silent_head(self) -> str | None:
        """Return that the head has died, once it has not answered for `HEAD_TIMEOUT` seconds."""
        if self._silent_since is None:
            self._silent_since = self._clock()
        return HEAD_DIED if self._clock() - self._silent_since >= HEAD_TIMEOUT else None


def _dead_child() -> str | None:
    """Return which process of our own local cluster has died. It stays a zombie as long as this process lives."""
    for child in psutil.Process().children():
        died = LOCAL_PROCESSES.get(child.name())
        if died and child.status() == psutil.STATUS_ZOMBIE:
            return died
    return None


def _answers(address: str) -> bool:
    """Whether a process accepts connections at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
