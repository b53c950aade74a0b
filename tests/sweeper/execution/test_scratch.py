"""Scratch folders are closed to other users, and those of killed drivers go, and no others."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.errors import ClusterError
from sweeper.execution import session
from sweeper.execution.session import remove_abandoned, scratch_folder
from tests.other_user import NOBODY, below, needs_root, open_parents, reached_by_nobody

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
