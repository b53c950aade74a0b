"""What is replaced inside Ray. That a sweep lacks nothing of what is left out, the end-to-end tests show."""

import re
import signal
import subprocess
import sys

import pytest
import ray._private.node
import ray._private.services
import ray._private.utils

from sweeper.execution import ray_internals
from sweeper.execution.ray_internals import UNUSED, lean_start, own_sigterm
from sweeper.execution.signals import StopSignal
from tests.test_imports import modules

CHILDREN = """
import psutil
from sweeper.execution.session import connected
with connected(None):
    print(*sorted(child.name() for child in psutil.Process().children()))
"""
PRIVATE = re.compile(r"\bray(?:\.\w+)*\._(?!_)\w+(?:\.\w+)*|\b_raylet\b")
"""A private name of Ray, in source."""


def test_ray_starts_what_a_sweep_uses_and_nothing_else() -> None:
    started = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, check=True)
    assert (started.stdout.split(), started.stderr) == (["gcs_server", "raylet"], "")


def test_ray_is_afterwards_as_it_was() -> None:
    node, services = ray._private.node.Node, ray._private.services
    before = [getattr(node, name) for name in UNUSED], services.get_node
    with lean_start():
        assert all(getattr(node, name) is not method for name, method in zip(UNUSED, before[0], strict=True))
    assert ([getattr(node, name) for name in UNUSED], services.get_node) == before


def test_what_another_version_lacks_is_left_alone_and_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_internals, "_missing", set())
    monkeypatch.delattr(ray._private.node.Node, "start_monitor")
    monkeypatch.delattr(ray._private.services, "get_node")
    for _ in range(2):
        with lean_start():
            assert not hasattr(ray._private.node.Node, "start_monitor")
    assert capsys.readouterr().err == "".join(
        f"note: Ray {ray.__version__} has no {name}; a local Ray starts more slowly\n"
        for name in ("Node.start_monitor", "ray._private.services.get_node")
    )


def test_a_sigterm_while_ray_starts_reaches_our_handler() -> None:
    """Ray's own ends the process with status 15 and without a word."""
    stopping, rays = StopSignal(), ray._private.utils.set_sigterm_handler
    with stopping.on_signals():
        ours = signal.getsignal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), own_sigterm():
            ray._private.utils.set_sigterm_handler(lambda number, _: sys.exit(number))
            signal.raise_signal(signal.SIGTERM)
        assert stopping.asked and signal.getsignal(signal.SIGTERM) == ours
    assert ray._private.utils.set_sigterm_handler is rays


def test_no_other_file_names_what_is_private_in_ray() -> None:
    found = {name: sorted(set(PRIVATE.findall(path.read_text()))) for name, path in modules()}
    assert {name: private for name, private in found.items() if private} == {
        "sweeper.execution.ray_internals": [
            *("ray._private.node", "ray._private.node.Node", "ray._private.services", "ray._private.utils"),
            "ray._raylet",
        ]
    }
