"""Ends a driver whose Ray processes have died.

Ray itself lets a driver wait for ever if the node on its machine has died, and for a minute if the head has.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

import psutil

from sweeper.errors import NodeLost
from sweeper.printing import print

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


INTERVAL = 1.0
"""Seconds between two checks."""
GRACE = 20.0
"""Seconds within which a driver that has lost its node must end."""


class NodeWatchdog:
    """Context manager that raises NodeLost in the main thread when a Ray process has died.

    `dead_process()` is called every `interval` seconds and returns one line about the dead process, or None. On a
    line, the watchdog sends SIGTERM to this process, whose handler must raise KeyboardInterrupt (see `StopSignal`);
    leaving the context turns that into NodeLost. If the main thread has not left within `grace` seconds, for example
    because a call into Ray blocks it, `before_exit` is called (for at most `grace` seconds) and the process exits with
    status 1. Call `close()` before Ray is shut down on purpose.
    """

    def __init__(
        self,
        dead_process: Callable[[], str | None],
        before_exit: Callable[[], object] = lambda: None,
        interval: float = INTERVAL,
        grace: float = GRACE,
    ) -> None:
        self._dead_process, self._before_exit = dead_process, before_exit
        self._interval, self._grace = interval, grace
        self._closed, self._left = threading.Event(), threading.Event()
        self._acting = threading.Lock()
        self._reason: str | None = None

    def __enter__(self) -> NodeWatchdog:
        threading.Thread(target=self._watch, name="node-watchdog", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        self._left.set()
        if self._reason and kind is KeyboardInterrupt:
            raise NodeLost(self._reason) from None

    def close(self) -> None:
        """Stop checking. No signal is sent after this returns."""
        self._closed.set()
        with self._acting:
            pass

    def _watch(self) -> None:
        while not self._closed.wait(self._interval):
            if reason := self._dead_process():
                self._act(reason)
                return

    def _act(self, reason: str) -> None:
        with self._acting:
            if self._closed.is_set():  # closed during the check: Ray was shut down on purpose
                return
            self._reason = reason
            os.kill(os.getpid(), signal.SIGTERM)
        if not self._left.wait(self._grace):
            print(f"error: {reason}; the same command continues", file=sys.stderr, flush=True)
            thread = threading.Thread(target=self._before_exit, name="before exit", daemon=True)
            thread.start()
            thread.join(self._grace)
            sys.stdout.flush()
            os._exit(1)
