"""What is printed while a trial trains: what is kept of it, and that the process prints as before afterwards."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.reports import LogError, Stopped
from trainables.worker import logs
from trainables.worker.logs import LogCapture, LogText

CONTINUED = rb"first\n\[continued at [-0-9]+ [:0-9]+ UTC\]\n"


@dataclass
class KeptLogs:
    """`logs.Logs` in memory."""

    of: dict[str, bytes] = field(default_factory=dict)
    full: bool = False

    def read(self, trial: str) -> bytes | None:
        return self.of.get(trial)

    def write(self, trial: str, data: bytes) -> None:
        if self.full:
            raise LogError("store full")
        self.of[trial] = data


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> KeptLogs:
    """Nothing is written but at the boundaries."""
    monkeypatch.setattr(logs, "POLL_SECONDS", 1000.0)
    return KeptLogs()


def capture(kept: KeptLogs, notify: Callable[[str], None] = pytest.fail) -> LogCapture:
    return LogCapture(kept, notify)


def identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def test_each_trial_has_what_it_printed_by_whatever_way(kept: KeptLogs) -> None:
    before = [identity(descriptor) for descriptor in (1, 2)]
    with capture(kept) as log:
        log.begin("a")
        os.write(1, b"C\n")
        subprocess.run([sys.executable, "-c", "import sys; print('child', file=sys.stderr)"], check=True)
        log.begin("b", "c")
        os.write(2, b"both\n")
        log.begin("silent")
    assert kept.of == {"a": b"C\nchild\n", "b": b"both\n", "c": b"both\n"}
    assert [identity(descriptor) for descriptor in (1, 2)] == before


def test_after_an_exception_the_log_ends_with_it_and_the_process_prints_as_before(kept: KeptLogs) -> None:
    before = [identity(descriptor) for descriptor in (1, 2)]
    script = """
from tests.trainables.worker.test_logs import KeptLogs
from trainables.worker.logs import LogCapture
kept = KeptLogs()
try:
    with LogCapture(kept, print) as log:
        log.begin("a")
        print("one")
        raise ValueError("two")
except ValueError:
    print("outside", kept.of["a"])
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("outside b'one\\nTraceback") and done.stdout.endswith("ValueError: two\\n'\n")
    assert done.stderr == ""
    with pytest.raises(Stopped), capture(kept) as log:
        log.begin("stopped")
        raise Stopped
    assert not kept.of and [identity(descriptor) for descriptor in (1, 2)] == before


@pytest.mark.parametrize("polled", [False, True])
def test_of_50_mb_the_ends_are_kept_and_the_disk_holds_less(
    polled: bool, kept: KeptLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    if polled:
        monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    script = "import os\nfor n in range(50): os.write(1, b'%07d\\n' % n * (1 << 17))"
    with capture(kept) as log:
        log.begin("a")
        subprocess.run([sys.executable, "-c", script], check=True)
        log.save()
        assert os.fstat(log._file).st_size <= logs.MOST_ON_DISK
        os.write(1, b"end\n")
    text = LogText.of(kept.of["a"])
    assert text.head == b"0000000\n" * (1 << 17)
    assert len(text.tail) == logs.SIDE and text.tail.endswith(b"0000049\nend\n")
    most = 48 * logs.SIDE + len(b"end\n")
    assert 0 < text.left_out <= most if polled else text.left_out == most


def test_a_trial_that_goes_on_keeps_its_earlier_text_within_the_bound(kept: KeptLogs) -> None:
    for line in (b"first\n", b"second\n"):
        with capture(kept) as log:
            log.begin("a")
            os.write(1, line[:3])
            log.save()
            os.write(1, line[3:])
    assert re.fullmatch(CONTINUED + b"second\n", kept.of["a"])
    for _ in range(3):
        with capture(kept) as log:
            log.begin("a")
            os.write(1, b"." * (logs.SIDE - 1) + b"\n")
    assert kept.of["a"].startswith(b"first\n[continued at") and len(kept.of["a"]) < 2 * logs.SIDE + 100
    assert kept.of["a"].count(b" bytes left out]") == 1


def test_a_store_that_takes_nothing_is_said_once_and_asked_again(kept: KeptLogs) -> None:
    lines: list[str] = []
    kept.full = True
    with capture(kept, lines.append) as log:
        log.begin("a", "b")
        os.write(1, b"one\n")
        log.save()
        log.save()
        kept.full = False
    assert lines == ["its printed output cannot be stored: store full"] and kept.of == {"a": b"one\n", "b": b"one\n"}


def test_a_log_is_written_while_its_trial_trains(kept: KeptLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    with capture(kept) as log:
        log.begin("a")
        os.write(1, b"now\n")
        while "a" not in kept.of:
            log._over.wait(0.01)
    assert kept.of == {"a": b"now\n"}


@given(st.lists(st.tuples(st.binary(max_size=12), st.integers(0, 3)), max_size=8), st.binary(max_size=30))
def test_a_text_is_the_same_after_it_was_written_and_read(parts: list[tuple[bytes, int]], more: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "SIDE", 8)
        text, size = LogText(), 0
        for data, left_out in parts:
            left_out = 0 if text.room else left_out
            text, size = text.with_more(data, left_out), size + len(data) + left_out
        assert len(text.head) + text.left_out + len(text.tail) == size and len(text.tail) <= 8
        assert bytes(LogText.of(bytes(text)).with_more(more)) == bytes(text.with_more(more))
