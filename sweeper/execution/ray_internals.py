"""All that is replaced inside Ray, and why. Nothing else in the product reads or replaces a private name of Ray.

- `ray.init` also starts a server for dashboards, for whose answer it waits even without a dashboard, the monitor of an
  autoscaler and one of logs: together a second and a half of processor time, 170 MB, and most of the wait at both ends.
- It then asks once a second whether its node has come up.
- A driver prints what the processes of a cluster print; here these lines go to the log of the run (`ray_logs`).
- `ray.init` and `ray.shutdown` put a handler of their own in the place of this process's handler of SIGTERM.

A version of Ray that lacks one of these names does as it does by itself, and one line says so.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ray
import ray._private.node
import ray._private.services
import ray._private.utils
import ray._private.worker

from sweeper.execution.ray_logs import take_lines
from sweeper.execution.signals import kept_disposition
from sweeper.printing import print

UNUSED = ("start_api_server", "start_monitor", "start_log_monitor")
"""Methods of Ray's `Node` that start a process for dashboards, autoscalers and logs in the terminal."""
POLL_SECONDS, MOST_SECONDS = 0.02, 30.0
"""Seconds between two polls for the node, and after which Ray polls itself."""
_missing: set[str] = set()
"""Names that this version of Ray lacks, of which a line was printed."""


@contextlib.contextmanager
def lean_start() -> Iterator[None]:
    """Context in which `ray.init` starts a local cluster without the processes of `UNUSED`, and sees its node soon."""
    services, utils = ray._private.services, ray._private.utils
    slower = "a local Ray starts more slowly"
    with contextlib.ExitStack() as stack:
        for name in UNUSED:
            stack.enter_context(_replaced(ray._private.node.Node, name, _start_nothing, slower))
        # The packages of the dashboard count as missing, so that its agent on the node starts without a server.
        absent = partial(ImportError, "not used")
        stack.enter_context(_replaced(utils, "get_dashboard_dependency_error", absent, slower))
        get_node: Any = getattr(services, "get_node", None)
        soon = partial(_node_soon, get_node)
        stack.enter_context(_replaced(services, "get_node", soon, slower))
        yield


@contextlib.contextmanager
def captured_lines() -> Iterator[bool]:
    """Context in which `ray.init` takes `take_lines` for what prints the lines of a cluster's processes. Yields whether
    it does."""
    name = "print_to_stdstream"
    with _replaced(ray._private.worker, name, take_lines, "the log of the run lacks what a cluster's processes print"):
        yield getattr(ray._private.worker, name, None) is take_lines


@contextlib.contextmanager
def own_sigterm() -> Iterator[None]:
    """Context in which Ray replaces this process's handler of SIGTERM neither in Python nor past it."""
    otherwise = "SIGTERM may end a run at once"
    with _replaced(ray._private.utils, "set_sigterm_handler", lambda handler: None, otherwise), kept_disposition():
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: object, otherwise: str) -> Iterator[None]:
    """Context in which the attribute `name` of `owner` has another value. If there is none, a line says what happens
    `otherwise`."""
    if not hasattr(owner, name):
        if name not in _missing:
            _missing.add(name)
            print(f"note: Ray {ray.__version__} has no {owner.__name__}.{name}; {otherwise}", file=sys.stderr)
        yield
        return
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _start_nothing(*_: object, **__: object) -> None:
    """Instead of a method that starts a process."""


def _node_soon(get_node: Callable[[str, str], Any], gcs_address: str, node_id: str) -> Any:
    """`get_node(gcs_address, node_id)`, as soon as the node is known: called before, it sleeps for whole seconds."""
    last = time.monotonic() + MOST_SECONDS
    with contextlib.suppress(Exception):  # whatever fails here, Ray's own poll reports it
        core: Any = ray._raylet  # untyped
        client = core.GcsClient(address=gcs_address)
        while node_id not in {node.hex() for node in client.get_all_node_info()} and time.monotonic() < last:
            time.sleep(POLL_SECONDS)
    return get_node(gcs_address, node_id)
