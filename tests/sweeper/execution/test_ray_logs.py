"""Ray's lines in the log of a run."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.execution import ray_logs
from sweeper.execution.ray_logs import captured_files, captured_loggers, take_lines
from sweeper.printing import LOGGER


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.name, record.getMessage()))


@pytest.fixture
def kept() -> Iterator[Kept]:
    """What the log of a run would have."""
    handler = Kept()
    LOGGER.addHandler(handler)
    yield handler
    LOGGER.removeHandler(handler)


def test_loggers_of_ray_lead_to_the_log_alone_even_after_ray_removed_their_handlers(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("ray")
    own = logging.StreamHandler()
    logger.addHandler(own)
    try:
        with captured_loggers():
            logging.getLogger("ray").handlers.clear()  # as `ray.init` does
            logging.getLogger("ray._private.worker").warning("token %s", "is on")
            logging.getLogger("ray.train").info("a group starts")
        assert kept.lines == [
            ("WARNING", "ray._private.worker", "token is on"),
            ("INFO", "ray.train", "a group starts"),
        ]
        assert capsys.readouterr() == ("", "") and own in logger.handlers
    finally:
        logger.removeHandler(own)


def test_lines_of_a_clusters_processes_name_who_printed_them(kept: Kept) -> None:
    data = {"ip": "10.0.0.7", "pid": 12, "is_err": True, "actor_name": "CohortActor", "lines": ["a", ":job_id:01", "b"]}
    take_lines(data, ignore_prefix=False)
    take_lines({"ip": "10.0.0.7", "pid": "raylet", "lines": ["[2026-01-01 00:00:00,1 E 5 7] (raylet) no memory"]})
    state = ["======== Autoscaler status: ========", " 1 head", ":event_summary:Adding 1 node", '{"message": "Adding"}']
    take_lines({"ip": "10.0.0.7", "pid": "autoscaler", "lines": state})
    assert kept.lines[3:] == [
        ("INFO", "sweeper.ray", f"process autoscaler 10.0.0.7: {line}") for line in state if "Adding" in line
    ]
    assert kept.lines[:3] == [
        ("INFO", "sweeper.ray", "CohortActor 12 10.0.0.7: a"),
        ("INFO", "sweeper.ray", "CohortActor 12 10.0.0.7: b"),
        ("ERROR", "sweeper.ray", "process raylet 10.0.0.7: [2026-01-01 00:00:00,1 E 5 7] (raylet) no memory"),
    ]


def test_files_of_a_local_cluster_are_read_to_their_end_and_once(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_logs, "MOST_BYTES", 40)
    logs = tmp_path / "session_latest/logs"
    reader = ray_logs._GrowingFiles(logs)
    reader.look()  # before Ray has made the folder
    logs.mkdir(parents=True)
    (logs / "worker-1.err").write_text(":job_id:01\nTraceback\nImportError: no m")
    reader.look()
    with (logs / "worker-1.err").open("a") as stream:
        stream.write("odule\n")
    (logs / "raylet.out").write_text("[2026-01-01 00:00:00,1 I 5 7] fine\n")
    (logs / "debug_state.txt").write_text("all\n")
    reader.look()
    reader.look()
    (logs / "worker-2.out").write_text("x" * 100 + "\nthe end\n")
    reader.look()
    assert [line for _, _, line in kept.lines] == [
        "worker-1.err: Traceback",
        "worker-1.err: ImportError: no module",
        f"worker-2.out: {'x' * 31}",
        "worker-2.out: the end",
    ]


def test_what_is_written_last_is_read_before_the_files_are_deleted(tmp_path: Path, kept: Kept) -> None:
    logs = tmp_path / "session_latest/logs"
    with captured_files(tmp_path):
        logs.mkdir(parents=True)
        (logs / "raylet.out").write_text("[2026-01-01 00:00:00,1 W 5 7] killed a worker\n")
    assert kept.lines == [("WARNING", "sweeper.ray", "raylet.out: [2026-01-01 00:00:00,1 W 5 7] killed a worker")]
