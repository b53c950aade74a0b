"""Whatever dies, the same command goes on: every trial has one row, and it is the row of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from sweeper.store import load_history
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


@pytest.fixture(scope="module")
def undisturbed(run: Sweeps, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with what GRID gives when nothing happens to it."""
    store = tmp_path_factory.mktemp("undisturbed")
    outcome = run.run(store, *GRID)
    assert outcome.status == 0 and len(rows(store)) == 27, outcome
    return store


def assert_whole(store: Path, undisturbed: Path) -> None:
    assert_same_results(rows(store), rows(undisturbed))
    assert set(rows(store)["status"]) == {"finished"}
    pd.testing.assert_frame_equal(
        load_history("anomaly_grid", store), load_history("anomaly_grid", undisturbed), check_exact=True
    )
    assert not list(store.glob("checkpoints/*/*.pt"))


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
    """Ctrl-C as a terminal sends it, to all the group, kill -9 to Ray's node, and to the driver: each goes on where the
    last ended."""
    done = 0
    for what, status in [("Ctrl-C", 130), ("node", 1), ("driver", -signal.SIGKILL)]:
        sweep = run.start(tmp_path, *GRID)
        sweep.wait_until(lambda: len(row_files(tmp_path)) > done, "another cohort")  # noqa: B023
        begun = time.monotonic()
        if what == "Ctrl-C":
            sweep.send(signal.SIGINT, whole_group=True)
        else:
            sweep.node().kill() if what == "node" else sweep.kill()
        outcome = sweep.outcome()
        assert outcome.status == status and time.monotonic() - begun < 30, outcome
        said = f"of 27 trials are in {tmp_path}; the same command continues" in outcome.out
        assert said != (what == "driver") and ("has died" in outcome.err) == (what == "node"), outcome
        idle = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # Ray's own, which give a lost cluster up after a minute
        assert survivors(sweep, but=idle) == []
        assert done < len(row_files(tmp_path)) < 9
        done = len(row_files(tmp_path))
    outcome = run.run(tmp_path, *GRID)
    assert outcome.status == 0, outcome
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
