"""The watchdog over Ray's processes."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest
import ray

from sweeper.errors import NodeLost
from sweeper.execution.signals import StopSignal
from sweeper.execution.watchdog import HEAD_DIED, HEAD_TIMEOUT, NODE_DIED, NodeHealth, NodeWatchdog


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def child(name: str, status: str = psutil.STATUS_SLEEPING) -> SimpleNamespace:
    return SimpleNamespace(name=lambda: name, status=lambda: status)


def set_children(monkeypatch: pytest.MonkeyPatch, *children: SimpleNamespace) -> None:
    monkeypatch.setattr(psutil.Process, "children", lambda _: list(children))


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A joined cluster: its head is this socket, and its first node is on this machine."""
    set_children(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as server:
        context = SimpleNamespace(
            gcs_address=f"127.0.0.1:{server.getsockname()[1]}",
            get_node_id=lambda: "mine",
        )
        nodes = [{"NodeID": "mine", "Alive": True}, {"NodeID": "other", "Alive": False}]
        fake = SimpleNamespace(
            is_initialized=lambda: True,
            runtime_context=SimpleNamespace(get_runtime_context=lambda: context),
            nodes=lambda: nodes,
        )
        monkeypatch.setitem(sys.modules, "ray", fake)
        yield server


@pytest.mark.parametrize(("name", "message"), [("raylet", NODE_DIED), ("gcs_server", HEAD_DIED)])
def test_a_process_of_our_own_cluster_that_has_died_is_named_at_once(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    living = [child("raylet"), child("gcs_server"), child("git", psutil.STATUS_ZOMBIE)]
    set_children(monkeypatch, *living)
    assert NodeHealth()() is None
    set_children(monkeypatch, *living, child(name, psutil.STATUS_ZOMBIE))
    assert NodeHealth()() == message


def test_a_joined_clusters_node_that_has_died_is_named_at_once(head: socket.socket) -> None:
    health = NodeHealth()
    assert health() is None
    sys.modules["ray"].nodes()[0]["Alive"] = False
    assert health() == NODE_DIED


def test_the_head_of_a_joined_cluster_may_be_unreachable_for_a_while(
    head: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray is not asked meanwhile: it would wait for a minute."""
    health = NodeHealth(clock := Clock())
    address = head.getsockname()
    head.close()
    monkeypatch.delattr(sys.modules["ray"], "nodes")
    for clock.now in (0.0, HEAD_TIMEOUT - 1):
        assert health() is None
    monkeypatch.setattr(sys.modules["ray"], "nodes", lambda: [], raising=False)
    with socket.create_server(address):
        assert health() is None
    for clock.now, message in [(50.0, None), (50.0 + HEAD_TIMEOUT - 1, None), (50.0 + HEAD_TIMEOUT, HEAD_DIED)]:
        assert health() == message


def test_nothing_is_reported_while_ray_starts_or_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    set_children(monkeypatch)
    for fake in (SimpleNamespace(), SimpleNamespace(is_initialized=lambda: False)):
        monkeypatch.setitem(sys.modules, "ray", fake)
        assert NodeHealth()() is None
    monkeypatch.delitem(sys.modules, "ray")
    assert NodeHealth()() is None


def test_a_poll_while_ray_ends_starts_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself starts a cluster when most of its functions are called without one."""
    set_children(monkeypatch)
    starts: list[object] = []
    monkeypatch.setattr(ray._private.auto_init_hook, "enable_auto_connect", True)
    monkeypatch.setattr(ray, "init", lambda: starts.append(None))
    connected = iter([True])
    monkeypatch.setattr(ray, "is_initialized", lambda: next(connected, False))
    assert NodeHealth()() is None and not starts


def test_a_node_that_dies_ends_the_wait_for_it() -> None:
    answers = iter([None, None])
    watchdog = NodeWatchdog(lambda: next(answers, "Ray's head has died"), interval=0.05)
    with pytest.raises(NodeLost, match=r"^Ray's head has died$"), StopSignal().on_signals(), watchdog:
        time.sleep(300)


def test_a_block_that_ends_in_time_or_by_ctrl_c_is_not_disturbed() -> None:
    checks = threading.Semaphore(0)
    with NodeWatchdog(checks.release, interval=0.01):
        assert all(checks.acquire(timeout=60) for _ in range(3))
    with pytest.raises(KeyboardInterrupt), NodeWatchdog(lambda: None, interval=0.01):
        raise KeyboardInterrupt


def test_a_node_that_is_shut_down_on_purpose_ends_nothing() -> None:
    """Even if the node is being checked when the shutdown begins."""
    check_started, node_ended = threading.Event(), threading.Event()

    def died() -> str | None:
        check_started.set()
        return "gone" if node_ended.wait(60) else None

    with StopSignal().on_signals(), NodeWatchdog(died, interval=0.01) as watchdog:
        with contextlib.closing(watchdog):
            assert check_started.wait(60)
        node_ended.set()
        time.sleep(0.2)


def test_a_process_that_does_not_react_is_ended() -> None:
    code = (
        "import signal, time\n"
        "from sweeper.execution.watchdog import NodeWatchdog\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "def before_exit():\n"
        "    print('what there is')\n"
        "    time.sleep(300)\n"
        "with NodeWatchdog(lambda: 'the node has died', before_exit, interval=0.05, grace=0.1):\n"
        "    time.sleep(300)\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert completed.returncode == 1 and completed.stdout == "what there is\n"
    assert completed.stderr == "error: the node has died; the same command continues\n", completed
