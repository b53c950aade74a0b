"""The time that a step may take, and the first step, which also reads data."""

import threading

from trainables.worker.messages import Failure
from trainables.worker.watchdog import BEGINNING, StepWatchdog


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
