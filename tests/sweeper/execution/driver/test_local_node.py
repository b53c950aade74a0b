"""What a local Ray starts. That a sweep lacks nothing of what is left out, the end-to-end tests show."""

import subprocess
import sys

import ray._private.node
import ray._private.services

from sweeper.execution.driver.local_node import UNUSED, lean_start
from sweeper.execution.driver.ray_environment import GPUS
from sweeper.execution.driver.replaced_attribute import replaced

START = """
import psutil, sys
from sweeper.execution.driver.connection import connected
with connected(None, trials=1000):
    import ray
    print(*sorted(child.name() for child in psutil.Process().children()))
    class Imported:
        def torch(self):
            return "torch" in sys.modules
    print(ray.get(ray.remote(num_cpus=1)(Imported).remote().torch.remote()))
"""


def test_ray_starts_what_a_sweep_uses_and_nothing_else() -> None:
    """And its first workers have imported what training needs before they are asked to train."""
    started = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
    assert started.stdout.splitlines() == ["gcs_server raylet", str(not GPUS.exists())]
    assert started.stderr == ""


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
