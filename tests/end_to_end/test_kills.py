"""Whatever process dies, the same command continues: each trial has one row, equal to that of an undisturbed run."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest

from sweeper.commands import run
from sweeper.storage.checkpoints import without_label
from sweeper.storage.load import load_history
from tests.end_to_end.sweeps import (
    Sweep,
    Sweeps,
    assert_same_results,
    listening,
    resume,
    row_files,
    rows,
    survivors,
    tells_metrics,
)
from tests.end_to_end.undisturbed import COHORTS, EPOCHS, GRID, TRIALS, assert_undisturbed
from tests.fake_executor import without_ray
from tests.other_user import below, open_parents, reached_by_nobody
from tests.trainables.small import content_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unreported")]

DIED = {"raylet": "error: Ray's node on this machine", "gcs_server": "error: Ray's head (gcs_server)"}
"""Process of Ray -> how the sweep's error begins once it has died."""
IDLE = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Ray's own processes, which end after a minute."""
SEARCH = "vje_search"
SMALL_SEARCH = [
    *("--trials", "6", "--wave", "3", "--set", "epochs=20", "--set", "report_every=5"),
    *("--cohort", "1", "--compile", "never", "--save-every", "0.05"),
]
"""6 trials in two waves, each a cohort, pruned at 10 epochs."""
SEARCHED = 6
FUNCTIONS = """
import time

from sweeper import Grid, Metric, Sweep, Table


def yields(lr: float, epochs: int = 25):
    weight = 1.0
    for epoch in range(epochs):
        time.sleep(0.05)
        weight = weight * (1.0 - lr) + 0.01 * epoch
        yield {"loss": weight}


def saves(trial, lr: float, epochs: int = 25):
    state = trial.resume() or {"weight": 2.0, "epoch": 0}
    for epoch in range(state["epoch"] + 1, epochs + 1):
        time.sleep(0.05)
        state = {"weight": state["weight"] * (1.0 - lr) + 0.01 * epoch, "epoch": epoch}
        trial.save(state)
        trial.report(epoch, loss=state["weight"])


RATES = {"lr": (0.1, 0.2, 0.3, 0.4)}
LOSS = Table("loss", ("lr",), (Metric("loss", "minimize"),))
SWEEP = Sweep("functions", {"both": tuple(Grid({"method": each}, RATES) for each in (yields, saves))}, figures=(LOSS,))
"""
"""A sweep of a generator, which begins again, and of a function that resumes: 8 trials of over a second."""


@contextlib.contextmanager
def temporary_home() -> Iterator[Path]:
    """A temporary folder for sweeps, short enough for Ray's sockets, which every user may enter."""
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as home, pytest.MonkeyPatch.context() as patched:
        os.chmod(home, 0o1777)
        patched.setenv("TMPDIR", home)
        patched.setenv("HOME", home)
        patched.setattr(tempfile, "tempdir", None)  # chosen anew, and again afterwards
        yield Path(home)


def assert_closed_to_others(home: Path) -> None:
    """Assert that the folder around Ray's own is closed. Ray opens its folders to every user, who could then make Ray
    overwrite any file of ours. Modes are always checked; root also tries as another user, who must reach nothing."""
    (folder,) = home.glob("sweep-*")
    paths = below(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and open_parents(folder) == []
    assert sum(path.is_socket() for path in paths) >= 2, paths
    if os.geteuid() == 0:
        assert reached_by_nobody(paths) == [f"look at {folder}"]


def ask(address: str, **variables: str) -> subprocess.Popen[str]:
    """Ask the head at this address for its keys, in a process with these variables."""
    code = "import ray, sys; print(ray._raylet.GcsClient(address=sys.argv[1]).internal_kv_keys(b'', b'', timeout=60))"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, "-c", code, address],
        env={**inherited, "RAY_gcs_rpc_server_connect_timeout_s": "2", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def assert_on_the_loopback(sweep: Sweep, home: Path) -> None:
    """Assert that its cluster listens on the loopback alone, tells no metrics, and answers only who has the token,
    which Ray made in `home`."""
    ports = listening(sweep.processes())
    assert {listener.address for listener in ports} == {"127.0.0.1"}, ports
    assert [listener for listener in ports if tells_metrics(listener.port)] == []
    [gcs] = [f"{listener.address}:{listener.port}" for listener in ports if listener.process == "gcs_server"]
    clients = [
        ask(gcs, RAY_AUTH_MODE="token"),  # Ray reads the token from this home
        ask(gcs, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="f" * 64),
        ask(gcs, RAY_AUTH_MODE="disabled"),
    ]
    outputs = [client.communicate()[0] for client in clients]
    assert [client.returncode == 0 for client in clients] == [True, False, False], outputs
    assert stat.S_IMODE((home / ".ray/auth_token").stat().st_mode) == 0o600


def epochs_saved(store: Path) -> dict[str, int]:
    """Name of a checkpoint file -> number of completed epochs of its cohort."""
    epochs = {}
    for path in store.glob("checkpoints/*/*.pt"):
        with contextlib.suppress(FileNotFoundError):  # its cohort has just ended
            epochs[path.name] = content_of(without_label(path.read_bytes()))["standing"]["epoch"]
    return epochs


def kill_training(sweep: Sweep, store: Path) -> None:
    """Kill one training process, send SIGTERM to another, and assert that both cohorts continue from their checkpoints.

    The processes are suspended while it is checked that both are in the middle of a cohort that has a checkpoint.
    """

    trainers = list[psutil.Process]()

    def caught() -> bool:
        trainers[:] = sweep.suspend()
        in_the_middle = [EPOCHS // 10 <= epoch <= EPOCHS - EPOCHS // 10 for epoch in epochs_saved(store).values()]
        if len(trainers) == 2 and in_the_middle == [True, True]:
            return True
        resume(trainers)
        return False

    sweep.wait_until(caught, "two cohorts with checkpoints")
    killed, terminated = trainers  # not asked for again: between two reports they have another title
    reached = epochs_saved(store)
    killed.kill()
    terminated.terminate()
    terminated.resume()

    def go_on() -> bool:
        """Whether both cohorts have progressed or ended. The epoch of a checkpoint never decreases."""
        saved = {name: epoch for name, epoch in epochs_saved(store).items() if name in reached}
        assert all(epoch >= reached[name] for name, epoch in saved.items()), (saved, reached)
        return sweep.printed.count("was cut off") == 2 and all(epoch > reached[name] for name, epoch in saved.items())

    sweep.wait_until(go_on, "progress of both cohorts that were cut off")
    assert "its worker process has died" in sweep.printed, sweep.printed
    assert "stopped: SIGTERM; checkpoint saved at epoch" in sweep.printed


def suspended_once(sweep: Sweep, ready: Callable[[], bool]) -> list[psutil.Process]:
    """Wait until `ready()` and a cohort is being trained, and suspend the training processes, which might otherwise
    train all the rest before the kill. A process between two cohorts has another title, and is not among them."""
    suspended: list[psutil.Process] = []

    def caught() -> bool:
        suspended[:] = sweep.suspend() if ready() else []
        return bool(suspended)

    sweep.wait_until(caught, "a cohort")
    return suspended


def assert_ended(sweep: Sweep, status: int, message: str) -> None:
    """Assert that stderr is one line of ours and none of Ray's, that no process is left, and that stdout says how to
    continue."""
    outcome = sweep.outcome()
    assert outcome.status == status and outcome.err.startswith(message) and len(outcome.err.splitlines()) == 1, outcome
    assert f"of {TRIALS} trials are in {sweep.store}; the same command continues" in outcome.out, outcome
    assert survivors(sweep, ignored=IDLE) == []


def stop_by_ctrl_c(sweep: Sweep, store: Path, home: Path) -> None:
    """Interrupt the whole process group, as a terminal does; then send SIGTERM again and again."""
    kill_training(sweep, store)
    trainers = suspended_once(sweep, lambda: bool(row_files(store)))
    assert_closed_to_others(home)
    assert_on_the_loopback(sweep, home)
    sweep.send(signal.SIGINT, whole_group=True)
    for _ in range(8):
        sweep.send(signal.SIGTERM)
    resume(trainers)  # they save
    assert_ended(sweep, 130, "stopping;")
    assert 0 < len(row_files(store)) < COHORTS


def kill_process_of_ray(name: str, sweep: Sweep) -> None:
    trainers = suspended_once(sweep, lambda: True)
    sweep.process(name).kill()
    resume(trainers)  # a suspended process would not end
    assert_ended(sweep, 1, DIED[name])
    sweep.clean_up()


def kill_driver(sweep: Sweep, ready: Callable[[], bool] = lambda: True) -> None:
    trainers = suspended_once(sweep, ready)
    sweep.kill()
    resume(trainers)
    assert sweep.outcome().err == "" and survivors(sweep, ignored=IDLE) == []
    sweep.clean_up()


@pytest.mark.soak
def test_a_sweep_that_is_stopped_and_killed_again_and_again(sweeps: Sweeps, tmp_path: Path) -> None:
    """First its training processes, by SIGKILL and SIGTERM; then the whole sweep: by Ctrl-C, and by SIGKILL of the
    driver. Each time the same command continues, the last time without Ray.

    The search below asserts it of a killed driver, `test_sigterm_leaves_a_checkpoint_and_a_reason_within_a_step` of
    `test_worker.py` of a training process, `test_the_cause_of_a_failure_follows_the_messages_before_it` of
    `test_ray_backend.py` what is reported of its death, and the worlds of `tests/simulation` that rows are
    undisturbed."""
    with temporary_home() as home:
        stop_by_ctrl_c(sweeps.start(tmp_path, *GRID, cores=2), tmp_path, home)
        kill_driver(sweeps.start(tmp_path, *GRID, cores=1))
        mtimes = {path: path.stat().st_mtime_ns for path in row_files(tmp_path)}
        assert 0 < len(mtimes) < COHORTS
        with without_ray(home):
            assert run.main(["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), *GRID]) == 0
    assert {path: path.stat().st_mtime_ns for path in mtimes} == mtimes  # what was there was not trained again
    assert_undisturbed(tmp_path)


@pytest.mark.soak
def test_a_sweep_whose_node_and_head_are_killed(sweeps: Sweeps, tmp_path: Path) -> None:
    """`test_a_process_of_our_own_cluster_that_has_died_is_named_at_once` of `test_watchdog.py` asserts the quick part,
    and `test_the_folder_of_a_killed_driver_is_deleted_by_the_next_run` of `test_session.py` that of a driver's end."""
    with temporary_home() as home:
        kill_driver(sweeps.start(tmp_path, *GRID, cores=1))
        (abandoned,) = home.glob("sweep-*")
        for name in DIED:
            kill_process_of_ray(name, sweeps.start(tmp_path, *GRID, cores=1))
        assert not abandoned.exists()


def test_a_search_whose_driver_was_killed_ends_as_an_undisturbed_one(
    sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The study is rebuilt from the rows, and proposes the same trials. None of them needs Ray: a sweep that is killed
    with it is above."""
    killed, undisturbed, scratch = (tmp_path / name for name in ("killed", "undisturbed", "scratch"))
    scratch.mkdir()
    with without_ray(scratch):
        assert run.main([SEARCH, "--preset", "digits", "--store", str(undisturbed), *SMALL_SEARCH]) == 0
    driver = sweeps.start(killed, *SMALL_SEARCH, "--debug", name=SEARCH, cores=1)
    driver.wait_until(lambda: row_files(killed, SEARCH), "a cohort")
    driver.kill()
    row_count = len(rows(killed, SEARCH))
    assert 0 < row_count < SEARCHED
    with without_ray(scratch):
        assert run.main([SEARCH, "--preset", "digits", "--store", str(killed), *SMALL_SEARCH]) == 0
    out, err = capsys.readouterr()
    assert f"{SEARCHED - row_count} of {SEARCHED} trials to run" in out, out + err
    assert_same_results(rows(killed, SEARCH), rows(undisturbed, SEARCH))
    histories = [load_history(SEARCH, store) for store in (killed, undisturbed)]
    pd.testing.assert_frame_equal(*histories, check_exact=True)


@pytest.mark.soak
def test_a_sweep_of_functions_whose_worker_and_driver_are_killed_ends_as_an_undisturbed_one(
    sweeps: Sweeps, tmp_path: Path
) -> None:
    """Both kinds train in cohorts of four, one trial after the other, as they are killed. The worlds of
    `tests/simulation` assert it of every moment."""
    file, killed, undisturbed = tmp_path / "own.py", tmp_path / "killed", tmp_path / "undisturbed"
    file.write_text(FUNCTIONS)
    arguments = ["--cohort", "4", "--save-every", "0.05"]

    def both() -> bool:
        """Whether of each cohort a trial has ended, and others have not."""
        return len(row_files(killed, "own")) == 2 and set(rows(killed, "own").groupby("cohort").size()) <= {1, 2}

    with temporary_home():
        sweep = sweeps.start(killed, *arguments, name=str(file), preset="both", cores=2)
        trainers = suspended_once(sweep, both)
        assert len(trainers) == 2, sweep.printed
        for process in trainers:
            process.kill()
        sweep.wait_until(lambda: sweep.printed.count("was cut off") == 2, "both cohorts that were cut off")
        count = len(rows(killed, "own"))
        kill_driver(sweep, lambda: len(rows(killed, "own")) > count)
    before = rows(killed, "own")
    assert count < len(before) < 8
    for store in (killed, undisturbed):
        outcome = sweeps.run(store, *arguments, "--debug", name=str(file), preset="both", cores=1)
        assert outcome.status == 0, outcome
    after = rows(killed, "own")
    own, expected = (frame.drop(columns="cohort_size") for frame in (after, rows(undisturbed, "own")))
    assert_same_results(own, expected)  # each process trained what was left of a cohort
    assert (after.loc[before.index, "ended"] == before["ended"]).all()  # what had a row was not trained again
    histories = [load_history("own", store) for store in (killed, undisturbed)]
    pd.testing.assert_frame_equal(*histories, check_exact=True)
    assert not list(killed.glob("checkpoints/*/*.pt"))
