"""Whatever dies, the same command goes on: every trial has one row, and it is the row of an undisturbed run."""

import contextlib
import os
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sweeper import run
from tests.end_to_end.sweeps import Sweep, Sweeps, resume, row_files, survivors
from tests.end_to_end.undisturbed import COHORTS, EPOCHS, GRID, TRIALS, assert_whole
from tests.other_user import below, open_parents, reached_by_nobody
from tests.trainables.small import content_of

pytestmark = pytest.mark.slow

DIED = {"raylet": "error: Ray's node on this machine", "gcs_server": "error: Ray's head (gcs_server)"}
"""Process of Ray -> how the sweep's error begins once it has died."""
IDLE = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Ray's own processes, which give up after a minute."""


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
    epochs = {}
    for path in store.glob("checkpoints/*/*.pt"):
        with contextlib.suppress(FileNotFoundError):  # its cohort has just ended
            epochs[path.name] = content_of(path.read_bytes())["standing"]["epoch"]
    return epochs


def kill_training(sweep: Sweep, store: Path) -> None:
    """Kill one training process, send SIGTERM to another, and see both cohorts go on from their checkpoints.

    The processes are suspended while it is checked that both are in the midst of a cohort that has a checkpoint.
    """

    trainers = list[psutil.Process]()

    def caught() -> bool:
        trainers[:] = sweep.suspend()
        midst = [EPOCHS // 10 <= epoch <= EPOCHS - EPOCHS // 10 for epoch in epochs_saved(store).values()]
        if len(trainers) == 2 and midst == [True, True]:
            return True
        resume(trainers)
        return False

    sweep.wait_until(caught, "two cohorts with checkpoints")
    first, second = trainers  # not asked for again: between two reports they have another title
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


def suspended_once(sweep: Sweep, ready: Callable[[], bool]) -> list[psutil.Process]:
    """The training processes once `ready()` and a cohort is trained: suspended, or they might train all the rest before
    the blow falls. A process between two cohorts has another title, and would be missed."""
    held: list[psutil.Process] = []

    def caught() -> bool:
        held[:] = sweep.suspend() if ready() else []
        return bool(held)

    sweep.wait_until(caught, "a cohort")
    return held


def assert_ended(sweep: Sweep, status: int, said: str) -> None:
    """The one line on stderr is ours, none of Ray's; the sweep has left no process, and has said how to go on."""
    outcome = sweep.outcome()
    assert outcome.status == status and outcome.err.startswith(said) and len(outcome.err.splitlines()) == 1, outcome
    assert f"of {TRIALS} trials are in {sweep.store}; the same command continues" in outcome.out, outcome
    assert survivors(sweep, but=IDLE) == []


def stop_by_ctrl_c(sweep: Sweep, store: Path, home: Path) -> None:
    """As a terminal sends it, to the whole group; then SIGTERM again and again."""
    kill_training(sweep, store)
    trainers = suspended_once(sweep, lambda: bool(row_files(store)))
    assert_closed_to_others(home)
    sweep.send(signal.SIGINT, whole_group=True)
    for _ in range(8):
        sweep.send(signal.SIGTERM)
    resume(trainers)  # they save
    assert_ended(sweep, 130, "stopping;")
    assert 0 < len(row_files(store)) < COHORTS


def kill_process_of_ray(name: str, sweep: Sweep) -> None:
    trainers = suspended_once(sweep, lambda: True)
    sweep.process(name).kill()
    assert_ended(sweep, 1, DIED[name])
    resume(trainers)
    sweep.clean_up()


def kill_driver(sweep: Sweep) -> None:
    trainers = suspended_once(sweep, lambda: True)
    sweep.kill()
    resume(trainers)
    assert sweep.outcome().err == "" and survivors(sweep, but=IDLE) == []
    sweep.clean_up()


def test_a_sweep_that_is_stopped_and_killed_again_and_again(sweeps: Sweeps, tmp_path: Path) -> None:
    """Its training processes, by kill -9 and SIGTERM; then all of it: by Ctrl-C, by kill -9 of Ray's node, of its head,
    and of the driver. Each time the same command goes on; the last time it is given twice at once."""
    with temporary_home() as home:
        stop_by_ctrl_c(sweeps.start(tmp_path, *GRID, cores=2), tmp_path, home)
        for name in DIED:
            kill_process_of_ray(name, sweeps.start(tmp_path, *GRID, cores=1))
        kill_driver(sweeps.start(tmp_path, *GRID, cores=1))
        (left,) = home.glob("sweep-*")
        before = {path: path.stat().st_mtime_ns for path in row_files(tmp_path)}
        assert 0 < len(before) < COHORTS
        outcomes = [sweep.outcome() for sweep in [sweeps.start(tmp_path, *GRID, cores=1) for _ in range(2)]]
        assert [outcome.status for outcome in outcomes] == [0, 0] and not left.exists(), outcomes
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what was there was not trained again
    # The driver that came second may have left a checkpoint, which the next run deletes; it has nothing to train.
    assert run.main(["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), *GRID]) == 0
    assert_whole(tmp_path)
