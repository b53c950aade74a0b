"""What a local Ray starts. That a sweep lacks nothing of what is left out, the end-to-end tests show."""

import subprocess
import sys

import ray._private.node
import ray._private.services

from sweeper.execution.driver.local_node import UNUSED, lean_start
from sweeper.execution.driver.replaced_attribute import replaced

CHILDREN = """
import psutil
from sweeper.execution.driver.connection import connected
with connected(None):
    print(*sorted(child.name() for child in psutil.Process().children()))
"""


def test_ray_starts_what_a_sweep_uses_and_nothing_else() -> None:
    started = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, check=True)
    assert (started.stdout.split(), started.stderr) == (["gcs_server", "raylet"], "")


def test_ray_is_afterwards_as_it_was() -> None:
    node, services = ray._private.node.Node, ray._private.services
    before = [getattr(node, name) for name in UNUSED], services.get_node
    with lean_start():
        assert all(getattr(node, name) is not method for name, method in zip(UNUSED, before[0], strict=True))
    assert ([getattr(node, name) for name in UNUSED], services.get_node) == before


def test_what_another_version_lacks_is_left_alone() -> None:
    class Node:
        pass

    with replaced(Node, "start_monitor", None):
        assert not hasattr(Node, "start_monitor")
