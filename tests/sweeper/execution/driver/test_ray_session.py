"""Ray starts and ends in a thread, beside the main thread."""

import gc
import threading
import time
from collections.abc import Iterator

import pytest

from sweeper.errors import ClusterError
from sweeper.execution.driver import ray_session
from sweeper.execution.driver.connection import connected
from sweeper.execution.driver.ray_session import RaySession


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What Ray is asked for, with the thread that asks."""
    asked: list[str] = []

    def shut_down() -> None:
        asked.append(f"shutdown in {threading.current_thread().name}")

    monkeypatch.setattr(
        ray_session, "_start_or_join", lambda *_: asked.append(f"start in {threading.current_thread().name}")
    )
    monkeypatch.setattr(ray_session, "_shut_down", shut_down)
    yield asked


def test_ray_starts_and_ends_in_one_thread_that_lives_as_long(events: list[str]) -> None:
    """The system kills the processes of a local cluster with the thread that started them."""
    with RaySession() as session, connected(None, session):
        assert events == ["start in ray"]
        assert [thread for thread in threading.enumerate() if thread.name == "ray"]
    assert events == ["start in ray", "shutdown in ray"]
    assert not [thread for thread in threading.enumerate() if thread.name == "ray"]


def test_a_given_session_ends_beside_what_follows(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(ray_session, "_shut_down", may_end.wait)
    with RaySession() as session:
        with connected(None, session):
            pass
        may_end.set()  # reached although Ray has not ended


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_while_ray_ends(
    collects: bool, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference to an object of Ray that is freed meanwhile ends the process."""
    may_end = threading.Event()
    monkeypatch.setattr(ray_session, "_shut_down", may_end.wait)
    if not collects:
        gc.disable()
    try:
        with RaySession() as session:
            with connected(None, session):
                assert gc.isenabled() == collects
            assert not gc.isenabled()
            may_end.set()
        assert gc.isenabled() == collects
    finally:
        gc.enable()


def test_modules_are_imported_while_ray_starts(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    imported = threading.Event()
    monkeypatch.setattr(ray_session, "_start_or_join", lambda *_: imported.wait(timeout=60) or pytest.fail("waits"))
    monkeypatch.setattr("importlib.import_module", lambda name: imported.set())
    with connected(None, meanwhile=("a_module",)):
        assert imported.is_set()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ClusterError("cannot start Ray here: no space"), "cannot start Ray here: no space"),
        (ImportError("no module\nray"), "cannot use Ray: no module"),
    ],
)
def test_why_ray_does_not_start_reaches_the_main_thread(
    error: Exception, line: str, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(ray_session, "_start_or_join", fail)
    with pytest.raises(ClusterError, match=f"^{line}$"), connected(None):
        pytest.fail("there is no Ray")
    assert events == ["shutdown in ray"]


def test_an_interrupt_while_ray_starts_still_ends_it(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "_start_or_join", lambda *_: time.sleep(0.1))

    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    with pytest.raises(KeyboardInterrupt), connected(None, meanwhile=("a_module",)):
        pytest.fail("the main thread was interrupted")
    assert events == ["shutdown in ray"]
