"""Access to a cluster's job server, and jobs that are sent, followed and stopped, with a fake client."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from sweeper.errors import ClusterError, JobLost
from sweeper.submission import jobs, package
from sweeper.submission.jobs import HAS_RAY, End, Jobs, check_token, dashboard_address, entrypoint, is_unencrypted
from sweeper.version import code_version
from tests.sweeper.submission.conftest import FakeClient, details

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


def test_a_driver_has_longer_than_rays_three_seconds_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPER_USER", "ada")
    client = FakeClient()
    package.pack(tmp_path, [], packed := tmp_path / "code.zip")
    Jobs(ADDRESS, client).send("j", "true", packed, {"sweep": "grid"})
    (submission,) = client.submissions
    assert int(submission["runtime_env"]["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"]) >= 30
    assert submission["runtime_env"]["env_vars"]["SWEEPER_CODE_VERSION"] == code_version()
    assert submission["runtime_env"]["env_vars"]["SWEEPER_USER"] == "ada"  # the job has an account of the cluster
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


@pytest.mark.parametrize(
    ("requested", "environment", "expected"),
    [
        (None, {}, "http://127.0.0.1:8265"),
        ("https://ray.example.org:443/", {}, "https://ray.example.org:443"),
        ("http://[::1]:8265", {}, "http://[::1]:8265"),
        (None, {"RAY_ADDRESS": "http://head:8265"}, "http://head:8265"),
        (None, {"RAY_ADDRESS": "http://a:1", "RAY_API_SERVER_ADDRESS": "http://b:2"}, "http://b:2"),
        ("http://c:3", {"RAY_ADDRESS": "http://a:1", "RAY_API_SERVER_ADDRESS": "http://b:2"}, "http://c:3"),
    ],
)
def test_a_requested_address_precedes_rays_variables(
    requested: str | None, environment: Mapping[str, str], expected: str
) -> None:
    assert dashboard_address(requested, environment) == expected


@pytest.mark.parametrize(
    "text",
    ["", "head:8265", "head", "auto", "ray://head:10001", "http://head", "http://:8265", "http://head:port", "ftp://h:1",
     "http://head:99999", "http://user:secret@head:8265", "http://head:8265?x=1"],
)  # fmt: skip
def test_an_address_that_is_not_a_dashboards_is_refused(text: str) -> None:
    with pytest.raises(
        ClusterError, match="must be the URL of the cluster's dashboard, http://host:port or"
    ) as refused:
        dashboard_address(text, {})
    assert str(refused.value).startswith("--address ") and "\n" not in str(refused.value)


def test_a_wrong_address_in_a_variable_is_refused_by_the_variables_name() -> None:
    with pytest.raises(ClusterError, match=r"^RAY_ADDRESS must be the URL .*http://.*, but got '10\.0\.0\.1:6379'$"):
        dashboard_address(None, {"RAY_ADDRESS": "10.0.0.1:6379"})


def test_a_token_may_be_in_the_environment_in_a_named_file_or_in_rays_own(tmp_path: Path) -> None:
    check_token({"RAY_AUTH_TOKEN": "abc"}, tmp_path)
    (named := tmp_path / "token").write_text("abc\n")
    check_token({"RAY_AUTH_TOKEN_PATH": str(named)}, tmp_path)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("abc")
    check_token({}, tmp_path)


def test_a_missing_token_is_an_error_that_names_the_three_places_for_it(tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as refused:
        check_token({}, tmp_path)
    assert str(refused.value) == (
        f"a cluster requires a token, but RAY_AUTH_TOKEN is not set and {tmp_path}/.ray/auth_token cannot be "
        "read: No such file or directory; put the cluster's token there, name its file in RAY_AUTH_TOKEN_PATH, or "
        "set RAY_AUTH_MODE=disabled for a cluster without authentication"
    )


def test_a_named_file_precedes_rays_own_even_if_it_is_bad(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("abc")
    (empty := tmp_path / "empty").write_text("\n")
    with pytest.raises(ClusterError, match="empty is empty; put"):
        check_token({"RAY_AUTH_TOKEN_PATH": str(empty)}, tmp_path)
    with pytest.raises(ClusterError, match="cannot be read: Is a directory"):
        check_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path)}, tmp_path)
    (broken := tmp_path / "broken").write_bytes(b"\xff\xfe")
    with pytest.raises(ClusterError, match="cannot be read: 'utf-8' codec"):
        check_token({"RAY_AUTH_TOKEN_PATH": str(broken)}, tmp_path)


def test_no_token_is_required_if_authentication_is_off(tmp_path: Path) -> None:
    check_token({"RAY_AUTH_MODE": "disabled"}, tmp_path)
    with pytest.raises(ClusterError):
        check_token({"RAY_AUTH_MODE": "TOKEN"}, tmp_path)


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("http://127.0.0.1:8265", False),
        ("http://[::1]:8265", False),
        ("http://localhost:8265", False),
        ("https://head:443", False),
        ("http://10.0.0.7:8265", True),
        ("http://localhost.example.org:8265", True),
    ],
)
def test_a_token_is_encrypted_by_tls_or_stays_on_this_machine(url: str, clear: bool) -> None:
    assert is_unencrypted(url) == clear
