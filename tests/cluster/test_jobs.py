import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import jobs, package
from cluster.jobs import HAS_RAY, End, Jobs, entrypoint
from sweeper.errors import ClusterError, JobLost
from sweeper.version import code_version
from tests.cluster.fake_client import FakeClient, details

ADDRESS = "http://127.0.0.1:8265"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(jobs, "ANSWER_SECONDS", 0.1)


def test_a_server_that_takes_connections_and_never_answers_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(os, "environ", {**os.environ})
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(ClusterError, match=rf"^no Ray cluster answers at {address}; start it, or forward its"):
            jobs.connect(address)


@pytest.mark.parametrize(
    ("status", "code", "message", "end"),
    [
        ("SUCCEEDED", 0, None, End(0, "has succeeded")),
        ("FAILED", 1, "long\nlog", End(1, "ended with status 1")),
        ("FAILED", 2, "", End(2, "ended with status 2")),
        ("FAILED", 127, "", End(127, "ended with status 127")),
        ("FAILED", -9, "", End(137, "was killed by signal 9")),
        ("STOPPED", None, None, End(130, "was stopped")),
        ("FAILED", None, "\n no such package\n more", End(1, "was ended by the cluster: no such package")),
        ("FAILED", None, None, End(1, "was ended by the cluster: it does not say why")),
        ("RUNNING", None, None, None),
        ("PENDING", None, None, None),
    ],
)
def test_a_jobs_end_is_the_exit_status_of_its_command(
    status: str, code: int | None, message: str | None, end: End | None
) -> None:
    assert Jobs(ADDRESS, FakeClient(details(status, code, message))).end("j") == end


def test_the_log_is_printed_once_however_often_the_connection_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Each connection sends the log from its beginning, in other pieces."""
    logs: list[list[str | BaseException]]
    logs = [["one\n", "two\nth", RuntimeError("closed")], [], ["one\ntwo\n", OSError("x")], ["one\ntwo\nthr", "ee\n"]]
    client = FakeClient(*[details("RUNNING")] * 3, details("FAILED", 1), logs=logs)
    assert Jobs(ADDRESS, client).follow("j") == End(1, "ended with status 1")
    assert capsys.readouterr().out == "one\ntwo\nthree\n"


def test_a_log_that_was_cut_off_by_ctrl_c_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    client = FakeClient(details("STOPPED"), logs=[["one\n", KeyboardInterrupt()], ["one\n", "two\n"]])
    log_jobs = Jobs(ADDRESS, client)
    with pytest.raises(KeyboardInterrupt):
        log_jobs.follow("j")
    assert capsys.readouterr().out == "one\n"
    assert log_jobs.follow("j").status == 130
    assert capsys.readouterr().out == "two\n"


def test_a_cluster_that_answers_again_in_time_is_not_lost() -> None:
    client = FakeClient(details("RUNNING"), ConnectionError(), ConnectionError(), details("SUCCEEDED", 0))
    assert Jobs(ADDRESS, client).follow("j").status == 0


def test_a_cluster_that_stops_answering_is_an_error_that_names_the_job() -> None:
    for wait in ("follow", "wait"):
        client = FakeClient(details("RUNNING"), ConnectionError("Failed\nto connect"))
        with pytest.raises(JobLost) as lost:
            getattr(Jobs(ADDRESS, client), wait)("j-1")
        expected = f"no Ray cluster answers at {ADDRESS}; job j-1 may go on, and --logs j-1 follows it"
        assert str(lost.value) == expected


def test_a_refusal_of_the_cluster_is_reported_in_one_line() -> None:
    client = FakeClient(RuntimeError("Request failed with status code 404: Job j does not exist.\nTraceback"))
    with pytest.raises(ClusterError) as refused:
        Jobs(ADDRESS, client).end("j")
    assert str(refused.value) == (
        f"the Ray cluster at {ADDRESS} refuses the request: Request failed with status code 404: Job j does not exist."
    )
    assert not isinstance(refused.value, JobLost)


def test_a_running_job_is_found_by_its_sweep_and_store() -> None:
    metadata = {"sweep": "grid", "store": "/s"}
    client = FakeClient()
    client.other_jobs = [
        details("RUNNING", metadata=None, submission_id=None),
        details("FAILED", metadata=metadata, submission_id="ended"),
        details("RUNNING", metadata={**metadata, "store": "/t"}, submission_id="elsewhere"),
        details("PENDING", metadata={**metadata, "job_name": "x"}, submission_id="same"),
    ]
    assert Jobs(ADDRESS, client).running(metadata) == "same"
    assert Jobs(ADDRESS, client).running({**metadata, "sweep": "other"}) is None


def test_a_driver_has_longer_than_rays_three_seconds_to_save(tmp_path: Path) -> None:
    client = FakeClient()
    package.pack(tmp_path, [], packed := tmp_path / "code.zip")
    Jobs(ADDRESS, client).send("j", "true", packed, {"sweep": "grid"})
    (submission,) = client.submissions
    assert int(submission["runtime_env"]["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"]) >= 30
    assert submission["runtime_env"]["env_vars"]["SWEEPER_CODE_VERSION"] == code_version()
    assert (submission["entrypoint"], submission["submission_id"]) == ("true", "j")
    assert submission["metadata"] == {"sweep": "grid"}


ARGUMENTS = ["anomaly_grid", "--store", "/a b;$(rm) 'c'"]


def interpreter(folder: Path, has_ray: bool) -> Path:
    """Create a fake `python` in the folder that prints its own path and its arguments."""
    folder.mkdir()
    path = folder / "python"
    path.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit {int(not has_ray)}\nprintf "%s\\n" "$0" "$@"\nexit 7\n')
    path.chmod(0o755)
    return path


def run_on_head(line: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run the command as on a head whose PATH is this one folder."""
    return subprocess.run(["/bin/sh", "-c", line], env={"PATH": str(path)}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("mine", "heads", "chosen"),
    [(True, None, "mine"), (True, True, "mine"), (None, True, "heads"), (False, True, "heads"), (True, False, "mine")],
)
def test_the_first_python_that_has_ray_runs_the_sweep(
    mine: bool | None, heads: bool | None, chosen: str, tmp_path: Path
) -> None:
    """`mine` is the submitter's interpreter, `heads` the one on the head's PATH: None if absent, False without Ray."""
    for name, has_ray in (("mine", mine), ("heads", heads)):
        if has_ray is not None:
            interpreter(tmp_path / name, has_ray)
    completed = run_on_head(entrypoint(ARGUMENTS, str(tmp_path / "mine/python")), tmp_path / "heads")
    assert completed.returncode == 7 and completed.stderr == "", completed
    assert completed.stdout.splitlines() == [str(tmp_path / chosen / "python"), "-m", "sweeper.run", *ARGUMENTS]


def test_if_no_python_has_ray_one_line_says_what_to_do(tmp_path: Path) -> None:
    path = interpreter(tmp_path / "heads", has_ray=False).parent
    completed = run_on_head(entrypoint(ARGUMENTS, f"{tmp_path}/it's/python"), path)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr == (
        f"error: the cluster's head has no Python with Ray: tried {tmp_path}/it's/python, and python on its PATH; "
        "start the head with its environment on PATH: PATH=VENV/bin:$PATH ray start ...\n"
    )


def test_whether_a_python_has_ray_is_detected() -> None:
    assert subprocess.run([sys.executable, "-c", HAS_RAY]).returncode == 0
    assert subprocess.run([sys.executable, "-I", "-S", "-c", HAS_RAY]).returncode == 1
