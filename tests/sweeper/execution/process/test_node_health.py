"""The Ray process that has died is named in time, and none while all are alive."""

import socket
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest
import ray

from sweeper.execution.watchdog import HEAD_DIED, HEAD_TIMEOUT, NODE_DIED, NodeHealth


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


def test_a_look_while_ray_ends_starts_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself starts a cluster when most of its functions are called without one."""
    set_children(monkeypatch)
    starts: list[object] = []
    monkeypatch.setattr(ray._private.auto_init_hook, "enable_auto_connect", True)
    monkeypatch.setattr(ray, "init", lambda: starts.append(None))
    connected = iter([True])
    monkeypatch.setattr(ray, "is_initialized", lambda: next(connected, False))
    assert NodeHealth()() is None and not starts
