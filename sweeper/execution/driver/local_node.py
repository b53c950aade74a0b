"""Starts a local Ray with the processes that a sweep uses, and no others.

`ray.init` also starts a server for dashboards, for whose answer it waits even without a dashboard, the monitor of an
autoscaler and one of logs: together a second and a half of processor time, 170 MB, and most of the wait at both ends.
It then asks once a second whether its node has come up.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ray._private.node
import ray._private.services
import ray._private.utils

from sweeper.execution.driver.replaced_attribute import replaced

UNUSED = ("start_api_server", "start_monitor", "start_log_monitor")
"""Methods of Ray's `Node` that start a process for dashboards, autoscalers and logs in the terminal."""
LOOK_SECONDS, MOST_SECONDS = 0.02, 30.0
"""Time between two looks for the node, and the time after which Ray looks by itself."""


@contextlib.contextmanager
def lean_start() -> Iterator[None]:
    """Context in which `ray.init` starts a local cluster without the processes of `UNUSED`. What another version of Ray
    does not have is left alone."""
    services, utils = ray._private.services, ray._private.utils
    with contextlib.ExitStack() as stack:
        for name in UNUSED:
            stack.enter_context(replaced(ray._private.node.Node, name, _start_nothing))
        # The packages of the dashboard count as missing, so that its agent on the node starts without a server.
        stack.enter_context(replaced(utils, "get_dashboard_dependency_error", lambda: ImportError("not used")))
        stack.enter_context(replaced(services, "get_node", partial(_node_soon, services.get_node)))
        yield


def _start_nothing(*_: object, **__: object) -> None:
    """Instead of a method that starts a process."""


def _node_soon(get_node: Callable[[str, str], Any], gcs_address: str, node_id: str) -> Any:
    """`get_node(gcs_address, node_id)`, as soon as the node is known: called before, it sleeps for whole seconds."""
    last = time.monotonic() + MOST_SECONDS
    with contextlib.suppress(Exception):  # whatever fails here, Ray's own look reports it
        core: Any = ray._raylet  # untyped
        client = core.GcsClient(address=gcs_address)
        while node_id not in {node.hex() for node in client.get_all_node_info()} and time.monotonic() < last:
            time.sleep(LOOK_SECONDS)
    return get_node(gcs_address, node_id)
