import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from sweeper.errors import ClusterError
from sweeper.execution import session
from sweeper.execution.session import check_address


def answering(answer: bytes) -> Iterator[int]:
    """A port on this machine at which somebody gives this answer, whatever is said."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            session, _ = server.accept()
            with session:
                session.recv(1000)
                session.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on this machine that a server of gRPC answers at."""
    yield from answering(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))


@pytest.fixture(params=[b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0", b""])
def other_program(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port on this machine that another program answers at."""
    yield from answering(request.param)


@pytest.fixture
def closed() -> Iterator[int]:
    """A port on this machine that is taken, but nobody listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("address", [None, "local", "auto"])
def test_an_address_without_host_and_port_is_not_contacted(address: str | None) -> None:
    check_address(address)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_that_answers_is_accepted(scheme: str, listening: int) -> None:
    check_address(f"{scheme}127.0.0.1:{listening}")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_that_nobody_answers_at_is_refused(scheme: str, closed: int) -> None:
    address = f"{scheme}127.0.0.1:{closed}"
    with pytest.raises(ClusterError, match=f"no Ray cluster answers at {address}: .*refused"):
        check_address(address)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_of_another_program_is_refused_with_the_ports_that_count(scheme: str, other_program: int) -> None:
    """Ray would try for minutes, and print warnings, before it said that it has timed out."""
    with pytest.raises(ClusterError, match="another program listens there; give the head's port, which is 6379 by def"):
        check_address(f"{scheme}127.0.0.1:{other_program}")


def test_a_server_that_says_nothing_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(ClusterError, match=": timed out"):
        check_address(f"127.0.0.1:{server.getsockname()[1]}")


def test_an_encrypted_cluster_is_not_spoken_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_address(f"127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("address", ["", "head", "head:", ":6379", "head:port", "http://head:6379/x", "ray://head"])
def test_a_malformed_address_is_refused_with_the_forms(address: str) -> None:
    with pytest.raises(ClusterError, match="--address must be host:port, ray://host:port, auto or local, but got"):
        check_address(address)


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "no.such.host.invalid:6379", "a..b:1", f"{'x' * 70}:1"])
def test_an_impossible_address_is_refused_in_one_line(address: str) -> None:
    with pytest.raises(ClusterError, match="no Ray cluster answers at") as refused:
        check_address(address)
    assert "\n" not in str(refused.value)


def test_asking_imports_no_ray() -> None:
    """Its environment is set when it is used, which is too late once it has been imported."""
    imports = "import sys, sweeper.run, sweeper.execution.session"
    code = f"{imports}; sys.exit(not {{'ray', 'torch'}}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
