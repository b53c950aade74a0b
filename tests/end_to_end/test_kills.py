"""Whatever dies, the same command goes on: every trial has one row, and it is the row of an undisturbed run."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.sweeps import Sweep, Sweeps, resume, row_files, survivors
from tests.end_to_end.undisturbed import COHORTS, EPOCHS, GRID, TRIALS, assert_whole
from tests.other_user import below, open_parents, reached_by_nobody
from tests.trainables.small import content_of

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def temporary_home() -> Iterator[Path]:
    """A temporary folder for sweeps, short enough for Ray's sockets, which every user may enter."""
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as home, pytest.MonkeyPatch.context() as patched:
        os.chmod(home, 0o1777)
        patched.setenv("TMPDIR", home)
        patched.setattr(tempfile, "tempdir", None)  # chosen anew, and again afterwards
        yield Path(home)


def assert_closed_to_others(home: Path) -> None:
    """Ray opens its folders to every user, who could then make Ray overwrite any file of ours: the folder around them
    is closed. Everybody checks the modes; root also tries as another user, who must reach nothing."""
    (folder,) = home.glob("sweep-*")
    paths = below(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and open_parents(folder) == []
    assert sum(path.is_socket() for path in paths) >= 2, paths
    if os.geteuid() == 0:
        assert reached_by_nobody(paths) == [f"look at {folder}"]


def epochs_saved(store: Path) -> dict[str, int]:
    """Name of a checkpoint file -> how many epochs of its cohort are completed."""
    found = {}
    for path in store.glob("checkpoints/*/*.pt"):
        with contextlib.suppress(FileNotFoundError):  # its cohort has just ended
            found[path.name] = content_of(path.read_bytes())["standing"]["epoch"]
    return found


def kill_training(sweep: Sweep, store: Path) -> None:
    """Kill one training process, send SIGTERM to another, and see both cohorts go on from their checkpoints.

    The processes are suspended while it is checked that both are in the midst of a cohort that has a checkpoint.
    """

    def caught() -> bool:
        trainers = sweep.suspend()
        midst = [EPOCHS // 10 <= epoch <= EPOCHS - EPOCHS // 10 for epoch in epochs_saved(store).values()]
        if len(trainers) == 2 and midst == [True, True]:
            return True
        resume(trainers)
        return False

    sweep.wait_until(caught, "two cohorts with checkpoints")
    first, second = sweep.trainers()
    reached = epochs_saved(store)
    first.kill()
    second.terminate()
    second.resume()

    def go_on() -> bool:
        """Both cohorts have come further, or have ended. Their checkpoints never say less than before."""
        saved = {name: epoch for name, epoch in epochs_saved(store).items() if name in reached}
        assert all(epoch >= reached[name] for name, epoch in saved.items()), (saved, reached)
        return sweep.printed.count("was cut off") == 2 and all(epoch > reached[name] for name, epoch in saved.items())

    sweep.wait_until(go_on, "progress of both cohorts that were cut off")
    assert "its worker process has died" in sweep.printed, sweep.printed
    assert "stopped: SIGTERM; checkpoint saved at epoch" in sweep.printed


def suspended_after(sweep: Sweep, store: Path, done: int) -> list[psutil.Process]:
    """The training processes once more than `done` cohorts have ended and another is trained: suspended, or they might
    train all the rest before the blow falls. A process between two cohorts has another title, and would be missed."""
    held: list[psutil.Process] = []

    def caught() -> bool:
        held[:] = sweep.suspend() if len(row_files(store)) > done else []
        return bool(held)

    sweep.wait_until(caught, "another cohort")
    return held


def test_a_sweep_that_is_stopped_and_killed(sweeps: Sweeps, tmp_path: Path) -> None:
    """Its training processes, by kill -9 and SIGTERM; then all of it: by Ctrl-C as a terminal sends it, to the whole
    group, and then SIGTERM again and again; by kill -9 of Ray's node, of its head, and of the driver. The command
    after the last goes on where it ended."""
    died = {"raylet": "error: Ray's node on this machine", "gcs_server": "error: Ray's head (gcs_server)"}
    with temporary_home() as home:
        for what, status in [("Ctrl-C", 130), ("raylet", 1), ("gcs_server", 1), ("driver", -signal.SIGKILL)]:
            store = tmp_path / what
            sweep = sweeps.start(store, *GRID, cores=2 if what == "Ctrl-C" else 1)
            if what == "Ctrl-C":
                kill_training(sweep, store)
            trainers = suspended_after(sweep, store, 0)
            if what == "Ctrl-C":
                assert_closed_to_others(home)
                sweep.send(signal.SIGINT, whole_group=True)
                for _ in range(8):
                    sweep.send(signal.SIGTERM)
            else:
                sweep.process(what).kill() if what in died else sweep.kill()
            if what == "Ctrl-C":  # in order: they save
                resume(trainers)
            outcome = sweep.outcome()
            resume(trainers)
            assert outcome.status == status, outcome
            said = f"of {TRIALS} trials are in {store}; the same command continues" in outcome.out
            assert said != (what == "driver"), outcome
            assert len(outcome.err.splitlines()) == (status != -signal.SIGKILL), outcome  # ours alone, none of Ray's
            assert outcome.err.startswith(died.get(what, "stopping;" if what == "Ctrl-C" else "")), outcome
            idle = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # Ray's own, which give up after a minute
            assert survivors(sweep, but=idle) == []
            assert 0 < len(row_files(store)) < COHORTS
        sweep.clean_up()
        (left,) = home.glob("sweep-*")
        outcome = sweeps.run(store, *GRID)
        assert outcome.status == 0 and not left.exists(), outcome
    assert_whole(store)
