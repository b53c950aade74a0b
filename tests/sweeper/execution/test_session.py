"""The connection to Ray: addresses, the user's modules, the environment and the token. Scratch folders are closed to
other users; those of killed drivers are removed, and no others.
"""

import importlib
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.definition.user_code import search_folder
from sweeper.errors import ClusterError
from sweeper.execution import session
from sweeper.execution.session import (
    NO_SERVER,
    check_address,
    environment_of_workers,
    make_token,
    quiet_stderr,
    remove_abandoned,
    scratch_folder,
)
from tests.cases import for_each
from tests.other_user import NOBODY, below, needs_root, open_parents, reached_by_nobody
from tests.user_files import user_folder


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


@for_each("address", ["", "head", "head:", ":6379", "head:port", "http://head:6379/x", "ray://head"])
def test_a_malformed_address_is_refused_with_the_forms(address: str) -> None:
    with pytest.raises(ClusterError, match="--address must be host:port, ray://host:port, auto or local, but got"):
        check_address(address)


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "no.such.host.invalid:6379", "a..b:1", f"{'x' * 70}:1"])
def test_an_impossible_address_is_refused_in_one_line(address: str) -> None:
    with pytest.raises(ClusterError, match="no Ray cluster answers at") as refused:
        check_address(address)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_asking_imports_neither_ray_nor_what_takes_seconds() -> None:
    """Ray's environment is set when it is used, which is too late once it has been imported."""
    imports = "import sys, sweeper.commands.run, sweeper.execution.session"
    code = (
        f"{imports}; sys.exit(not {{'ray', 'torch', 'sklearn', 'scipy.stats', 'matplotlib'}}.isdisjoint(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_cluster_elsewhere_is_sent_the_users_modules(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    folder = user_folder / "deep"
    folder.mkdir()
    for name in ("sent_by_deep", "sent_by_working_folder"):
        path = folder if name.endswith("deep") else user_folder
        (path / f"{name}.py").write_text("")
        search_folder(path)
        importlib.import_module(name)
    modules = [str(folder / "sent_by_deep.py"), str(user_folder / "sent_by_working_folder.py")]
    sent = session._init_arguments("head:6379", "")["runtime_env"]["py_modules"]
    assert sorted(sent[:2]) == modules and [Path(path).name for path in sent[2:]] == [
        *("sweeper", "trainables", "search_spaces"),
    ]
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")  # in a job, whose working directory has the second module
    assert session._init_arguments("head:6379", "")["runtime_env"] == {"py_modules": modules[:1]}
    assert "runtime_env" not in session._init_arguments(None, "/scratch")


__all__ = ["user_folder"]


def test_workers_of_a_local_cluster_inherit_the_folders(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/before")
    with environment_of_workers():
        assert os.environ["PYTHONPATH"] == "/before"
    search_folder(user_folder)
    with environment_of_workers():
        assert os.environ["PYTHONPATH"] == f"{user_folder}{os.pathsep}/before"
    assert os.environ["PYTHONPATH"] == "/before"
    monkeypatch.delenv("PYTHONPATH")
    with environment_of_workers():
        assert os.environ["PYTHONPATH"] == str(user_folder)
    assert "PYTHONPATH" not in os.environ


def test_workers_do_not_look_for_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """And later job submissions of this process look for the one that is."""
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    with environment_of_workers():
        assert os.environ["RAY_API_SERVER_ADDRESS"] == NO_SERVER
    assert "RAY_API_SERVER_ADDRESS" not in os.environ


@pytest.mark.slow
def test_a_call_of_ray_after_its_end_starts_no_other_cluster() -> None:
    code = (
        "from sweeper.execution.session import set_environment\n"
        "set_environment(local=True)\n"
        "import ray\n"
        "try:\n"
        "    ray.put(1)\n"
        "except ray.exceptions.RaySystemError as error:\n"
        "    assert 'has not been started' in str(error), error\n"
        "assert not ray.is_initialized()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ENABLE_AUTO_CONNECT"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_what_rays_code_prints_is_dropped_and_what_we_print_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched, open(2, "w", closefd=False) as stderr:
        patched.setattr(sys, "stderr", stderr)
        with quiet_stderr():
            os.write(2, b"from C++\n")
            warnings.warn("of Ray", stacklevel=1)
            print("ours", file=sys.stderr)
        assert sys.stderr is stderr
        os.write(2, b"after\n")
    assert capfd.readouterr().err == "ours\nafter\n"


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


DRIVER = """
import signal
from sweeper.execution.session import scratch_folder
with scratch_folder() as folder:
    (folder / "session").mkdir()
    print(folder, flush=True)
    signal.pause()
"""
RAYS_PATH = len("/session_2026-11-22_03-16-30_972651_1234567/sockets/plasma_store")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder that every user may enter, short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def killed_driver() -> Path:
    """Return the scratch folder that a driver leaves when it is killed with -9."""
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout
        line = driver.stdout.readline().strip()
        driver.send_signal(signal.SIGKILL)
    assert line, "the driver ended without a folder"  # else the tests would change the working directory
    return Path(line).parent


def test_the_folder_around_rays_is_closed_and_deleted_in_the_end(home: Path) -> None:
    with scratch_folder() as folder:
        folder.chmod(0o777)  # as Ray does
        assert folder.parent.parent == home and stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        assert open_parents(folder) == []
        (folder / "session").mkdir()
    assert list(home.iterdir()) == []


@needs_root
def test_another_user_reaches_nothing_in_it(home: Path) -> None:
    open_folder = home / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    with scratch_folder() as folder:
        folder.chmod(0o777)
        (folder / "log").write_text("private")
        (folder / "log").chmod(0o666)
        assert reached_by_nobody(below(folder.parent)) == [f"look at {folder.parent}"]
    assert f"write in {open_folder}" in reached_by_nobody([open_folder])  # where it is allowed to


@pytest.mark.parametrize("long", [False, True])
def test_the_paths_of_rays_sockets_are_short_enough(long: bool, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the temporary folder of macOS and of many batch systems they would not."""
    deep = home / ("T" * 40 if long else "T" * (session.LONGEST_HOME - len(str(home)) - 1))
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with scratch_folder() as folder:
        assert (folder.parents[1] == Path("/tmp")) == long
        assert len(str(folder)) + RAYS_PATH <= 103


def test_a_folder_that_others_can_rename_is_refused(home: Path) -> None:
    home.chmod(0o777)
    with pytest.raises(ClusterError, match=rf"but {home} has mode 0777; use `chmod \+t {home}`, or set TMPDIR"):
        scratch_folder().__enter__()


@needs_root
def test_a_folder_inside_one_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """He could rename ours, and put one of his own in its place."""
    (inner := home / "o").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(inner))
    os.chown(inner, NOBODY, NOBODY)
    with pytest.raises(ClusterError, match=f"but {inner} belongs to nobody; set TMPDIR to a folder of your own"):
        scratch_folder().__enter__()


def test_a_folder_that_cannot_be_made_whole_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    refused = pytest.raises(ClusterError, match=r"^cannot make a scratch folder: No space left on device$")
    with refused, scratch_folder():
        pass
    assert list(home.iterdir()) == []


def test_the_folder_of_a_killed_driver_is_deleted_by_the_next_run(home: Path) -> None:
    abandoned = killed_driver()
    assert (abandoned / "r/session").is_dir()
    with scratch_folder() as folder:
        assert list(home.iterdir()) == [folder.parent]


def test_the_folder_of_a_living_driver_stays(home: Path) -> None:
    with scratch_folder() as first, scratch_folder() as second:
        remove_abandoned(home)
        assert first.is_dir() and second.is_dir()


@pytest.mark.parametrize("use", ["works there", "has a file open", "was started with its path"])
def test_a_folder_that_an_orphan_of_a_killed_driver_uses_stays_until_it_ends(use: str, home: Path) -> None:
    abandoned = killed_driver()
    (abandoned / "r/log").touch()
    path = [f"--log={abandoned}/r/x"] if use == "was started with its path" else []
    log = (abandoned / "r/log").open("w") if use == "has a file open" else None
    orphan = subprocess.Popen(
        ["sh", "-c", "echo started >&2; read line", *path],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.PIPE,
        cwd=abandoned / "r" if use == "works there" else None,
    )
    if log:
        log.close()
    try:
        assert orphan.stderr is not None
        assert orphan.stderr.readline() == b"started\n"  # a program that just starts has an empty command line
        remove_abandoned(home)
        assert (abandoned / "r/session").is_dir()
    finally:
        orphan.kill()
        orphan.communicate()
    remove_abandoned(home)
    assert not abandoned.exists()


def test_a_folder_of_another_program_stays(home: Path) -> None:
    (home / "precious").mkdir()
    (home / "precious" / session.LOCK).touch()
    (home / "sweep-link").symlink_to(home / "precious")
    (home / "sweep-results").mkdir()  # somebody's own, which only looks like ours
    (home / "sweep-notes").touch()
    (home / "sweep-lure").mkdir()
    (home / "sweep-lure" / session.LOCK).symlink_to(home / "precious" / session.LOCK)
    before = sorted(home.rglob("*"))
    remove_abandoned(home)
    assert sorted(home.rglob("*")) == before


@needs_root
def test_a_folder_of_another_user_stays(home: Path) -> None:
    abandoned = killed_driver()
    os.chown(abandoned, NOBODY, NOBODY)
    remove_abandoned(home)
    assert (abandoned / "r/session").is_dir()


def test_a_folder_that_cannot_be_emptied_yet_is_tried_again_by_the_next_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned = killed_driver()
    with monkeypatch.context() as patched:
        patched.setattr(session.shutil, "rmtree", lambda *_, **__: None)
        remove_abandoned(home)
    assert (abandoned / session.LOCK).exists()
    remove_abandoned(home)
    assert not abandoned.exists()
