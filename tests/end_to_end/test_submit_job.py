"""Sweeps sent to the job server of a real head, which requires a token. `test_submit.py` and `test_jobs.py` of
`tests/cluster` assert the same with a server of their own."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sweeper.execution.session import LOOPBACK
from tests.end_to_end import heads
from tests.end_to_end.heads import ROOT, Head, Submission, wait_until
from tests.end_to_end.sweeps import listening, row_files, tells_metrics

pytestmark = [pytest.mark.slow, pytest.mark.soak]

SWEEP = (
    *("anomaly_grid", "--preset", "digits", "--axis", "beta=0.5,1,2", "--axis", "nu=0.5,3"),
    *("--axis", "normal_class=0,1,2", "--set", "epochs=40", "--cohort", "2"),
)
"""18 trials in 9 cohorts, over a second each on one core."""
DRIVER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(4), print("written", flush=True), sys.exit(0)))
print("at work", flush=True)
time.sleep(300)
"""
"""A driver that needs longer to end than the three seconds that Ray leaves by default."""
STOPPED = """
import sys, time
from pathlib import Path
from sweeper.submission import jobs, package
address, folder = sys.argv[1], Path(sys.argv[2])
mine = jobs.connect(address)
package.pack(folder, ["driver.py"], packed := folder / "code.zip")
mine.send("slow", f"exec {sys.executable} driver.py", packed, {})
while "at work" not in mine._client.get_job_logs("slow"):
    time.sleep(0.2)
mine.stop("slow")
sys.exit(mine.follow("slow").status)
"""


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    pytest.importorskip("aiohttp_cors", reason="jobs are taken by ray[default]")
    with heads.head(cores=1, variables=LOOPBACK) as cluster:
        yield cluster


def test_a_job_is_followed_left_to_itself_and_stopped(head: Head, tmp_path: Path) -> None:
    arguments = [*SWEEP, "--store", str(tmp_path)]
    submission = Submission(head, *arguments)
    suspended = list[psutil.Process]()

    def caught() -> bool:
        """Suspend the training of the second cohort or a later one, or all might end before the job is stopped."""
        suspended[:] = head.started[0].suspend() if row_files(tmp_path) else []
        return bool(suspended)

    wait_until(caught, "rows", submission)
    ports = listening(head.started[0].processes())
    assert {port.address for port in ports} == {"127.0.0.1"}
    assert [port for port in ports if tells_metrics(port.port)] == []
    job = submission.output[1].split()[1]
    second = Submission(head, *arguments)
    submission.ctrl_c()
    status, _, err = second.outcome()
    assert status == 2 and f"but {job} runs anomaly_grid into {tmp_path}" in err, err
    status, _, err = Submission(head, "--stop", job).outcome()
    assert status == 0 and err == f"job {job} was stopped\n", err
    status, out, err = submission.outcome()
    assert status == 130 and out.count("18 of 18 trials to run") == 1, (out, err)
    assert f"job {job} goes on" in err and f"--stop {job}" in err and "was stopped" not in err, err
    assert 0 < len(row_files(tmp_path)) < 9
    status, out, err = Submission(head, "--logs", job).outcome()
    assert status == 130 and f"of 18 trials are in {tmp_path}; the same command continues" in out, (out, err)


def test_a_job_ends_with_the_status_of_its_command_and_has_time_to_save(head: Head, tmp_path: Path) -> None:
    """Ray's own command line turns every status into 1, and kills a job after three seconds."""
    absent = Submission(head, "imagenet_linear", "--store", str(tmp_path / "s"), "--data", str(tmp_path / "absent"))
    (tmp_path / "driver.py").write_text(DRIVER)
    completed = subprocess.run(
        [sys.executable, "-c", STOPPED, head.address, tmp_path],
        cwd=ROOT,
        env=head.environment(),
        capture_output=True,
        text=True,
    )
    lines = completed.stdout.splitlines()  # Ray writes lines of its own among them
    assert completed.returncode == 130 and "at work" in lines and lines[-1] == "written", completed
    status, out, err = absent.outcome()
    assert status == 2 and f"error: imagenet is absent from {tmp_path / 'absent'}" in out, (out, err)
    assert "note: the data in" in err and "ended with status 2" in err, err


def test_what_a_cluster_refuses_is_said_in_one_line(head: Head) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{bound.getsockname()[1]}"
        submissions = {
            "refuses access: Authentication failed": Submission(head, "--logs", "some-job", token="f" * 32),
            f"error: no Ray cluster answers at {nobody}; start it": Submission(
                head, "--stop", "some-job", "--address", nobody
            ),
            "some-job does not exist": Submission(head, "--stop", "some-job"),
        }
        for message, submission in submissions.items():
            status, out, err = submission.outcome()
            assert (status, out) == (2, "") and message in err and err.count("\n") == 1, err
