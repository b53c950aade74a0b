"""Sweeps sent to the job server of a real head, which asks for a token."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.heads import PATIENCE, ROOT, Head, Submission
from tests.cluster.heads import head as started
from tests.sweeper.sweeps import row_files, rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DIGITS = ("anomaly_grid", "--preset", "digits")
SMALL = (
    *DIGITS,
    "--set",
    "nu=3",
    "--set",
    "normal_class=0",
    "--axis",
    "beta=0.5,1",
    "--set",
    "epochs=3",
    "--cohort",
    "2",
)
TRAINING = ("--axis", "beta=0.5,1,2", "--axis", "nu=0.5,3,20", "--set", "epochs=150", "--cohort", "3")
LONG = (*DIGITS, *TRAINING, "--axis", "normal_class=0,1,2")
"""27 trials in 9 cohorts, some 4 s each on one core."""
ENDLESS = (*DIGITS, *TRAINING)
"""90 trials in 30 such cohorts."""


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    yield from started()


def wait_until(there: Callable[[], object], what: str, *submissions: Submission) -> None:
    deadline = time.monotonic() + PATIENCE
    while not there():
        for one in submissions:
            assert one.running(), f"ended before {what}: {one.outcome()}"
        assert time.monotonic() < deadline, f"no {what} in {PATIENCE:.0f} s"
        time.sleep(0.05)


def assert_all_are_there_and_none_twice(store: Path, before: list[Path], written: list[int]) -> None:
    """And that what was there when the sweep was continued has not been trained again."""
    found = rows(store)
    assert len(found) == 27 and set(found["status"]) == {"finished"}
    assert [path.stat().st_mtime_ns for path in before] == written


def test_a_sweep_runs_as_a_job(head: Head, tmp_path: Path) -> None:
    status, out, err = Submission(head, *SMALL, "--store", str(tmp_path / "s")).outcome()
    assert status == 0, (out, err)
    assert "2 finished of 2 trials" in out and "has succeeded" in err, (out, err)
    assert list(rows(tmp_path / "s")["status"]) == ["finished"] * 2
    status, out, err = Submission(head, *SMALL, "--store", str(tmp_path / "s")).outcome()
    assert status == 0 and "joining Ray" not in out, (out, err)  # there is nothing left to train


def test_what_only_the_job_can_see_ends_with_its_exit_status(head: Head, tmp_path: Path) -> None:
    """Ray's own command line turns every status into 1."""
    words = ["imagenet_linear", "--store", str(tmp_path / "store"), "--data", str(tmp_path / "absent")]
    status, out, err = Submission(head, *words).outcome()
    assert status == 2, (out, err)
    assert f"error: imagenet is absent from {tmp_path / 'absent'}" in out
    assert "note: the data in" in err and "ended with status 2" in err


def test_a_job_is_stopped_by_its_id_and_the_same_command_continues_it(head: Head, tmp_path: Path) -> None:
    words = [*LONG, "--store", str(tmp_path)]
    status, out, err = Submission(head, *words, "--no-wait").outcome()
    job = out.strip()
    assert status == 0 and f"--stop {job}" in err, (out, err)
    status, _, err = Submission(head, *words).outcome()
    assert status == 2 and f"but {job} runs anomaly_grid into {tmp_path}" in err, err
    wait_until(lambda: row_files(tmp_path), "rows")
    status, _, err = Submission(head, "--stop", job).outcome()
    assert status == 0 and err == f"job {job} was stopped\n", err
    before = row_files(tmp_path)
    written = [path.stat().st_mtime_ns for path in before]
    status, out, err = Submission(head, "--logs", job).outcome()
    assert status == 130 and f"of 27 trials are in {tmp_path}; the same command continues" in out, (out, err)
    status, out, err = Submission(head, *words).outcome()
    assert status == 0 and "27 finished of 27 trials" in out, (out, err)
    assert 0 < len(before) < 9
    found = rows(tmp_path)
    assert len(found) == 27 and set(found["status"]) == {"finished"}
    assert [path.stat().st_mtime_ns for path in before] == written  # what was there has not been trained again


def test_ctrl_c_leaves_a_job_to_itself_and_twice_stops_it(head: Head, tmp_path: Path) -> None:
    sent = Submission(head, *ENDLESS, "--store", str(tmp_path))
    wait_until(lambda: row_files(tmp_path), "rows", sent)
    sent.ctrl_c()
    status, out, err = sent.outcome()
    assert status == 130 and out.count("90 of 90 trials to run") == 1, (out, err)
    follow = next(line for line in err.splitlines() if line.startswith("  follow"))
    done = len(row_files(tmp_path))
    wait_until(lambda: len(row_files(tmp_path)) > done, "more rows")
    looking = Submission(head, *follow.split("cluster.submit ")[1].split())
    wait_until(lambda: "90 of 90 trials to run" in looking.told[0], "the job's log", looking)
    looking.ctrl_c()
    wait_until(lambda: "goes on; Ctrl-C again" in looking.told[1], "what to do", looking)
    looking.ctrl_c()
    status, out, err = looking.outcome()
    assert status == 130 and "was stopped" in err, (out, err)
    assert out.count("90 of 90 trials to run") == 1 and out.count("the same command continues") == 1, out


def test_a_stopped_job_has_longer_than_rays_three_seconds_to_write_what_it_has(head: Head, tmp_path: Path) -> None:
    driver = (
        "import signal, sys, time; print('up', flush=True)\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(5), print('written', flush=True), sys.exit(0)))\n"
        "time.sleep(300)"
    )
    (tmp_path / "driver.py").write_text(driver)
    code = f"""
import sys, time
from pathlib import Path
from cluster import jobs, package
mine = jobs.connect({head.address!r})
package.pack(Path({str(tmp_path)!r}), ["driver.py"], packed := Path({str(tmp_path / "code.zip")!r}))
mine.send("slow", "exec python driver.py", packed, {{}})
while "up" not in mine._client.get_job_logs("slow"):
    time.sleep(0.2)
mine.stop("slow")
sys.exit(mine.follow("slow").status)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=head.environment(), capture_output=True, text=True
    )
    assert done.returncode == 130 and done.stdout.endswith("up\nwritten\n"), done


def test_who_has_no_right_token_is_not_let_in(head: Head) -> None:
    status, out, err = Submission(head, "--logs", "some-job", token="f" * 32).outcome()
    assert (status, out) == (2, "") and err.count("\n") == 1, err
    assert err.startswith(f"error: the Ray cluster at {head.address} does not let us in: Authentication failed"), err


def test_a_cluster_that_there_is_not_is_said_in_one_line(head: Head) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        status, out, err = Submission(head, "--stop", "some-job", "--address", address).outcome()
    assert (status, out) == (2, "") and err.startswith(f"error: no Ray cluster answers at {address}; start it"), err
    assert err.count("\n") == 1


def test_a_job_that_there_is_not_is_said_in_one_line(head: Head) -> None:
    for option in ("--logs", "--stop"):
        status, out, err = Submission(head, option, "some-job").outcome()
        assert (status, out) == (2, "") and "some-job does not exist" in err and err.count("\n") == 1, err
