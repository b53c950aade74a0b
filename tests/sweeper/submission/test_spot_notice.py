"""A spot notice of either cloud reaches Ray and every training process, and no other process."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from sweeper.submission import spot_notice
from sweeper.submission.spot_notice import main, nodes, noticed_by_aws, noticed_by_gcp, stop, trainers

WORKS = """
import pathlib, signal, sys, time
def saves(*_):
    time.sleep({takes})
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit()
signal.signal(signal.SIGTERM, saves)
print("ready", flush=True)
time.sleep(1000)
"""


class Metadata(BaseHTTPRequestHandler):
    """Metadata server of both clouds. It refuses requests without the header that the cloud requires."""

    preempted = False

    def do_PUT(self) -> None:
        is_valid = self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self._answer("secret" if is_valid else None)

    def do_GET(self) -> None:
        if (
            self.path == "/latest/meta-data/spot/instance-action"
            and self.headers["X-aws-ec2-metadata-token"] == "secret"
        ):
            self._answer('{"action": "terminate", "time": "2026-01-01T00:00:00Z"}' if Metadata.preempted else None)
        elif self.path == "/computeMetadata/v1/instance/preempted" and self.headers["Metadata-Flavor"] == "Google":
            self._answer("TRUE" if Metadata.preempted else "FALSE")
        else:
            self._answer(None)

    def _answer(self, text: str | None) -> None:
        self.send_response(404 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "not here").encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[str]:
    Metadata.preempted = False
    server = HTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def work(tmp_path: Path) -> Iterator[dict[str, psutil.Process]]:
    """Processes that save on SIGTERM: two that train, one of Ray's agents, and an unrelated one."""
    titles = {
        "quick": ("ray::cohort", 0),
        "slow": ("ray::cohort", 1000),
        "agent": ("ray::RuntimeEnvAgent", 0),
        "other": ("python", 0),
    }
    started = {
        name: subprocess.Popen(
            [title, "-c", WORKS.format(takes=takes), tmp_path / name], executable=sys.executable, stdout=subprocess.PIPE
        )
        for name, (title, takes) in titles.items()
    }
    for process in started.values():
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    yield {name: psutil.Process(process.pid) for name, process in started.items()}
    for process in started.values():
        process.kill()
        process.communicate()


def raylet(pid: int, *children: psutil.Process) -> Any:
    """Fake `psutil.Process` of a raylet."""
    command = ["/ray/raylet", "--node_port=0", f"--node_id={pid}abc", "--head", "--gcs-address=127.0.0.1:6379"]
    return SimpleNamespace(
        pid=pid, name=lambda: "raylet", cmdline=lambda: command, children=lambda recursive: list(children)
    )


@pytest.mark.parametrize("noticed", [noticed_by_aws, noticed_by_gcp])
def test_a_notice_is_seen_when_it_is_given(noticed: type[bool], metadata: str) -> None:
    assert not noticed(metadata)
    Metadata.preempted = True
    assert noticed(metadata)


@pytest.mark.parametrize("noticed", [noticed_by_aws, noticed_by_gcp])
def test_no_answer_is_no_notice(noticed: type[bool]) -> None:
    with socket.socket() as bound:  # the port is taken, and nobody listens
        bound.bind(("127.0.0.1", 0))
        assert not noticed(f"http://127.0.0.1:{bound.getsockname()[1]}")


def test_training_processes_save_in_time_and_others_are_left_alone(
    work: dict[str, psutil.Process], tmp_path: Path
) -> None:
    """A raylet exits without its agents, and ends all training with it."""
    [node] = nodes([raylet(7, *work.values()), work["other"]])
    assert trainers(node) == [work["quick"], work["slow"]]
    assert stop(trainers(node), seconds=3.0) == 1  # the slow one is given up
    assert (tmp_path / "quick").read_text() == "saved" and not (tmp_path / "slow").exists()
    for name in ("agent", "other"):
        assert work[name].is_running() and not (tmp_path / name).exists()


def test_processes_that_have_gone_are_passed_over(work: dict[str, psutil.Process]) -> None:
    ended = work["quick"]
    ended.kill()
    ended.wait()
    [node] = nodes([ended, raylet(7, ended)])
    assert trainers(node) == [] and stop([ended], seconds=1.0) == 0


@pytest.mark.parametrize("arguments", [["--cloud", "aws"], ["--now", "--raylet", "7"]])
def test_ray_is_notified_of_the_node_before_its_training_is_stopped(
    arguments: list[str],
    work: dict[str, psutil.Process],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drained: list[tuple[str, str, float, bool]] = []
    answers = iter([False, False, True])
    second_raylet = [raylet(8, work["slow"])] if "--raylet" in arguments else []
    processes = [raylet(7, work["quick"]), work["other"], *second_raylet]
    monkeypatch.setitem(spot_notice.CLOUDS, "aws", lambda: next(answers))
    monkeypatch.setattr(spot_notice, "BETWEEN_SECONDS", 0.0)
    monkeypatch.setattr(
        spot_notice,
        "drain",
        lambda node, seconds: drained.append((node.id, node.cluster, seconds, work["quick"].is_running())),
    )
    monkeypatch.setattr(spot_notice.psutil, "process_iter", lambda: iter(processes))
    assert main([*arguments, "--grace", "60"]) == 0
    assert drained == [("7abc", "127.0.0.1:6379", 60.0, True)]
    assert "0 processes still ran after 60 s" in capsys.readouterr().out
    assert work["other"].is_running() and work["slow"].is_running() and not work["quick"].is_running()


@pytest.mark.parametrize(("pids", "listed"), [([], "none"), ([7, 8], "7, 8")])
def test_no_node_or_several_are_not_stopped_as_one(
    pids: list[int], listed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spot_notice.psutil, "process_iter", lambda: iter(map(raylet, pids)))
    monkeypatch.setattr(spot_notice, "drain", lambda *_: pytest.fail("Ray was notified"))
    assert main(["--now"]) == 2
    err = capsys.readouterr().err
    assert err == (
        f"exactly one raylet must run here, or --raylet PID must name one of several; raylets found: {listed}\n"
    )
