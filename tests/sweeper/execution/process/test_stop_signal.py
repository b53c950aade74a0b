import contextlib
import os
import signal
import subprocess
import sys

import pytest

from sweeper.execution.process.stop_signal import AGAIN, ENDING_SECONDS, StopSignal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_raises_and_is_remembered_if_the_exception_is_lost(number: signal.Signals) -> None:
    stopping, before = StopSignal(), signal.getsignal(number)
    stopping.check()
    with stopping.on_signals(), contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), number)
        signal.pause()  # never reached by a signal that raised
    assert signal.getsignal(number) is before and stopping.asked
    with pytest.raises(KeyboardInterrupt):
        stopping.check()


def test_handlers_set_meanwhile_are_replaced_and_the_original_ones_restored() -> None:
    """As Ray does when it is started."""
    stopping = StopSignal()
    with stopping.on_signals():
        own = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with stopping.on_signals(), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, own)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_later_signals_leave_the_orderly_end_alone_and_then_end_the_process(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    stopping = StopSignal(clock := Clock())
    with stopping.on_signals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        clock.now += ENDING_SECONDS - 0.1
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)  # raises nothing
        assert capfd.readouterr() == ("", AGAIN) and left == []
        clock.now += 0.1
        signal.raise_signal(signal.SIGTERM)
    assert capfd.readouterr() == ("", "interrupted; the same command continues\n") and left == [130]


def test_a_sweep_handles_signals_from_its_first_to_its_last_line() -> None:
    """One that comes as the interpreter ends changes neither its last line nor its status."""
    code = (
        "import signal, sys\n"
        "from sweeper import run\n"
        "from sweeper.execution.process import stop_signal\n"
        "stop_signal.ignore_signals()\n"
        "run.parse = lambda _: signal.raise_signal(signal.SIGTERM)\n"
        "status = run.main([])\n"
        "signal.raise_signal(signal.SIGTERM)\n"
        "sys.exit(status)\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert completed.returncode == 130 and completed.stdout == "", completed
    assert completed.stderr == "interrupted; the same command continues\n"
