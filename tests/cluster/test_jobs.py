from pathlib import Path

import pytest

from cluster import jobs, package
from cluster.jobs import End, Jobs
from sweeper.errors import ClusterError, JobLost
from tests.cluster.fake_client import FakeClient, details

AT = "http://127.0.0.1:8265"


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PAUSE", 0.01)
    monkeypatch.setattr(jobs, "PATIENCE", 0.1)


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
    assert Jobs(AT, FakeClient(details(status, code, message))).end("j") == end


def test_the_log_is_printed_once_however_often_the_connection_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Each connection sends the log from its beginning, in other pieces."""
    logs: list[list[str | BaseException]]
    logs = [["one\n", "two\nth", RuntimeError("closed")], [], ["one\ntwo\n", OSError("x")], ["one\ntwo\nthr", "ee\n"]]
    client = FakeClient(*[details("RUNNING")] * 3, details("FAILED", 1), logs=logs)
    assert Jobs(AT, client).follow("j") == End(1, "ended with status 1")
    assert capsys.readouterr().out == "one\ntwo\nthree\n"


def test_a_log_that_was_cut_off_by_ctrl_c_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    client = FakeClient(details("STOPPED"), logs=[["one\n", KeyboardInterrupt()], ["one\n", "two\n"]])
    mine = Jobs(AT, client)
    with pytest.raises(KeyboardInterrupt):
        mine.follow("j")
    assert capsys.readouterr().out == "one\n"
    assert mine.follow("j").status == 130
    assert capsys.readouterr().out == "two\n"


def test_a_cluster_that_answers_again_in_time_is_not_lost() -> None:
    client = FakeClient(details("RUNNING"), ConnectionError(), ConnectionError(), details("SUCCEEDED", 0))
    assert Jobs(AT, client).follow("j").status == 0


def test_a_cluster_that_answers_no_more_is_given_up_and_the_job_named() -> None:
    for wait in ("follow", "wait"):
        client = FakeClient(details("RUNNING"), ConnectionError("Failed\nto connect"))
        with pytest.raises(JobLost) as lost:
            getattr(Jobs(AT, client), wait)("j-1")
        expected = f"no Ray cluster answers at {AT}; job j-1 may go on, and --logs j-1 follows it"
        assert str(lost.value) == expected


def test_what_the_cluster_refuses_is_said_in_one_line() -> None:
    client = FakeClient(RuntimeError("Request failed with status code 404: Job j does not exist.\nTraceback"))
    with pytest.raises(ClusterError) as refused:
        Jobs(AT, client).end("j")
    assert str(refused.value) == (
        f"the Ray cluster at {AT} refuses the request: Request failed with status code 404: Job j does not exist."
    )
    assert not isinstance(refused.value, JobLost)


def test_a_job_that_goes_on_is_found_by_what_it_does() -> None:
    about = {"sweep": "grid", "store": "/s"}
    client = FakeClient()
    client.others = [
        details("RUNNING", metadata=None, submission_id=None),
        details("FAILED", metadata=about, submission_id="ended"),
        details("RUNNING", metadata={**about, "store": "/t"}, submission_id="elsewhere"),
        details("PENDING", metadata={**about, "job_name": "x"}, submission_id="same"),
    ]
    assert Jobs(AT, client).running(about) == "same"
    assert Jobs(AT, client).running({**about, "sweep": "other"}) is None


def test_a_driver_has_longer_than_rays_three_seconds_to_write_what_it_has(tmp_path: Path) -> None:
    client = FakeClient()
    package.pack(tmp_path, [], packed := tmp_path / "code.zip")
    Jobs(AT, client).send("j", "true", packed, {"sweep": "grid"})
    (sent,) = client.sent
    assert int(sent["runtime_env"]["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"]) >= 30
    assert (sent["entrypoint"], sent["submission_id"], sent["metadata"]) == ("true", "j", {"sweep": "grid"})
