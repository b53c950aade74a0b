import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sweeper.errors import ClusterError
from sweeper.execution.driver.connection import check_address


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on this machine that somebody answers at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


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
    imports = "import sys, sweeper.run, sweeper.execution.driver.connection"
    code = f"{imports}; sys.exit(not {{'ray', 'torch'}}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
