import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.errors import ClusterError
from sweeper.execution.driver import connection
from sweeper.execution.driver.connection import check_address, make_token
from sweeper.execution.driver.stop_signal import StopSignal


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


def test_rays_token_is_created_once_and_closed_to_others(tmp_path: Path) -> None:
    token = tmp_path / ".ray/auth_token"
    make_token(tmp_path, {})
    content = token.read_text()
    assert re.fullmatch("[0-9a-f]{64}", content) and stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700 and list(token.parent.iterdir()) == [token]
    token.chmod(0o644)  # as Ray leaves one that it makes itself
    make_token(tmp_path, {})
    assert token.read_text() == content and stat.S_IMODE(token.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
def test_a_token_in_another_place_is_used_as_it_is(name: str, tmp_path: Path) -> None:
    make_token(tmp_path, {name: "x"})
    assert list(tmp_path.iterdir()) == []


def test_a_sigterm_during_the_start_of_ray_reaches_our_handler() -> None:
    """Ray's own ends the process with status 15 and without a word."""

    def start_ray() -> None:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
        signal.raise_signal(signal.SIGTERM)

    stopping = StopSignal()
    with stopping.on_signals():
        ours = signal.getsignal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), connection._own_signal_handlers():
            start_ray()
        assert stopping.asked and signal.getsignal(signal.SIGTERM) == ours


def test_our_handler_is_restored_before_ray_ends_its_processes() -> None:
    """Ray sets SIGTERM to the system's default first: another one would end the process without a word."""
    code = (
        "import ctypes, os, signal, sys, time, types\n"
        "from sweeper.execution.driver import connection\n"
        "from sweeper.execution.driver.stop_signal import StopSignal\n"
        "def shutdown():\n"
        "    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)\n"  # as Ray does, past Python
        "    time.sleep(0.5)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(0.1)\n"
        "sys.modules['ray'] = types.SimpleNamespace(shutdown=shutdown)\n"
        "stopping = StopSignal(clock=lambda: 0.0)\n"
        "stopping.asked = True\n"
        "with stopping.on_signals():\n"
        "    ours = signal.getsignal(signal.SIGTERM)\n"
        "    connection._shut_down()\n"
        "    assert signal.getsignal(signal.SIGTERM) == ours\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert completed.returncode == 0, completed


def test_asking_imports_no_ray() -> None:
    """Its environment is set when it is used, which is too late once it has been imported."""
    imports = "import sys, sweeper.run, sweeper.execution.driver.connection"
    code = f"{imports}; sys.exit(not {{'ray', 'torch'}}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
