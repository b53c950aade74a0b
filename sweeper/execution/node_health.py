"""Whether the Ray processes that a driver depends on live.

Ray lets a driver wait for ever when the node on its own machine has died, and for a minute when the head has.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable

import psutil

NODE_DIED = "Ray's node on this machine, which this process depends on, has died"
HEAD_DIED = "Ray's head (gcs_server), which this process depends on, has died"
OWN = {"raylet": NODE_DIED, "gcs_server": HEAD_DIED}
"""Names of the processes that a local cluster of the driver's own consists of, as its children."""
HEAD_PATIENCE = 30.0
"""Seconds for which a joined cluster's head may refuse connections; a head that Ray restarts is back before. Ray itself
ends the driver after 60 s."""
CONNECT_SECONDS = 2.0


class NodeHealth:
    """Called, says in one line which Ray process has died, or None where all live or nobody can say (before and after
    Ray runs)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silent_since: float | None = None

    def __call__(self) -> str | None:
        try:
            return _dead_child() or self._dead_elsewhere()
        except Exception:  # Ray is half imported, or just shut down
            return None

    def _dead_elsewhere(self) -> str | None:
        """Of a cluster that was joined: its head, or its node on this machine."""
        ray = sys.modules.get("ray")  # imported here, its environment would not be set
        if ray is None or not ray.is_initialized():
            return None
        context = ray.get_runtime_context()
        if not _answers(context.gcs_address):  # asked anything else, Ray would wait for a minute
            return self._silent()
        self._silent_since = None
        own = context.get_node_id()
        return None if all(node["Alive"] for node in ray.nodes() if node["NodeID"] == own) else NODE_DIED

    def _silent(self) -> str | None:
        """The head does not answer: it has died once that lasts."""
        if self._silent_since is None:
            self._silent_since = self._clock()
        return HEAD_DIED if self._clock() - self._silent_since >= HEAD_PATIENCE else None


def _dead_child() -> str | None:
    """A process of our own cluster that has died: it stays a zombie until we end, and the cluster hears of it later."""
    for child in psutil.Process().children():
        died = OWN.get(child.name())
        if died and child.status() == psutil.STATUS_ZOMBIE:
            return died
    return None


def _answers(address: str) -> bool:
    """Whether somebody takes connections at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
