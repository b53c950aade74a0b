"""The log of a run: what it has, and that a sweep does not need it."""

import math
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.commands import run
from sweeper.errors import StoreError
from sweeper.planning.cohorts import Cohort, Trial
from sweeper.printing import LOGGER, print
from sweeper.record import run_log
from sweeper.record.run_log import RunLog
from sweeper.runtime import REAL, BackgroundThread
from sweeper.storage.files import Files
from tests.fake_executor import without_ray
from tests.sweeper.record.plans import plan_of
from tests.sweeper.record.test_events import fail_once
from tests.sweeper.small_sweeps import small_grid
from trainables.reports import Heartbeat

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO   |WARNING|ERROR  ) sweeper: (.*)")


def log_of(store: Path) -> list[tuple[str, str]]:
    """Level and text of each line of the only log."""
    (path,) = (store / "logs/runs/anomaly_grid").iterdir()
    assert re.fullmatch(r"\d{8}T\d{6}\.\d{6}Z\.log", path.name)
    matches = [LINE.fullmatch(line) for line in path.read_text().splitlines() if not line.startswith("    ")]
    assert all(matches)
    return [(match[1].strip(), match[2]) for match in matches if match]


@pytest.mark.usefixtures("unreported")
def test_a_log_has_what_the_driver_says_and_what_becomes_of_cohorts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with without_ray(tmp_path, fail_once([])):
        assert run.main(small_grid(tmp_path / "store", "--retries", "1")) == 1
    lines = log_of(tmp_path / "store")
    assert "6 of 6 trials to run" in lines[0][1] and lines[-1] == ("INFO", "the run ends with status 1")
    for level, text in (
        ("INFO", r"cohort \w+ trains: \w+, \w+, \w+"),
        ("WARNING", r"cohort \w+ was cut off and is tried again \(error\): RuntimeError: out of luck"),
        ("WARNING", r"cohort \w+ begins anew as \w+, \w+ \(error\): RuntimeError: out of luck"),
        ("ERROR", r"cohort \w+ failed for good \(error\): RuntimeError: out of luck"),
        ("INFO", r"cohort \w+: rows of 1 finished trials are written"),
        ("INFO", r"4 finished, 2 failed of 6 trials"),
    ):
        assert any(known == level and re.fullmatch(text, said) for known, said in lines), text
    assert "trains:" not in capsys.readouterr().out


@pytest.mark.usefixtures("unreported")
def test_a_log_that_cannot_be_written_is_one_line_and_disturbs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write: Callable[[Files, str, bytes], None] = Files.write

    def refuse(files: Files, path: str, data: bytes) -> None:
        if path.startswith("logs/runs/"):
            raise StoreError("the disk is full")
        write(files, path, data)

    monkeypatch.setattr(Files, "write", refuse)
    with without_ray(tmp_path):
        assert run.main(small_grid(tmp_path / "store")) == 0
    out, err = capsys.readouterr()
    assert "6 finished of 6 trials" in out and not (tmp_path / "store/logs/runs").exists()
    assert err.count("note: the log of the run cannot be written: the disk is full") == 1


def test_secrets_and_control_characters_are_not_in_a_log(tmp_path: Path) -> None:
    with RunLog(plan_of(3), Files(tmp_path)) as log:
        print("to s3://key:secret@bucket/path\n  and \x1b[2J")
        LOGGER.warning("s3://key:secret@bucket")
    text = Path(log.address).read_text()
    assert "secret" not in text and "\x1b" not in text and "s3://bucket/path\n      and \\x1b[2J" in text


def test_a_log_says_every_minute_which_cohort_is_silent_the_longest(tmp_path: Path) -> None:
    now, looks, watches = 0.0, [61.0, 65.0, 125.0], list[Callable[[], None]]()

    def wait(over: threading.Event, seconds: float) -> bool:
        nonlocal now
        now = looks.pop(0) if looks else math.inf
        return now == math.inf

    def begin(name: str, act: Callable[[], None]) -> BackgroundThread:
        watches.append(act)
        return REAL.begin(name, lambda: None)

    runtime = replace(REAL, monotonic=lambda: now, wait=wait, begin=begin)
    first, second = (Cohort(name, (Trial(f"{name}0", {}),), 1) for name in ("a", "b"))
    with RunLog(plan_of(3), Files(tmp_path, runtime=runtime)) as log:
        log.started(first)
        now = 20.0
        log.started(second)
        now = 55.0
        log.advanced(first, Heartbeat(1.0, 2, None))
        watches[0]()
    states = re.findall("state: (.*)", Path(log.address).read_text())
    assert states == [
        "2 cohorts train, the longest without news b for 41 s; no trials have ended in this run",
        "2 cohorts train, the longest without news b for 105 s; no trials have ended in this run",
    ]


def test_a_long_log_keeps_its_beginning_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "WRITE_SECONDS", 1000.0)
    with RunLog(plan_of(3), Files(tmp_path)) as log:
        for index in range(40_000):
            LOGGER.info("line %d %s", index, "x" * 60)
    data = Path(log.address).read_bytes()
    assert len(data) < 2.1 * 2**20 and b"bytes left out" in data
    assert b"line 0 " in data and b"line 39999 " in data and b"line 20000 " not in data
