"""The time that a step may take, and the first step, which also reads data; and signals that end a training."""

import signal
import threading

import pytest

from tests.cases import for_each
from trainables.worker import watchdog
from trainables.worker.messages import Failure
from trainables.worker.watchdog import BEGINNING, StepWatchdog, on_termination


def hung(step_timeout: float, steps: int) -> Failure:
    """The failure with which a process is ended that makes no step after this number of them."""
    failures, ended = list[Failure](), threading.Event()

    def end(failure: Failure) -> None:
        failures.append(failure)
        ended.set()

    with StepWatchdog(step_timeout, end) as watchdog:
        for _ in range(steps):
            assert not watchdog.stop()
        assert ended.wait(60)
    return failures[0]


def test_the_first_step_may_take_longer_than_any_other() -> None:
    """The factor is in the reason. Its faulthandler would end a process that no thread could."""
    first, later = hung(0.3, steps=0), hung(0.3, steps=1)
    assert BEGINNING == 5 and first.reason.startswith("hung: no step was completed within 1.5 s, at ")
    assert later.reason.startswith("hung: no step was completed within 0.3 s, at ") and {first.cause, later.cause} == {
        "hung"
    }


@for_each(
    ("number", "ignored", "expected"),
    [(signal.SIGTERM, False, 1), (signal.SIGHUP, False, 1), (signal.SIGHUP, True, 0)],
)
def test_a_training_is_notified_of_the_end_of_its_process(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, ignored: bool, expected: int
) -> None:
    """Unless that is the end of a terminal that the process ignores, as under `nohup`."""
    monkeypatch.setattr(watchdog, "_process", watchdog._Process())
    monkeypatch.setattr(watchdog, "AFTERWARDS", 1e6)
    calls = list[int]()
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        if ignored:
            signal.signal(number, signal.SIG_IGN)
        with on_termination(lambda: calls.append(number)):
            signal.raise_signal(number)
        assert calls == [number] * expected
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
