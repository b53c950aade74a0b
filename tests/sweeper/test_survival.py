"""Whatever dies, the same command goes on: every trial has one row, and it is the row of an undisturbed run."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from sweeper.store import load_history
from tests.other_user import below, needs_root, open_parents, reached_by_nobody
from tests.sweeper.sweeps import Sweeps, assert_same_results, row_files, rows, survivors, sweeps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GRID = [
    *("--axis", "beta=0.5,1,2", "--axis", "nu=0.5,3,20", "--axis", "normal_class=0,1,2"),
    *("--set", "epochs=80", "--cohort", "3", "--save-every", "0.2"),
]
"""27 trials in 9 cohorts, about 3 s each on one core."""


@pytest.fixture(scope="module")
def run() -> Iterator[Sweeps]:
    yield from sweeps()


@dataclass(frozen=True)
class Exposure:
    """What other users of this machine could do while a sweep ran."""

    folders: list[Path]
    """Its scratch folders."""
    sockets: int
    modes: list[int]
    parents: list[str]
    reached: list[str] | None
    """None where the tests cannot become another user."""


@pytest.fixture(scope="module")
def watched(run: Sweeps, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Exposure]]:
    """A store with what GRID gives when nothing happens to it, and what others could do meanwhile."""
    store = tmp_path_factory.mktemp("undisturbed")
    with temporary_home() as home:
        sweep = run.start(store, *GRID)
        sweep.wait_until(lambda: row_files(store), "a cohort")
        folders = list(home.glob("sweep-*"))
        paths = [path for folder in folders for path in below(folder)]
        exposure = Exposure(
            folders,
            sum(path.is_socket() for path in paths),
            [stat.S_IMODE(folder.stat().st_mode) for folder in folders],
            [line for folder in folders for line in open_parents(folder)],
            reached_by_nobody(paths) if os.geteuid() == 0 else None,
        )
        outcome = sweep.outcome()
        assert outcome.status == 0 and len(rows(store)) == 27, outcome
        assert list(home.glob("sweep-*")) == []
    yield store, exposure


@pytest.fixture(scope="module")
def undisturbed(watched: tuple[Path, Exposure]) -> Path:
    return watched[0]


@contextlib.contextmanager
def temporary_home() -> Iterator[Path]:
    """A temporary folder for sweeps, short enough for Ray's sockets, which every user may enter."""
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as home, pytest.MonkeyPatch.context() as patched:
        os.chmod(home, 0o1777)
        patched.setenv("TMPDIR", home)
        yield Path(home)


def assert_whole(store: Path, undisturbed: Path) -> None:
    assert_same_results(rows(store), rows(undisturbed))
    assert set(rows(store)["status"]) == {"finished"}
    pd.testing.assert_frame_equal(
        load_history("anomaly_grid", store), load_history("anomaly_grid", undisturbed), check_exact=True
    )
    assert not list(store.glob("checkpoints/*/*.pt"))


def test_what_ray_writes_is_closed_by_the_folder_around_it(watched: tuple[Path, Exposure]) -> None:
    """Ray opens its folders to every user: whoever writes there makes Ray overwrite any file of ours."""
    _, seen = watched
    assert len(seen.folders) == 1 and seen.sockets >= 2, seen
    assert seen.modes == [0o700] and seen.parents == []


@needs_root
def test_another_user_reaches_nothing_of_a_sweep(watched: tuple[Path, Exposure]) -> None:
    _, seen = watched
    assert seen.reached == [f"look at {folder}" for folder in seen.folders]


def test_training_processes_that_are_killed_and_told_to_end(run: Sweeps, tmp_path: Path, undisturbed: Path) -> None:
    """They go on from checkpoints: their training seconds are more than the time since they were taken up again. Who is
    told to end by SIGTERM, as before a spot machine goes, saves first."""
    long = ["--axis", "beta=1", "--axis", "nu=0.5,3", "--axis", "normal_class=0,1", "--set", "epochs=500"]
    long += ["--cohort", "2", "--retries", "1", "--save-every", "0.2"]
    sweep = run.start(tmp_path / "killed", *long)
    sweep.wait_until(lambda: len(list(tmp_path.glob("killed/checkpoints/*/*.pt"))) == 2, "checkpoints")
    time.sleep(5)
    first, second = sweep.trainers()
    first.kill()
    second.terminate()
    outcome = sweep.outcome()
    assert outcome.status == 0, outcome
    assert outcome.out.count("was cut off") == 2 and "its worker process has died" in outcome.out, outcome
    assert "stopped: SIGTERM; checkpoint saved at epoch" in outcome.out, outcome
    found = rows(tmp_path / "killed")
    since = (found["ended"] - found["started"]).dt.total_seconds()
    went_on = found["seconds"] * found["cohort_size"] > since
    print(f"training seconds {found['seconds'] * found['cohort_size']} and seconds since taken up {since}")
    assert went_on.all(), found[["cohort", "seconds"]]
    outcome = run.run(tmp_path / "calm", *long)
    assert outcome.status == 0, outcome
    assert_same_results(found, rows(tmp_path / "calm"))


def test_a_sweep_that_is_stopped_and_killed(run: Sweeps, undisturbed: Path, tmp_path: Path) -> None:
    """Ctrl-C as a terminal sends it, to all the group, and then SIGTERM again and again; kill -9 to Ray's node, to its
    head, and to the driver: each goes on where the last ended."""
    done, died = 0, {"raylet": "error: Ray's node on this machine", "gcs_server": "error: Ray's head (gcs_server)"}
    with temporary_home() as home:
        for what, status in [("Ctrl-C", 130), ("raylet", 1), ("gcs_server", 1), ("driver", -signal.SIGKILL)]:
            sweep = run.start(tmp_path, *GRID)
            sweep.wait_until(lambda: len(row_files(tmp_path)) > done, "another cohort")  # noqa: B023
            if what == "Ctrl-C":
                sweep.send(signal.SIGINT, whole_group=True)
                for _ in range(8):
                    sweep.send(signal.SIGTERM)
                    time.sleep(0.1)
            else:
                sweep.process(what).kill() if what in died else sweep.kill()
            outcome = sweep.outcome()
            assert outcome.status == status, outcome
            said = f"of 27 trials are in {tmp_path}; the same command continues" in outcome.out
            assert said != (what == "driver"), outcome
            assert len(outcome.err.splitlines()) == (status != -signal.SIGKILL), outcome  # ours alone, none of Ray's
            assert outcome.err.startswith(died.get(what, "stopping;" if what == "Ctrl-C" else "")), outcome
            idle = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # Ray's own, which give up after a minute
            assert survivors(sweep, but=idle) == []
            assert done < len(row_files(tmp_path)) < 9
            done = len(row_files(tmp_path))
        sweep.clean_up()
        (left,) = home.glob("sweep-*")
        outcome = run.run(tmp_path, *GRID)
        assert outcome.status == 0 and not left.exists(), outcome
    assert_whole(tmp_path, undisturbed)


def test_one_command_twice_at_once(run: Sweeps, undisturbed: Path, tmp_path: Path) -> None:
    """Both measure and cut for themselves, but the first cut is for both; each writes the same rows."""
    words = ["--axis", "beta=0.5,1,2", "--axis", "nu=0.5,20", "--axis", "normal_class=0,1", "--set", "epochs=20"]
    outcomes = [sweep.outcome() for sweep in [run.start(tmp_path, *words) for _ in range(2)]]
    assert [outcome.status for outcome in outcomes] == [0, 0], outcomes
    assert len(rows(tmp_path)) == 12


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 80 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"cannot mount a small disk here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_fills_up(
    run: Sweeps, undisturbed: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPER_PATIENCE", "2")
    store = small_disk / "store"
    sweep = run.start(store, *GRID)
    sweep.wait_until(lambda: row_files(store), "a cohort")
    while sweep.running():  # again and again: a checkpoint that goes makes room
        fill(small_disk / "filler")
    outcome = sweep.outcome()
    kept = rows(store)
    assert outcome.status == 1, outcome
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"error: store {store}: cannot write") and "No space left on device" in line, outcome
    assert "No space left on device; trying again for 2 s" in outcome.out, outcome
    assert "the same command continues" in outcome.out and "Traceback" not in outcome.out, outcome
    assert 0 < len(kept) < 27 and set(kept["status"]) == {"finished"} and survivors(sweep) == []
    again = run.run(store, *GRID)
    assert again.status == 2 and "must have 64 MiB free" in again.err, again
    (small_disk / "filler").unlink()
    outcome = run.run(store, *GRID)
    assert outcome.status == 0, outcome
    assert_whole(store, undisturbed)


def fill(path: Path) -> None:
    """Take all room that its disk has."""
    with path.open("ab", buffering=0) as stream:
        try:
            while True:
                stream.write(os.urandom(1 << 16))
        except OSError:
            time.sleep(0.05)


def test_a_disk_that_is_full_for_a_while(run: Sweeps, undisturbed: Path, small_disk: Path) -> None:
    store, filler = small_disk / "store", small_disk / "filler"
    sweep = run.start(store, *GRID)
    sweep.wait_until(lambda: row_files(store), "a cohort")
    full_until = time.monotonic() + 6
    while time.monotonic() < full_until:
        fill(filler)
    filler.unlink()
    outcome = sweep.outcome()
    assert outcome.status == 0, outcome
    assert "No space left on device; trying again for 60 s" in outcome.out and outcome.err == "", outcome
    assert_whole(store, undisturbed)
